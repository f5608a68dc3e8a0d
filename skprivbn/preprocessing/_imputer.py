"""Fill gaps in rows held by several parties."""

from typing import Any

import numpy as np

from skprivbn.base import BACKEND_CONSTRAINT
from skprivbn.crypto import AdditiveBackend
from skprivbn.preprocessing._base import (
    COLUMNS_CONSTRAINT,
    FederatedTransformer,
    fit_moments,
    fit_quantiles,
)
from skprivbn.preprocessing._categories import (
    CategoriesTerms,
    categories,
    known_categories,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, noise_terms, words_of_noise
from skprivbn.programs import QuantileTerms, moments, quantiles
from skprivbn.utils import column_names
from skprivbn.utils._sklearn import StrOptions
from skprivbn.utils._validation import is_missing, missing_entries


class FederatedSimpleImputer(FederatedTransformer):
    """Replace missing values by a statistic of their column over all parties.

    A plain ``SimpleImputer`` would see the pooled rows, and one at each party would
    fill the same gap with different values. Here parties add up counts and sums under
    the backend, and only the values to fill in become known.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    strategy : {"mean", "median", "most_frequent"}, default="mean"
        What stands in for a missing value. Medians are found to 2**-16 of their
        magnitude, or of the width of `bounds`. The most frequent value may be text.
    categories : "auto", list of array-like or dict, default="auto"
        For ``"most_frequent"``: the values that each column may have, which is needed
        with `epsilon`. By default what a dataframe or the sites declare, else parties
        tell the values that they have, at most 256 of a column.
    columns : str, list or callable, default=None
        Which columns to complete: names, positions, or a selector by type such as
        ``make_column_selector``; the others follow them as they are. None means all.
    backend : str or AdditiveBackend, default="masking"
        How counts and sums are hidden until they are added up.
    epsilon : float, default=None
        Privacy budget of the statistics. None releases them exactly.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped:
        ``(low, high)``, a list with ``(low, high)`` of each feature, or
        ``{"age": (0, 120), ...}``; needed with `epsilon` for means and medians.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    statistics_ : ndarray of shape (n_features,)
        What stands in for missing values of each column.
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
    FederatedStandardScaler : Leaves missing values as they are.
    skprivbn.structure.FederatedBayesianNetwork : Learns from rows with gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.preprocessing import FederatedSimpleImputer
    >>> X = np.array([[1.0, 4.0], [np.nan, 6.0], [5.0, np.nan]])
    >>> imputer = FederatedSimpleImputer().fit(X, party=["a", "b", "c"])
    >>> imputer.statistics_
    array([3., 5.])
    >>> imputer.transform(X)
    array([[1., 4.],
           [3., 6.],
           [5., 5.]])
    """

    statistics_: Any

    protocols = (moments, quantiles, categories)
    _complete = "allow-nan"
    _parameter_constraints = {
        "strategy": [StrOptions({"mean", "median", "most_frequent"})],
        "categories": [StrOptions({"auto"}), list, dict],
        "columns": COLUMNS_CONSTRAINT,
        "backend": BACKEND_CONSTRAINT,
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        strategy: str = "mean",
        categories: str | list | dict = "auto",
        columns: Any = None,
        backend: str | AdditiveBackend = "masking",
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.strategy = strategy
        self.categories = categories
        self.columns = columns
        self.backend = backend
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    @property
    def _row_checks(self):
        checks = super()._row_checks
        return checks | {"dtype": None} if self.strategy == "most_frequent" else checks

    @property
    def _needs_bounds(self):
        return self.strategy != "most_frequent"

    def _learn(self, partition):
        if self.strategy == "mean":
            self.statistics_ = fit_moments(self, partition, "none", gaps=True).mean
        elif self.strategy == "median":
            terms = QuantileTerms(1, **noise_terms(self, partition))
            medians = fit_quantiles(self, partition, terms, "medians")
            self.statistics_ = medians[:, 0]
        else:
            winners = self._find_most_frequent(partition)
            of_numbers = all(isinstance(w, int | float) for w in winners)
            self.statistics_ = np.array(winners, None if of_numbers else object)

    def _find_most_frequent(self, partition):
        names = column_names(self)
        noise = noise_terms(self, partition, bounds=False)
        known, are_public = known_categories(self.categories, names, partition)
        if noise and not are_public:
            raise ValueError(
                "strategy='most_frequent' with epsilon needs the values that each "
                "column may have, since which of them occur is not private: give "
                "categories="
            )
        terms = CategoriesTerms(names, known, count=True, **noise)
        what = "most frequent values"
        found = self._run_charged(partition, categories, terms, what)
        if noise:
            release = terms.noise(len(names), partition.n_parties)
            std, largest = release.std / terms.unit, found["largest"]
            number = noisy_number("rows with the most frequent value", largest, std)
            words = words_of_noise(3 * std, largest)
            report_noise(self, release, terms.protects, std, [number], words)
        for name, winner in zip(names, found["winners"]):
            if winner is None:
                raise ValueError(
                    f"hardly any row of any party has a value of column {name!r}: "
                    "leave it out"
                )
        return found["winners"]

    def _transform(self, X):
        return self._fill(X, missing_entries(X))

    def _transform_all(self, X):
        # what is no number cannot be refused here, and so is missing, too; float32
        # would round what is filled in, and is objects beside an entry of text
        if X.dtype.kind == "f":
            X = X.astype(np.float64, copy=False)
            return self._fill(X, ~np.isfinite(X))
        gaps = missing_entries(X)
        if X.dtype.kind == "O":
            gaps |= np.frompyfunc(_is_infinite, 1, 1)(X).astype(bool)
        return self._fill(X, gaps)

    def _was_found(self, found):
        """Tell whether gaps are filled with means, medians or most frequent values."""
        fills = [found.get(name) for name in ("mean", "winners", "quantiles")]
        mine = self.statistics_.tolist()
        return any(
            mine == np.ravel(fill).tolist() for fill in fills if fill is not None
        )

    def _fill(self, X, gaps):
        filled = np.where(gaps, self.statistics_, X)
        return filled.astype(X.dtype if X.dtype.kind in "fO" else filled.dtype)

    def _public_model(self):
        return {"statistics": self.statistics_.tolist()}

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted imputer of public values, which are checked."""
        statistics = model["statistics"]
        if len(statistics) != n_features or any(map(is_missing, statistics)):
            raise ValueError("one value for each column")
        of_numbers = all(isinstance(value, int | float) for value in statistics)
        estimator = cls(strategy="mean" if of_numbers else "most_frequent")
        estimator.statistics_ = np.array(statistics, None if of_numbers else object)
        if of_numbers and not np.all(np.isfinite(estimator.statistics_)):
            raise ValueError("finite values only")
        return estimator

    @staticmethod
    def _kept_labels(model, names, labels):
        """Return the labels of columns whose gaps are filled with one of them."""
        filled = zip(names, model["statistics"])
        return {v: labels[v] for v, value in filled if value in labels.get(v, ())}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        is_text = self.strategy == "most_frequent"
        tags.input_tags.categorical = tags.input_tags.string = is_text
        return tags


def _is_infinite(value):
    return isinstance(value, float | np.floating) and bool(np.isinf(value))
