"""Cut numeric features of several parties into the same bins."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skprivbn.base import BACKEND_CONSTRAINT
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import Ledger
from skprivbn.preprocessing._base import (
    COLUMNS_CONSTRAINT,
    FederatedTransformer,
    fit_quantiles,
)
from skprivbn.privacy import PrivacyAccountant, PrivacyCost
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, bounds_of, noise_terms
from skprivbn.programs import QuantileTerms, quantiles
from skprivbn.programs._quantiles import MAX_LEVELS
from skprivbn.utils import warn_leak
from skprivbn.utils._sklearn import Interval, StrOptions


class FederatedKBinsDiscretizer(FederatedTransformer):
    """Bin features into intervals that all parties share.

    With ``strategy="uniform"`` and public `bounds`, nothing is asked of the parties.
    Otherwise edges are found by secure counts of values below thresholds. Edges read
    off the data tell something about single rows, so that a warning says so unless
    noise (`epsilon`) protects them.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    n_bins : int or array-like of shape (n_features,), default=5
        Number of bins of each feature, or of all; fewer if quantiles coincide.
    encode : {"ordinal", "onehot-dense"}, default="ordinal"
        The number of the bin, or a column of zeros and ones for each bin.
    strategy : {"quantile", "uniform"}, default="quantile"
        Bins of equal count, or of equal width.
    columns : str, list or callable, default=None
        Which columns to transform: names, positions, or a selector by type such as
        ``make_column_selector``; the others follow them as they are. None means all.
    backend : str or AdditiveBackend, default="masking"
        How counts are hidden until they are summed.
    epsilon : float, default=None
        Privacy budget of the edges. None finds them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped:
        ``(low, high)``, a list with ``(low, high)`` of each feature, or
        ``{"age": (0, 120), ...}``; needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.
    min_rows : int, default=1
        Exact edges have so many rows of all parties between them, and the outer ones
        so many at them or beyond: the n-th smallest and largest values in the place of
        the smallest and largest. Sites raise it to their own limit.

    Attributes
    ----------
    bin_edges_ : ndarray of object of shape (n_features,)
        Edges of each feature, ends included.
    n_bins_ : ndarray of int of shape (n_features,)
        Number of bins of each feature.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost: nothing with public edges; else with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    skprivbn.graphical_model.DPCGMLearner : Learns from columns with few values.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.preprocessing import FederatedKBinsDiscretizer
    >>> X = np.linspace(0, 9, 10)[:, None]
    >>> binner = FederatedKBinsDiscretizer(3, strategy="uniform", bounds=(0, 9))
    >>> binner.fit(X, party=["a", "b", "c", "a", "b"] * 2).transform(X).ravel()
    array([0., 0., 0., 1., 1., 1., 2., 2., 2., 2.])
    """

    protocols = (quantiles,)

    _parameter_constraints = {
        "n_bins": [Interval(Integral, 2, None, closed="left"), "array-like"],
        "encode": [StrOptions({"ordinal", "onehot-dense"})],
        "strategy": [StrOptions({"quantile", "uniform"})],
        "columns": COLUMNS_CONSTRAINT,
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
        "min_rows": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_bins: int | ArrayLike = 5,
        *,
        encode: str = "ordinal",
        strategy: str = "quantile",
        columns: Any = None,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
        min_rows: int = 1,
    ) -> None:
        self.n_bins = n_bins
        self.encode = encode
        self.strategy = strategy
        self.columns = columns
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest
        self.min_rows = min_rows

    @property
    def _needs_bounds(self):
        # without epsilon, bounds still set the edges: no warning that they are idle
        return self.epsilon is not None

    @property
    def _is_public(self):
        return self.strategy == "uniform" and self.bounds is not None

    @property
    def _fit_checks(self):
        return {"ensure_all_finite": not self._is_public}

    def _learn(self, partition):
        bounds = None
        if self.bounds is not None or self.epsilon is not None:
            bounds = bounds_of(self)
        n_bins = self._check_n_bins(partition.n_features)
        if self._is_public:
            self.ledger_ = Ledger(parties=partition.names)
            self.ledger_.note("bins come from public bounds: no party was asked")
            self.privacy_spent_ = PrivacyCost(0.0, 0.0)
            ends = bounds.T
        else:
            ends = self._find_edges(partition, bounds, n_bins)
        if self.strategy == "uniform":
            edges = [np.linspace(*pair, n + 1) for pair, n in zip(ends, n_bins)]
        else:
            # found at a common multiple of all n_bins: every so many are this feature's
            steps = (ends.shape[1] - 1) // n_bins
            edges = [found[::step] for found, step in zip(ends, steps)]
        self._set_edges(edges)

    def _check_n_bins(self, n_features):
        """Return the number of bins of each feature."""
        n_bins = np.asarray(self.n_bins)
        if n_bins.ndim == 0:
            return np.full(n_features, int(n_bins))
        if n_bins.shape != (n_features,):
            raise ValueError(
                f"n_bins must be a number or one for each of the {n_features} "
                f"features, got {self.n_bins!r}"
            )
        if n_bins.dtype.kind not in "iu" or np.any(n_bins < 2):
            raise ValueError(f"n_bins must be integers from 2, got {self.n_bins!r}")
        return n_bins

    def _find_edges(self, partition, bounds, n_bins):
        uniform = self.strategy == "uniform"
        # one search for all features, at every level that one of them needs
        n_levels = 2 if uniform else int(np.lcm.reduce(n_bins)) + 1
        if self.epsilon is None and n_levels > MAX_LEVELS:
            raise ValueError(
                f"n_bins={self.n_bins!r} is too large: parties answer for at most "
                f"{MAX_LEVELS - 1} bins of equal count, because more would disclose "
                "values. Different numbers of bins need their least common multiple"
            )
        noise = noise_terms(self, partition, bounds=False)
        terms = QuantileTerms(n_levels, bounds, min_rows=self.min_rows, **noise)
        edges = fit_quantiles(self, partition, terms, "edges of bins")
        if self.epsilon is None:
            warn_leak(
                "edges of bins are read off the data, and may be values of single "
                "rows; give public bounds= with strategy='uniform', or epsilon="
            )
        return edges

    def _set_edges(self, edges):
        self.bin_edges_ = np.empty(len(edges), dtype=object)
        for feature, values in enumerate(edges):
            # Equal quantiles make empty bins, which nothing would ever fall into.
            least = 1e-8 * min(values[-1] - values[0], 1.0)
            distinct = values[np.append(True, np.diff(values) > least)]
            if len(distinct) == 1:
                distinct = np.array([-np.inf, np.inf])
            self.bin_edges_[feature] = distinct
        self.n_bins_ = np.array([len(values) - 1 for values in self.bin_edges_])

    def _transform(self, X):
        bins = np.empty_like(X)
        for feature, edges in enumerate(self.bin_edges_):
            bins[:, feature] = np.searchsorted(edges[1:-1], X[:, feature], side="right")
        if self.encode == "ordinal":
            return bins
        columns = [bins[:, [j]] == np.arange(n) for j, n in enumerate(self.n_bins_)]
        return np.hstack(columns).astype(X.dtype)

    def _names_out(self, names):
        if self.encode == "ordinal":
            return names
        made = [
            f"{v}_{float(k)}" for v, n in zip(names, self.n_bins_) for k in range(n)
        ]
        return np.array(made, dtype=object)

    def _columns_behind(self, names):
        """Return the column that each feature is made of: refusals name no bin."""
        return names if self.encode == "ordinal" else np.repeat(names, self.n_bins_)

    def _is_declared(self, declared):
        """Tell whether all bins are of equal width: their rows are counted in sums."""
        return all(_are_even(edges) for edges in self.bin_edges_)

    def _was_found(self, found):
        """Tell whether edges are quantiles, or equal bins between the outer ones."""
        quantiles = found.get("quantiles")
        if quantiles is None or len(quantiles) != len(self.bin_edges_):
            return False
        return all(
            np.isin(edges, known).all()
            or (_are_even(edges) and np.isin(edges[[0, -1]], known).all())
            for edges, known in zip(self.bin_edges_, quantiles)
        )

    def _public_model(self):
        return {"edges": list(self.bin_edges_), "encode": self.encode}

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted discretizer of public edges, which are checked."""
        estimator = cls(encode=model["encode"])
        estimator.bin_edges_ = np.empty(n_features, dtype=object)
        for feature, edges in zip(range(n_features), model["edges"], strict=True):
            if edges.ndim != 1 or len(edges) < 2 or not np.all(np.diff(edges) > 0):
                raise ValueError("edges must increase")
            estimator.bin_edges_[feature] = edges
        estimator.n_bins_ = np.array([len(e) - 1 for e in estimator.bin_edges_])
        return estimator

    def _inverse(self, X):
        bins = np.asarray(X, dtype=np.int64)
        if self.encode != "ordinal":
            parts = np.split(bins, np.cumsum(self.n_bins_)[:-1], axis=1)
            bins = np.column_stack([part.argmax(axis=1) for part in parts])
        centres = [(edges[1:] + edges[:-1]) / 2 for edges in self.bin_edges_]
        return np.column_stack([c[bins[:, i]] for i, c in enumerate(centres)])


def _are_even(edges):
    """Tell whether bins have equal widths; one that holds everything has."""
    if np.isinf(edges).any():
        return len(edges) == 2
    # but for rounding: what is close beside large edges may be many widths
    off = np.abs(edges - np.linspace(edges[0], edges[-1], len(edges)))
    return bool(np.all(off <= 8 * np.spacing(np.abs(edges).max())))
