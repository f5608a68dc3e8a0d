"""What the two K2 learners share: checks of their input, and the fitted network."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skprivbn.structure._k2_scores import CRITERIA
from skprivbn.utils._sklearn import Interval, StrOptions

__all__ = [
    "SEARCH_CONSTRAINTS",
    "DiscreteNetworkMixin",
    "check_codes",
    "check_declared_states",
    "check_ordering",
    "check_states",
    "check_table_sizes",
]

MAX_CELLS = 1 << 16

SEARCH_CONSTRAINTS = {
    "max_parents": [Interval(Integral, 0, None, closed="left")],
    "ordering": ["array-like", None],
    "criterion": [StrOptions(set(CRITERIA))],
    "equivalent_sample_size": [Interval(Real, 0, None, closed="neither")],
    "n_states": ["array-like", None],
}


def check_codes(X):
    """Return a table as codes 0, 1, ..., or say why it cannot be one."""
    X = np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(float)
        except ValueError:
            raise ValueError(
                "X must hold codes 0, 1, 2, ...; encode labels first, for instance "
                "with OrdinalEncoder"
            ) from None
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"X must hold codes 0, 1, 2, ..., got dtype {X.dtype}; encode labels "
            "first, for instance with OrdinalEncoder"
        )
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        raise ValueError("X must be complete: it contains NaN or infinity")
    codes = X.astype(np.int64)
    if (codes != X).any():
        raise ValueError(
            "X must hold codes 0, 1, 2, ..., but has non-integer values; discretise "
            "continuous columns first"
        )
    if codes.size and codes.min() < 0:
        raise ValueError("Negative values in data: X must hold codes 0, 1, 2, ...")
    return codes


def check_states(codes, n_states, names):
    """Return the number of states of every column: declared, or read off the data."""
    if n_states is None:
        return [int(largest) + 1 for largest in codes.max(axis=0)]
    for name, column, declared in zip(names, codes.T, n_states):
        if column.max() >= declared:
            raise ValueError(
                f"column {name!r} has a code of {column.max()}, but n_states declares "
                f"{declared} states"
            )
    return list(n_states)


def check_declared_states(n_states, n_features):
    """Return a declared ``n_states`` as a list of ints, or None."""
    if n_states is None:
        return None
    declared = np.asarray(n_states)
    if (
        declared.shape != (n_features,)
        or declared.dtype.kind not in "iu"
        or declared.min() < 1
    ):
        raise ValueError(
            f"n_states must give a positive number of states for each of the "
            f"{n_features} columns, got {n_states!r}"
        )
    return declared.tolist()


def check_ordering(ordering, names):
    """Return an ordering of names or positions as a list of positions."""
    if ordering is None:
        return list(range(len(names)))
    given = list(ordering)
    unknown = [v for v in given if isinstance(v, str) and v not in names]
    if unknown:
        raise ValueError(f"ordering names {unknown}, which are no columns of X")
    positions = [names.index(v) if isinstance(v, str) else v for v in given]
    if sorted(positions, key=str) != sorted(range(len(names)), key=str):
        raise ValueError(
            f"ordering must list each of the {len(names)} columns once, by name or "
            f"position, got {given}"
        )
    return [int(v) for v in positions]


def check_table_sizes(n_states, ordering, max_parents):
    """Raise if some family could have more cells than is sensible to count."""
    for position, node in enumerate(ordering):
        before = sorted((n_states[v] for v in ordering[:position]), reverse=True)
        n_cells = n_states[node]
        for size in before[:max_parents]:
            n_cells *= size
        if n_cells > MAX_CELLS:
            raise ValueError(
                f"max_parents={max_parents} is too large: a table could have "
                f"{n_cells} cells, more than {MAX_CELLS}; lower max_parents or merge "
                "states"
            )


def _has_parameters(estimator):
    return getattr(estimator, "fit_parameters", True)


class DiscreteNetworkMixin:
    """Likelihood, completion and sampling through the fitted `network_`."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        tags.target_tags.required = False
        return tags

    def _set_structure(self, names, parents, ordering):
        """Set the fitted attributes that say who depends on whom."""
        self.ordering_ = [names[v] for v in ordering]
        self.parents_ = {
            name: [names[u] for u in parents[v]] for v, name in enumerate(names)
        }
        self.adjacency_matrix_ = np.zeros((len(names), len(names)), dtype=bool)
        for v, found in parents.items():
            self.adjacency_matrix_[found, v] = True

    def _table(self, X):
        check_is_fitted(self)
        return validate_data(
            self, X, reset=False, dtype=None, ensure_all_finite="allow-nan"
        )

    @available_if(_has_parameters)
    def score_samples(self, X):
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Codes; NaN or None where missing, which is summed out.

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples,)
        """
        X = self._table(X)
        return self.network_.log_likelihood(X)

    @available_if(_has_parameters)
    def score(self, X, y=None, sample_weight=None):
        """Return the mean log-likelihood per row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Codes; NaN or None where missing.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))

    @available_if(_has_parameters)
    def predict(self, X):
        """Return X with every missing entry replaced by its most probable value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Codes; NaN or None where missing.

        Returns
        -------
        X_completed : ndarray of shape (n_samples, n_features)
        """
        X = self._table(X)
        return self.network_.predict(X)

    @available_if(_has_parameters)
    def predict_proba(self, X):
        """Return the distribution of every entry, given the observed ones of its row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Codes; NaN or None where missing.

        Returns
        -------
        probabilities : list of ndarray of shape (n_samples, n_states)
            One array per column. An entry that is observed is certain.
        """
        X = self._table(X)
        return self.network_.predict_proba(X)

    @available_if(_has_parameters)
    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the fitted network.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Makes the rows reproducible.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        return self.network_.sample(n_samples, random_state=random_state)
