"""Graphs of continuous columns some of whose causes nobody has recorded."""

from numbers import Integral, Real

import numpy as np

from skprivbn.base import BACKEND_CONSTRAINT, PrivateEstimator
from skprivbn.bayesian_network import PartialAncestralGraph
from skprivbn.crypto import AdditiveBackend
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, noise_terms
from skprivbn.programs._moments import read_moments
from skprivbn.programs._noisy_moments import report_moments
from skprivbn.structure._fci import fci
from skprivbn.structure._learnt import refuse_constant, warn_if_few_rows
from skprivbn.structure.gaussian._program import (
    NetworkMomentsTerms,
    network_moments,
    read_noisy,
)
from skprivbn.structure.gaussian._scores import effective_rows
from skprivbn.structure.gaussian._search import fisher_z
from skprivbn.utils import column_names
from skprivbn.utils._sklearn import Interval, StrOptions


class FederatedFCI(PrivateEstimator):
    """Causes and hidden common causes, by FCI on secure sums of moments.

    Other structure learners take it that no cause of two columns is missing. FCI does
    not: it says which edges are causes, which are due to a hidden cause, and which may
    be either. Tests of partial correlation need no more than the pooled covariance, of
    which the parties add their shares without showing them.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    significance : float, default=0.01
        Level of the tests of independence.
    max_condition : int, default=None
        Most columns that a test is given; None for no limit.
    site_effects : {"levels"}, default=None
        With "levels", every party's own means are removed.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden. Parties read them, and tell the coordinator the moments.
    epsilon : float, default=None
        Privacy budget of the moments. None releases them exactly. With it, tests count
        the noise as fewer rows.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped;
        needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    pag_ : PartialAncestralGraph
        What the tests say.
    n_samples_ : float
        Rows of all parties (noisy with `epsilon`).
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost, with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedGaussianBayesianNetwork : Where no common cause is hidden.

    References
    ----------
    .. [1] Spirtes, Glymour, Scheines. Causation, Prediction, and Search. 2000.
    .. [2] Zhang. On the completeness of orientation rules for causal discovery in the
       presence of latent confounders and selection bias. Artificial Intelligence, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.structure import FederatedFCI
    >>> rng = np.random.default_rng(0)
    >>> hidden, a, b, c, d = rng.normal(size=(5, 3000))
    >>> X = np.column_stack([a, b, a + hidden + c, b + hidden + d])
    >>> party = [f"hospital {i % 3}" for i in range(3000)]
    >>> model = FederatedFCI().fit(X, party=party)
    >>> print(model.pag_)
    x0 o-> x2
    x1 o-> x3
    x2 <-> x3
    """

    protocols = (network_moments,)
    _fit_checks = {"ensure_min_features": 2, "ensure_min_samples": 2}
    _parameter_constraints = {
        "significance": [Interval(Real, 0, 1, closed="neither")],
        "max_condition": [Interval(Integral, 0, None, closed="left"), None],
        "site_effects": [StrOptions({"levels"}), None],
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        significance: float = 0.01,
        *,
        max_condition: int | None = None,
        site_effects: str | None = None,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.significance = significance
        self.max_condition = max_condition
        self.site_effects = site_effects
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    def _learn(self, partition):
        if self.epsilon is not None and self.site_effects is not None:
            raise ValueError(
                f"site_effects={self.site_effects!r} is not available with epsilon"
            )
        names = column_names(self)
        if self.epsilon is None:
            centre = "pooled" if self.site_effects is None else "party"
            terms = NetworkMomentsTerms(centre=centre)
        else:
            terms = NetworkMomentsTerms(**noise_terms(self, partition))
        found = self._run_charged(partition, network_moments, terms, "moments")
        if self.epsilon is None:
            moments = read_moments(found, terms, partition.n_parties)
            variances = np.diag(moments.covariance)
            refuse_constant(names, moments.mean, variances, "over all parties' rows")
            warn_if_few_rows(moments.n_rows, len(moments.mean))
        else:
            moments = read_noisy(found, terms, partition.n_parties)
            report_moments(self, moments, terms, partition.n_parties)
        n_rows, d = effective_rows(moments), len(moments.mean)
        test = fisher_z(moments.covariance, n_rows, self.significance)
        marks = fci(test, d, self.max_condition)
        self.pag_ = PartialAncestralGraph(marks, names)
        self.n_samples_ = moments.n_rows
