"""Turn labels of several parties into the same numbers."""

from abc import abstractmethod
from itertools import islice
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skprivbn.base import FederatedEstimator
from skprivbn.bayesian_network._base import check_states
from skprivbn.bayesian_network._labels import label_dtype
from skprivbn.exceptions import PartyError
from skprivbn.federation import Ledger, check_received
from skprivbn.preprocessing._base import ANY_ROWS, COLUMNS_CONSTRAINT, ColumnsMixin
from skprivbn.preprocessing._categories import (
    MAX_LABELS,
    CategoriesTerms,
    by_sizes,
    categories,
    known_categories,
)
from skprivbn.privacy import PrivacyAccountant, PrivacyCost
from skprivbn.privacy._options import charge_exact
from skprivbn.utils import column_names, warn_leak, warn_user
from skprivbn.utils._sklearn import Interval, RealNotInt, StrOptions, check_parameters
from skprivbn.utils._validation import MANY_NUMBERS, is_missing, read_labels

#: label of rare ones together, as scikit-learn's encoders call it
INFREQUENT = "infrequent_sklearn"


class CategoryEncoder(ColumnsMixin, FederatedEstimator):
    """Learns the labels of every column; a subclass makes numbers of their codes."""

    categories: Any
    categories_: list
    min_frequency: Any
    handle_unknown: str
    accountant: Any

    protocols = (categories,)
    #: parameters that say how labels become numbers
    _options: ClassVar[tuple] = ("handle_unknown",)
    #: labels are told; with `min_frequency` only, their frequencies are added up
    backend = "masking"
    _row_checks = ANY_ROWS
    _parameter_constraints = {
        "categories": [StrOptions({"auto"}), list, dict],
        "min_frequency": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            None,
        ],
        "columns": COLUMNS_CONSTRAINT,
        "accountant": [PrivacyAccountant, None],
    }

    def _learn(self, partition):
        names = column_names(self)
        # sites see labels as numbers, people by their names
        texts = getattr(partition, "texts", {})
        self._texts = [texts.get(name) for name in names]
        known, are_public = known_categories(self.categories, names, partition)
        vars(self).pop("privacy_spent_", None)
        if are_public and self.min_frequency is None:
            self.ledger_ = Ledger(parties=partition.names)
            self.ledger_.note("categories are public: no party was asked")
            self.privacy_spent_ = PrivacyCost(0.0, 0.0)
            self._set_categories(known)
            return
        charge_exact(self, "categories" if not are_public else "rare categories")
        if not are_public:
            warn_leak(
                "categories are read off the data, and a rare one may be that of a "
                "single row; give the public ones, categories=[[...], ...]"
            )
        found = self._find_categories(partition, names, known)
        self._set_categories(found["categories"], found.get("rare"))

    def _find_categories(self, partition, names, known):
        terms = CategoriesTerms(names, known, min_frequency=self.min_frequency)
        try:
            found = self._run(partition, categories, terms)
        except PartyError as error:
            if error.code == "too-detailed":
                error.add_note(
                    f"A party tells at most {MAX_LABELS} labels of a column: cut "
                    "numbers into bins first, with FederatedKBinsDiscretizer, or "
                    "declare categories="
                )
            raise
        for name, labels in zip(names, found["categories"]):
            if not labels:
                raise ValueError(
                    f"column {name!r} has no value at any party, or none that enough "
                    "rows have: leave it out, or declare categories="
                )
        return found

    def _set_categories(self, categories, rare=None):
        """Take labels of all columns, and which of them, side by side, are rare."""
        self.categories_ = []
        for labels in categories:
            dtype = label_dtype({"column": labels})
            self.categories_.append(np.array(labels, dtype=dtype))
        rare = np.zeros(sum(map(len, categories)), bool) if rare is None else rare
        self._rare = by_sizes(rare, categories)

    @property
    def infrequent_categories_(self) -> list:
        """Labels of each column that `min_frequency` makes one; None without any."""
        check_is_fitted(self)
        columns = zip(self.categories_, self._rare)
        return [labels[rare] if rare.any() else None for labels, rare in columns]

    @property
    def _shown_levels(self):
        """Labels of each column that become numbers, as people know them."""
        texts = getattr(self, "_texts", [None] * len(self._levels))
        return [
            [t[x] if t and isinstance(x, int) else x for x in labels.tolist()]
            for labels, t in zip(self._levels, texts)
        ]

    @property
    def _levels(self):
        """Labels of each column that become numbers, that of rare ones last."""
        columns = zip(self.categories_, self._rare)
        return [
            np.append(labels[~rare].astype(object), INFREQUENT)
            if rare.any()
            else labels
            for labels, rare in columns
        ]

    def _apply(self, X):
        codes = self._codes(X, strict=self.handle_unknown == "error")
        return self._of_codes(self._merge(codes))

    def _transform_all(self, X):
        """Transform rows of which none may be refused: unknown labels are missing."""
        return self._of_codes(self._merge(self._codes(X, strict=False)))

    def _merge(self, codes):
        """Return the positions of labels among the levels of their columns."""
        merged = codes.copy()
        for column, rare in zip(merged.T, self._rare):
            levels = np.where(rare, np.sum(~rare), np.cumsum(~rare) - 1)
            column[:] = np.where(column < 0, -1, levels[column])
        return merged

    def _codes(self, X, strict):
        """Return the position of every label among those of its column, or -1."""
        names, states = column_names(self), [c.tolist() for c in self.categories_]
        columns = zip(np.asarray(X).T, states, names)
        codes = np.column_stack([read_labels(*one, strict=False) for one in columns])
        if strict and (codes < 0).any():
            row, column = np.argwhere(codes < 0)[0]
            name, label = names[column], X[row].tolist()[column]
            if is_missing(label):
                problem = (
                    "has missing values: fill them first, with "
                    "FederatedSimpleImputer(strategy='most_frequent')"
                )
            else:
                problem = (
                    f"holds {label!r}, which is none of its categories "
                    f"{states[column][:10]}: declare it in categories="
                )
            raise ValueError(f"column {name!r} {problem}, or set handle_unknown=")
        return codes

    def _is_declared(self, declared):
        """Tell whether labels are those that the columns are declared with."""
        return not any(map(np.any, self._rare)) and self._has_labels(declared)

    def _was_found(self, found):
        """Tell whether labels, and those that became one, are what parties found."""
        if "rare" not in found:
            return self._is_declared(found.get("categories"))
        is_same = np.array_equal(np.concatenate(self._rare), found["rare"])
        return is_same and self._has_labels(found.get("categories"))

    def _has_labels(self, labels):
        return [column.tolist() for column in self.categories_] == labels

    @abstractmethod
    def _of_codes(self, codes):
        """Return numbers for codes, -1 being unknown or missing."""

    def _public_model(self):
        # side by side: messages do not nest without end
        return {
            "labels": [x for labels in self.categories_ for x in labels.tolist()],
            "sizes": np.array([len(labels) for labels in self.categories_]),
            "rare": np.concatenate(self._rare),
            **{name: getattr(self, name) for name in self._options},
        }

    @classmethod
    def _from_public_model(cls, model, n_features):
        """Make a fitted encoder of public labels, which are checked."""
        estimator = cls(**{name: model[name] for name in cls._options})
        check_parameters(estimator)
        sizes = check_received(model["sizes"], (n_features,)).tolist()
        labels = iter(model["labels"])
        columns = [list(islice(labels, n)) for n in sizes]
        if sum(sizes) != len(model["labels"]) or min(sizes) < 1:
            raise ValueError("sizes must be those of the columns' labels")
        rare = check_received(model["rare"], (sum(sizes),)).astype(bool)
        estimator._set_categories(
            [list(check_states(f"x{i}", column)) for i, column in enumerate(columns)],
            rare,
        )
        return estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = True
        # gaps are no labels: a fit leaves them out
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class FederatedOrdinalEncoder(CategoryEncoder):
    """Replace labels by their positions among the categories of all parties.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    categories : "auto", list of array-like or dict, default="auto"
        The labels of each column, in the order of their numbers, or of some by name,
        ``{"sex": ["f", "m"]}``: nothing is then asked of the parties. By default what
        dataframes or sites declare, else parties tell the labels that they have, at
        most 256 of a column, and a warning says so.
    min_frequency : int or float, default=None
        Labels that fewer rows of all parties have, or a smaller share of them, become
        one, ``"infrequent_sklearn"``, as in scikit-learn. Parties add up how many rows
        have each label, and tell which are rare. At sites these are also all labels
        that fewer than ``min_cell_count`` rows have; if these are too few together, the
        next larger label joins them.
    handle_unknown : {"error", "use_encoded_value"}, default="error"
        What to do with other labels and missing ones: raise, or use `unknown_value`.
        In front of a private estimator an error would tell that there is such a row.
    unknown_value : float, default=nan
        The number of labels that are none of the categories.
    columns : str, list or callable, default=None
        Which columns to encode: names, positions, or a selector by type such as
        ``make_column_selector``; the others follow them as they are. None means all.
    accountant : PrivacyAccountant, default=None
        Refuses, if it has a limit, that categories, or which of them are rare, are read
        off the data.

    Attributes
    ----------
    categories_ : list of ndarray
        The labels of each column.
    infrequent_categories_ : list of (ndarray or None)
        Those of each column that `min_frequency` makes one.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        Nothing, if categories are public; otherwise not set.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedOneHotEncoder : A column for each label.

    Examples
    --------
    >>> from skprivbn.preprocessing import FederatedOrdinalEncoder
    >>> X = [["low"], ["high"], ["low"]]
    >>> encoder = FederatedOrdinalEncoder(categories=[["low", "high"]])
    >>> encoder.fit(X, party=["a", "b", "c"]).transform(X).ravel()
    array([0., 1., 0.])
    """

    _options = ("handle_unknown", "unknown_value")
    _parameter_constraints = {
        **CategoryEncoder._parameter_constraints,
        "handle_unknown": [StrOptions({"error", "use_encoded_value"})],
        "unknown_value": [Real],
    }

    def __init__(
        self,
        *,
        categories: str | list | dict = "auto",
        min_frequency: int | float | None = None,
        handle_unknown: str = "error",
        unknown_value: float = np.nan,
        columns: Any = None,
        accountant: PrivacyAccountant | None = None,
    ) -> None:
        self.categories = categories
        self.min_frequency = min_frequency
        self.handle_unknown = handle_unknown
        self.unknown_value = unknown_value
        self.columns = columns
        self.accountant = accountant

    def _of_codes(self, codes):
        return np.where(codes < 0, self.unknown_value, codes.astype(np.float64))

    def _public_model(self):
        return super()._public_model() | {"unknown_value": float(self.unknown_value)}

    @staticmethod
    def _kept_labels(model, names, labels):
        """Return the numbers that labels become; unknown ones may only be missing."""
        if model["handle_unknown"] != "error" and not np.isnan(model["unknown_value"]):
            return {}
        columns = np.split(model["rare"], np.cumsum(model["sizes"])[:-1])
        sizes = [np.sum(~rare) + rare.any() for rare in columns]
        return {name: list(range(n)) for name, n in zip(names, sizes)}

    def _inverse(self, X):
        return _labels_of(np.asarray(X, dtype=np.float64), self._levels)


class FederatedOneHotEncoder(CategoryEncoder):
    """Replace each column by indicator columns of its categories over all parties.

    Read more in the :ref:`User Guide <preprocessing>`.

    Parameters
    ----------
    categories : "auto", list of array-like or dict, default="auto"
        The labels of each column, or of some by name, ``{"sex": ["f", "m"]}``: nothing
        is then asked of the parties. By default what dataframes or sites declare, else
        parties tell the labels that they have, at most 256 of a column, and a warning
        says so.
    min_frequency : int or float, default=None
        Labels that fewer rows of all parties have, or a smaller share of them, become
        one, ``"infrequent_sklearn"``, as in scikit-learn. Parties add up how many rows
        have each label, and tell which are rare. At sites these are also all labels
        that fewer than ``min_cell_count`` rows have; if these are too few together, the
        next larger label joins them.
    drop : {"first"} or None, default=None
        "first" makes no column of the first label of each column, to which the others
        are then compared: in front of regressions with an intercept, such as mixed
        models, which could not tell a column for every label from the intercept.
    handle_unknown : {"error", "ignore"}, default="error"
        What to do with other labels and missing ones: raise, or make all columns of
        the feature zero, which with `drop` is what the first label is. In front of a
        private estimator an error would tell that there is such a row.
    columns : str, list or callable, default=None
        Which columns to encode: names, positions, or a selector by type such as
        ``make_column_selector``; the others follow them as they are. None means all.
    accountant : PrivacyAccountant, default=None
        Refuses, if it has a limit, that categories, or which of them are rare, are read
        off the data.

    Attributes
    ----------
    categories_ : list of ndarray
        The labels of each column.
    infrequent_categories_ : list of (ndarray or None)
        Those of each column that `min_frequency` makes one.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        Nothing, if categories are public; otherwise not set.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedOrdinalEncoder : One column of numbers for each column of labels.

    Examples
    --------
    >>> from skprivbn.preprocessing import FederatedOneHotEncoder
    >>> X = [["low"], ["high"], ["low"]]
    >>> encoder = FederatedOneHotEncoder(categories=[["low", "high"]])
    >>> encoder.fit(X, party=["a", "b", "c"]).transform(X)
    array([[1., 0.],
           [0., 1.],
           [1., 0.]])
    >>> encoder = FederatedOneHotEncoder(categories=[["low", "high"]], drop="first")
    >>> encoder.fit(X, party=["a", "b", "c"]).get_feature_names_out()
    array(['x0_high'], dtype=object)
    """

    _options = ("handle_unknown", "drop")
    _parameter_constraints = {
        **CategoryEncoder._parameter_constraints,
        "drop": [StrOptions({"first"}), None],
        "handle_unknown": [StrOptions({"error", "ignore"})],
    }

    def __init__(
        self,
        *,
        categories: str | list | dict = "auto",
        min_frequency: int | float | None = None,
        drop: str | None = None,
        handle_unknown: str = "error",
        columns: Any = None,
        accountant: PrivacyAccountant | None = None,
    ) -> None:
        self.categories = categories
        self.min_frequency = min_frequency
        self.drop = drop
        self.handle_unknown = handle_unknown
        self.columns = columns
        self.accountant = accountant

    def _find_categories(self, partition, names, known):
        found = super()._find_categories(partition, names, known)
        for name, labels in zip(names, found["categories"]):
            if len(labels) > MANY_NUMBERS and isinstance(labels[0], float):
                warn_user(
                    f"column {name!r} holds numbers, and each of its {len(labels)} "
                    "values becomes a column: leave it out, or cut it into bins first "
                    "with FederatedKBinsDiscretizer"
                )
        return found

    @property
    def _n_dropped(self):
        return int(self.drop == "first")

    def _of_codes(self, codes):
        return np.hstack(
            [
                codes[:, [j]] == np.arange(self._n_dropped, len(labels))
                for j, labels in enumerate(self._levels)
            ]
        ).astype(np.float64)

    def _names_out(self, names):
        made = [
            f"{name}_{label}"
            for name, labels in zip(names, self._shown_levels)
            for label in labels[self._n_dropped :]
        ]
        return np.array(made, dtype=object)

    def _columns_behind(self, names):
        """Return the column that each feature is made of: refusals name no label."""
        sizes = [len(labels) - self._n_dropped for labels in self._levels]
        return np.repeat(names, sizes)

    def _inverse(self, X):
        first, levels = self._n_dropped, self._levels
        ends = np.cumsum([len(labels) - first for labels in levels])[:-1]
        parts = np.split(np.asarray(X, dtype=np.float64), ends, axis=1)
        # the label of a row of zeros comes before all others
        zeros = [~p.any(axis=1, keepdims=True) for p in parts]
        codes = [np.hstack(z).argmax(axis=1) - 1 + first for z in zip(zeros, parts)]
        return _labels_of(np.column_stack(codes), levels)


def _labels_of(codes, categories):
    found = np.full(codes.shape, None, dtype=object)
    for j, labels in enumerate(categories):
        known = np.isin(codes[:, j], np.arange(len(labels)))
        found[known, j] = labels[codes[known, j].astype(np.intp)]
    return found
