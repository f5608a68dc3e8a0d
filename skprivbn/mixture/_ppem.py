"""A Gaussian mixture fitted to rows that several parties hold."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skprivbn.base import BACKEND_CONSTRAINT, PrivateEstimator
from skprivbn.crypto import AdditiveBackend
from skprivbn.mixture._em import EACH, FEW_ENTRIES, FIRST, ILL_DEFINED, em
from skprivbn.mixture._gaussian_steps import IllDefinedCovarianceError, isotropic
from skprivbn.mixture._model import FittedMixtureMixin
from skprivbn.mixture._noisy_em import (
    NOISY,
    Box,
    PrivateEMTerms,
    noise_on_components,
    noisy_em,
)
from skprivbn.mixture._seeding import (
    CLUSTERS,
    FEW_CLUSTERS,
    EMTerms,
    Given,
    first_mixture,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._noise_report import report_noise
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, noise_terms, warn_of_fit
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.programs._applied import refuse_pooling
from skprivbn.utils import warn_user
from skprivbn.utils._sklearn import (
    Interval,
    StrOptions,
    _check_means,
    _check_precisions,
    _check_weights,
)
from skprivbn.utils._typing import RandomStateLike

_STARTS = {"kmeans", "k-means++", "random", "random_from_data", "local_em", "paper"}


class PPEMGaussianMixture(CallbackSupportMixin, FittedMixtureMixin, PrivateEstimator):
    """Gaussian mixture by privacy-preserving expectation maximisation.

    Every party does the E-step on its own rows and encrypts the sums that the M-step
    needs; a coordinator without a key adds the ciphertexts; the parties decrypt the
    total and do the M-step [1]_. A drop-in replacement of scikit-learn's
    ``GaussianMixture``, with the same result as on the pooled rows.

    Read more in the :ref:`User Guide <mixture>`.

    Parameters
    ----------
    n_components : int, default=1
        Number of mixture components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        One covariance matrix per component, one for all components, one diagonal
        matrix per component, or one variance per component.
    tol : float, default=1e-3
        EM stops when the mean log-likelihood changes by less.
    reg_covar : float, default=1e-6
        Added to the diagonals of the covariances.
    max_iter : int, default=None
        Maximum number of EM iterations per start. With 0 the start is the result. None
        means 100; with `epsilon` 4 to 10, by the budget and the size of the mixture.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    init_params : {"kmeans", "k-means++", "random", "random_from_data", "local_em", \
"paper"}, default="kmeans"
        How EM starts:

        - ``"kmeans"``: parties disclose to each other the centres of their local
          clusters of at least `min_rows` rows; a few secure steps of Lloyd's
          algorithm follow;
        - ``"local_em"``: the same with the components of each party's local mixture,
          as the paper recommends;
        - ``"random"``: random responsibilities, which disclose nothing; at sites they
          do not depend on `random_state`;
        - ``"random_from_data"``, ``"k-means++"``: some rows are shown to all parties;
        - ``"paper"``: means drawn from the unit cube, unit covariances and equal
          weights, independent of the rows, as in section 3.5 of the paper. Scale the
          features first.

        With one party and an integer `random_state`, EM starts as in
        ``GaussianMixture``.
    weights_init : array-like of shape (n_components,), default=None
        Initial weights; by `init_params` if None. Clusters of several parties are
        matched to the given initial values.
    means_init : array-like of shape (n_components, n_features), default=None
        Initial means; by `init_params` if None.
    precisions_init : array-like, default=None
        Initial inverse covariances, in the shape of `covariances_`; by `init_params`
        if None.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts and of `sample`. Keys and noise do not depend on it.
    warm_start : bool, default=False
        Start from the last fit.
    verbose : int, default=0
        1 prints the iterations and, after the fit, the last lower bound of the best
        start and its change; 2 those of all its iterations. During the fit only the
        parties know them.
    verbose_interval : int, default=10
        Iterations between two prints.
    covariance_update : {"exact", "paper"}, default="exact"
        Covariances about the new means (maximum likelihood), or about the means before
        the update, as in equation (4) of the paper.
    key_rotation : {"fit", "iteration"}, default="fit"
        When the key of the secure sums changes. The paper changes it in every
        iteration.
    min_rows : int, default=5
        A party with fewer rows causes a warning. Local clusters with fewer rows are not
        disclosed; a component with fewer effective rows, or entries of a column, stops
        the fit.
    missing : {"auto", "error", "em"}, default="auto"
        Treatment of missing entries (NaN or None). "auto" is "error" without
        `epsilon`; with `epsilon` it imputes the middle of the bounds, and "error" is
        refused, because an error would disclose that such a row exists. "em" uses all
        rows: the E-step takes the density of the observed entries, the M-step the
        conditional mean and covariance of the missing ones [2]_. It assumes that
        entries are missing at random: missingness may depend on observed entries, not
        on the missing value. `predict`, `score` and the like then accept gaps, too.
    backend : str or AdditiveBackend, default="masking"
        How the sums are hidden from the coordinator: ``"masking"`` (fastest, and secure
        against larger coalitions), ``"ckks"`` (as in the paper), ``"paillier"``; or not
        at all, ``"plaintext"``. Results are the same.
    epsilon : float, default=None
        Privacy budget of the fit, divided evenly over `max_iter` iterations, all of
        which are run. None adds no noise.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped;
        needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is read.
    min_honest : int, default=None
        With `epsilon`: number of parties trusted to add their share of the noise and
        to keep it secret. None means half of them, rounded up; sites accept no more.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Weight of each component.
    means_ : ndarray of shape (n_components, n_features)
        Mean of each component.
    covariances_ : ndarray
        Covariances, of shape (n_components, n_features, n_features) for ``"full"``,
        (n_features, n_features) for ``"tied"``, (n_components, n_features) for
        ``"diag"``, (n_components,) for ``"spherical"``.
    precisions_ : ndarray
        Inverses of the covariances, in the same shape.
    precisions_cholesky_ : ndarray
        Cholesky factors of the precisions, in the same shape.
    converged_ : bool
        Whether the best start converged. False with `epsilon`.
    n_iter_ : int
        Iterations of the best start.
    lower_bound_ : float
        Mean log-likelihood in the last iteration. NaN with `epsilon`.
    lower_bounds_ : list of float
        Mean log-likelihood in each iteration of the best start.
    n_samples_ : int or float
        Rows of all parties. Noisy with `epsilon`, and at least 1.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        Cost of the fit, with `epsilon` only.
    noise_report_ : NoiseReport
        Effect of the noise on the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    skprivbn.preprocessing.FederatedStandardScaler : Scale rows of several parties
        without pooling them.
    skprivbn.preprocessing.FederatedPCA : Reduce their features.

    References
    ----------
    .. [1] A. Abu Hussein, M. Rodel (2023). "PPEM using homomorphic encryption".
    .. [2] Z. Ghahramani, M. Jordan (1994). "Supervised learning from incomplete data
       via an EM approach". NIPS 6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skprivbn.mixture import PPEMGaussianMixture
    >>> X, _ = load_iris(return_X_y=True)
    >>> hospital = ["north", "south", "west"] * 50
    >>> mixture = PPEMGaussianMixture(3, covariance_type="tied", random_state=0)
    >>> mixture.fit(X, party=hospital).means_.round(2)
    array([[...]])
    """

    protocols = (em, noisy_em, score_rows, keep_predictions)
    _fit_checks = {"ensure_min_samples": 2}
    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left"), None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions(_STARTS)],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
        "covariance_update": [StrOptions({"exact", "paper"})],
        "key_rotation": [StrOptions({"fit", "iteration"})],
        "min_rows": [Interval(Integral, 1, None, closed="left")],
        "missing": [StrOptions({"auto", "error", "em"})],
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int | None = None,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: ArrayLike | None = None,
        random_state: RandomStateLike = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        covariance_update: str = "exact",
        key_rotation: str = "fit",
        min_rows: int = 5,
        missing: Literal["auto", "error", "em"] = "auto",
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.covariance_update = covariance_update
        self.key_rotation = key_rotation
        self.min_rows = min_rows
        self.missing = missing
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "em"
        return tags

    @property
    def _steps(self):
        return {"step": "start", "max_steps": self.n_init}

    def _learn(self, partition, progress):
        fit = self._fit_exactly if self.epsilon is None else self._fit_privately
        fit(partition, progress)

    def fit_predict(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        party: ArrayLike | None = None,
        individual: ArrayLike | None = None,
    ) -> np.ndarray:
        """Fit the mixture and return the most probable component of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : Ignored
            Not used, present for API consistency by convention.
        party : array-like of shape (n_samples,), default=None
            Holder of each row. None means that one party holds all.
        individual : array-like of shape (n_samples,), default=None
            The person behind each row, as in :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Components.
        """
        refuse_pooling(X, "fit_predict")
        return self.fit(X, y, party=party, individual=individual).predict(X)

    @property
    def _continues(self):
        """Whether EM goes on from the last fit."""
        return self.warm_start and hasattr(self, "converged_")

    def _start_terms(self, n_features):
        """Return the terms that exact and noisy fits share, as keywords."""
        random_state = check_random_state(self.random_state)
        seeds = [int(s) for s in random_state.randint(2**31 - 1, size=self.n_init)]
        if isinstance(self.random_state, Integral):
            # one party then starts where GaussianMixture does
            seeds[0] = int(self.random_state)
        if self._continues:
            names, mixture = ("weights", "means", "covariances"), self._mixture()
            given = {name: getattr(mixture, name) for name in names}
        else:
            given = self._given(n_features)
            if self.init_params == "paper":
                given = self._paper_start(n_features, seeds) | given
        return {
            "n_components": self.n_components,
            "covariance_type": self.covariance_type,
            "reg_covar": self.reg_covar,
            "max_iter": 100 if self.max_iter is None else self.max_iter,
            "init_params": "given" if len(given) == 3 else self.init_params,
            "seeds": seeds[:1] if self._continues else seeds,
            "given": Given(**given),
            "missing": self._gap_rule,
        }

    def _given(self, n_features):
        """Return the initial parameters of the user, checked."""
        given = {}
        shape = self.n_components, n_features
        if self.weights_init is not None:
            given["weights"] = _check_weights(self.weights_init, shape[0], xp=np)
        if self.means_init is not None:
            given["means"] = _check_means(self.means_init, *shape, xp=np)
        if self.precisions_init is not None:
            given["precisions"] = _check_precisions(
                self.precisions_init, self.covariance_type, *shape, xp=np
            )
        return {key: np.asarray(value, np.float64) for key, value in given.items()}

    def _paper_start(self, n_features, seeds):
        """Return the start of the paper's section 3.5, independent of the rows."""
        if self.n_init > 1:
            raise ValueError(
                f"init_params='paper' has one start, got n_init={self.n_init}: use "
                "n_init=1, and compare fits of several random_state"
            )
        shape = self.n_components, n_features
        return {
            "weights": np.full(self.n_components, 1 / self.n_components),
            "means": np.random.RandomState(seeds[0]).rand(*shape),
            "precisions": isotropic(self.covariance_type, *shape, 1.0),
        }

    def _fit_exactly(self, partition, progress):
        n_samples = sum(partition.n_rows().values())
        if n_samples < self.n_components:
            raise ValueError(
                "Expected n_samples >= n_components but got n_components = "
                f"{self.n_components}, n_samples = {n_samples}"
            )
        terms = EMTerms(
            **self._start_terms(partition.n_features),
            lower_bound=self.lower_bound_ if self._continues else -math.inf,
            tol=self.tol,
            covariance_update=self.covariance_update,
            rotate_keys=self.key_rotation == "iteration",
            min_rows=self.min_rows,
        )
        self._warn_of_disclosures(partition, terms)
        with _Watch(progress, terms.max_iter) as watch:
            found = self._run_charged(partition, em, terms, "mixture", progress=watch)
            if "ends" in found:
                raise self._failure(**found)
        self.lower_bounds_ = [float(bound) for bound in found["lower_bounds"]]
        self.n_iter_, self.n_samples_ = len(self.lower_bounds_), found["n_rows"]
        self.lower_bound_ = (self.lower_bounds_ or [-math.inf])[-1]
        if self.verbose:
            self._say_bounds(progress)
        self.converged_ = found["converged"]
        # without an iteration, the initial values of the user are the result
        given = Given() if self.n_iter_ else terms.given
        # remote rows have no dtype
        self._keep(found, given, getattr(partition, "dtype", np.float64))
        self._warn_of_outcome(partition, terms, found, watch.n_sums)

    def _keep(self, found, given, dtype):
        """Set the fitted mixture from the parties' result and given initial values."""
        found = found["weights"], found["means"], found["covariances"]
        mixture = first_mixture(self.covariance_type, given, *found)
        self._set_mixture(mixture, dtype)

    def _say_bounds(self, progress):
        """Print lower bounds and their changes, which are part of the result."""
        changes = np.diff(self.lower_bounds_, prepend=-math.inf)
        for n_iter, (bound, change) in enumerate(zip(self.lower_bounds_, changes), 1):
            is_shown = self.verbose >= 2 and n_iter % self.verbose_interval == 0
            if is_shown or n_iter == self.n_iter_:
                told = f"lower bound {bound:.6g}, change {change:.3g}"
                progress.say(f"best start: em-iteration {n_iter}, {told}")

    def _failure(self, ends, min_rows):
        """Return the error of a fit that ended without a mixture."""
        if ends == ILL_DEFINED:
            return IllDefinedCovarianceError()
        if ends == FEW_ENTRIES:
            return ValueError(
                f"a column has entries in fewer than min_rows={min_rows} rows of all "
                "parties: leave it out, or lower min_rows"
            )
        if ends == FEW_CLUSTERS:
            return ValueError(
                f"the parties have fewer than n_components={self.n_components} "
                f"clusters of at least min_rows={min_rows} rows to start from: give "
                "means_init, or lower n_components or min_rows"
            )
        return ValueError(self._small_component(min_rows))

    def _small_component(self, min_rows):
        rows = "rows, or entries of a column" if self.missing == "em" else "rows"
        return (
            f"a component describes fewer than min_rows={min_rows} {rows}, and its "
            "parameters would disclose too much about them: lower n_components or "
            "min_rows, or use another start"
        )

    def _fit_privately(self, partition, progress):
        if self._continues and not hasattr(self, "privacy_spent_"):
            raise ValueError(
                "warm_start=True would start from a fit without epsilon, whose result "
                "is exact: fit a clone, or set warm_start=False"
            )
        start = self._start_terms(partition.n_features)
        if self.missing == "error":
            raise ValueError(
                "missing='error' is not available with epsilon: an error would "
                "disclose that such a row exists; use 'auto' or 'em'"
            )
        if len(start["seeds"]) > 1 or self.max_iter == 0:
            raise ValueError(
                "with epsilon, n_init must be 1 (starts cannot be compared without "
                "looking at the rows) and max_iter positive"
            )
        if start["init_params"] in ("k-means++", "random_from_data", "local_em"):
            raise ValueError(
                f"init_params={self.init_params!r} looks at the rows; with epsilon, "
                "use 'kmeans' (noisy sums in random cells), 'random' (public means) "
                "or give means_init"
            )
        terms = PrivateEMTerms(**start, **noise_terms(self, partition))
        if self.max_iter is None:
            terms = terms.with_iterations(partition.n_features, partition.n_parties)
        with _Watch(progress, terms.max_iter) as watch:
            what = "mixture and sums of all rounds"
            found = self._run_charged(partition, noisy_em, terms, what, progress=watch)
        # a single non-numeric entry turns a float32 table into one of objects
        self._keep(found, Given(), np.float64)
        self.converged_ = False
        self.n_iter_ = terms.max_iter
        self.lower_bound_, self.lower_bounds_ = math.nan, []
        self.n_samples_ = found["n_rows"]
        self._noisy_fit = terms, partition.n_parties, found["unshrunk"]  # of conf_int
        self._report_noise(partition, terms, found["std"])

    def _report_noise(self, partition, terms, std):
        """Report the noise, and the components that it makes indistinguishable."""
        n_features, n_parties = partition.n_features, partition.n_parties
        low, high = terms.bounds
        half = Box.between(low, high, self.covariance_type).half
        counts = self.weights_ * self.n_samples_
        numbers, warnings = noise_on_components(
            self.means_ / half, counts, std, self.n_samples_
        )
        noise = terms.noise(n_features, n_parties)

        def std_with(delta):
            return replace(terms, delta=delta).noise(n_features, n_parties).std

        report_noise(
            self,
            noise,
            terms.protects,
            std,
            numbers,
            warnings,
            n_rows=self.n_samples_,
            std_with=lambda delta: std * std_with(delta) / noise.std,
        )

    _warn = warn_of_fit

    def _warn_of_disclosures(self, partition, terms):
        if partition.n_parties == 1:
            return
        small = [name for name, n in partition.n_rows().items() if n < self.min_rows]
        if small:
            self._warn(
                f"parties {small} hold fewer than min_rows={self.min_rows} rows: the "
                "others can subtract their own part of the sums and reconstruct much "
                "of such a party's rows",
            )
        if terms.shows_rows():
            self._warn(
                f"init_params={self.init_params!r} shows {self.n_components} rows to "
                "all parties; 'kmeans', 'local_em' or means_init do not",
            )

    def _warn_of_outcome(self, partition, terms, found, n_sums):
        if found["stopped"]:
            self._warn(
                f"EM was stopped after {self.n_iter_} iterations, before "
                + self._small_component(found["min_rows"]),
                ConvergenceWarning,
            )
        elif not self.converged_ and terms.max_iter > 0:
            warn_user(
                # word for word as in scikit-learn, for filters of warnings
                "Best performing initialization did not converge. Try different init "
                "parameters, or increase max_iter, tol, or check for degenerate data.",
                ConvergenceWarning,
            )
        n_values = self.n_samples_ * partition.n_features
        # the log-likelihood is summed, too
        n_seen = n_sums * (terms.n_summed(partition.n_features) + 1)
        if partition.n_parties > 1 and n_seen > n_values:
            self._warn(
                "the parties could, in principle, reconstruct rows: they read "
                f"{n_seen} sums, and all rows together have {n_values} values. Lower "
                "max_iter or n_components, or use covariance_type='diag', for fewer "
                "sums; only epsilon= limits what sums disclose",
            )


class _Watch(ExitStack):
    """Reports starts and iterations to the progress, by the names of the sums.

    Parameters
    ----------
    progress : Progress
        Its steps are starts.
    max_iter : int

    Attributes
    ----------
    n_sums : int
        Number of sums, of clusters or of moments.
    """

    def __init__(self, progress, max_iter):
        super().__init__()
        self._progress, self._max_iter = progress, max_iter
        self._iterations = None
        self.n_sums = 0

    def __call__(self, what):
        self.n_sums += what in (CLUSTERS, FIRST, EACH)
        iterates = what in (EACH, NOISY)
        is_over = self._iterations is not None and self._iterations.n_steps > 0
        if self._iterations is None or (is_over and not iterates):
            self.close()
            part = self._progress.part("em-iteration", self._max_iter)
            self._iterations = self.enter_context(part)
        if iterates:
            with self._iterations.step():
                pass
