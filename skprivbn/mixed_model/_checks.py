"""Checks of what users pass, and what they are warned of."""

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from skprivbn.mixed_model._design import INTERCEPT
from skprivbn.mixed_model._survey import cluster_keys
from skprivbn.partition._base import check_labels
from skprivbn.utils import warn_leak


def check_classes(estimator, y):
    """Return `y` as labels of two classes, or say what is wrong."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None"
        )
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind != "binary":
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{kind}."
        )
    return y


def check_numbers(estimator, y, family, sample_weight):
    """Return `y` as numbers that the family allows, or say what is wrong."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None"
        )
    y = column_or_1d(y, warn=True)
    try:
        y = np.asarray(y, dtype=float)
    except ValueError:
        raise ValueError(f"y must be numbers for family={family!r}") from None
    if not np.all(np.isfinite(y)):
        raise ValueError("Input y contains NaN or infinity")
    if family == "poisson" and (np.any(y < 0) or np.any(y != np.rint(y))):
        raise ValueError("y must be counts (0, 1, 2, ...) for family='poisson'")
    if family == "binomial":
        trials = 1.0 if sample_weight is None else np.asarray(sample_weight)
        events = y * trials
        if np.any((y < 0) | (y > 1)) or np.any(np.abs(events - np.rint(events)) > 1e-6):
            raise ValueError(
                "y must be proportions of trials for family='binomial', and "
                "sample_weight the numbers of trials"
            )
    return y


def check_weights(sample_weight):
    """Refuse weights that are negative or all zero; names of columns are let pass."""
    if sample_weight is None or isinstance(sample_weight, str):
        return
    weights = np.asarray(sample_weight, dtype=float)
    if not np.all(weights >= 0) or not np.any(weights > 0):
        raise ValueError("sample_weight must not be negative, and not all of it zero")


def split_clusters(cluster):
    """Return the values of each factor under its key, and the factors' names.

    Parameters
    ----------
    cluster : array-like of shape (n_samples,) or (n_samples, n_factors), str, \
            list of str or None

    Returns
    -------
    aligned : dict of str to array-like
    names : list of str or None
        Of the columns of a frame.
    """
    if cluster is None or isinstance(cluster, str):
        return {"cluster": cluster}, None
    if hasattr(cluster, "columns"):
        names = [str(name) for name in cluster.columns]
        columns = [np.asarray(cluster[name]) for name in cluster.columns]
    else:
        values = cluster if hasattr(cluster, "shape") else np.asarray(cluster)
        if values.ndim != 2 or values.shape[1] == 1:
            return {"cluster": cluster}, None
        names, columns = None, list(np.asarray(values).T)
    return dict(zip(cluster_keys(len(columns)), columns)), names


def name_columns(cluster):
    """Return names of columns of remote rows under the keys of their factors.

    Parameters
    ----------
    cluster : str, list of str or None

    Returns
    -------
    aligned : dict of str to str
    """
    names = cluster if isinstance(cluster, list) else [cluster]
    return dict(zip(cluster_keys(len(names)), names))


def check_clusters(aligned, known):
    """Refuse labels with gaps, and those that are not `known` unless that is None."""
    for cluster in aligned.values():
        check_labels("cluster", cluster)
        labels = np.ravel(cluster).tolist()
        if known is not None:
            unknown = sorted(set(labels) - set(np.asarray(known).tolist()), key=str)
            if unknown:
                raise ValueError(
                    f"cluster has labels that clusters lacks: {unknown[:5]}"
                )


def random_terms(slopes, random_intercept, correlated, n_factors, factors, columns):
    """Return which columns have random effects of which factor.

    Parameters
    ----------
    slopes : list, dict of str to list, or None
        Names or numbers of columns; by factor if there are several.
    random_intercept, correlated : bool
    n_factors : int
    factors : list of str
        Names of the factors.
    columns : list of str
        Names of the features.

    Returns
    -------
    terms : list of (int, list of int)
    """
    if not isinstance(slopes, dict):
        if slopes is not None and len(slopes) and n_factors > 1:
            raise ValueError(
                "slopes must say which factor they vary with, as in "
                f"slopes={{{factors[0]!r}: {list(slopes)!r}}}"
            )
        slopes = {factors[0]: slopes or []} if n_factors else {}
    unknown = set(slopes) - set(factors)
    if unknown:
        raise ValueError(
            f"slopes names factors {sorted(unknown)}, cluster has {factors}"
        )
    terms = []
    for number, factor in enumerate(factors):
        members = [_position(name, columns) for name in slopes.get(factor, [])]
        if random_intercept or not members:
            members = [INTERCEPT, *members]
        if correlated:
            terms.append((number, members))
        else:
            terms.extend((number, [member]) for member in members)
    return terms


def _position(name, columns):
    if isinstance(name, str) and name in columns:
        return columns.index(name)
    if not isinstance(name, str) and 0 <= name < len(columns):
        return int(name)
    raise ValueError(f"slopes names {name!r}, which is no column of X: {columns[:10]}")


def check_same_kind(labels, known):
    """Refuse labels that differ from those of the fit by their type only.

    They would be taken for new ones, and be predicted without an effect.
    """
    as_text = {str(label): label for label in known}
    for label in set(labels) - set(known):
        if str(label) in as_text:
            raise ValueError(
                f"cluster has the label {label!r}, the fit had "
                f"{as_text[str(label)]!r}: give both as text or as numbers"
            )


def some(labels, mask, most=5):
    """Return a few of the labels, for a message."""
    chosen = [label for label, is_in in zip(labels, mask) if is_in]
    text = ", ".join(map(repr, chosen[:most]))
    return f"[{text}, ... {len(chosen)} in all]" if len(chosen) > most else f"[{text}]"


def warn_of_holders(census, ledger, release_effects):
    """Say which clusters' sums are one party's, or can be told apart by two."""
    names, holders = census.names(0), census.n_holders[0]
    alone, two = holders == 1, holders == 2
    if np.any(alone) and release_effects == "all":
        message = (
            f"clusters {some(names, alone)} are held by one party each: "
            "their random effects tell about that party's rows alone; "
            "release_effects='shared' withholds them"
        )
        ledger.note(message)
        warn_leak(message)
    if np.any(two) and len(ledger.parties) > 2:
        message = (
            f"clusters {some(names, two)} are held by two parties: each "
            "learns the other's sums by subtracting its own; min_parties=3 refuses "
            "such clusters"
        )
        ledger.note(message, "assumption")
        warn_leak(message)
