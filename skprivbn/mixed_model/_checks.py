"""Checks of what users pass and of what the survey finds; what they are warned of."""

from itertools import combinations
from numbers import Integral

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skprivbn.exceptions import PartitionError
from skprivbn.mixed_model._clusters import OTHER, merged_label
from skprivbn.mixed_model._terms import INTERCEPT
from skprivbn.partition import HorizontalPartition, RemoteRows
from skprivbn.partition._base import check_labels
from skprivbn.partition._horizontal import one_per_row
from skprivbn.utils import warn_leak, warn_user
from skprivbn.utils._validation import declared_labels, keep_types, read_labels

#: what the target of a family is
TARGETS = {"gaussian": "numbers", "poisson": "counts", "binomial": "proportions"}
_NEEDED = {
    "counts": "counts (0, 1, 2, ...) for family='poisson'",
    "proportions": "proportions of trials for family='binomial', and sample_weight the "
    "numbers of trials",
}


def cluster_keys(n_factors):
    """Return under which names a party keeps the labels of each factor."""
    return ["cluster", *(f"cluster_{i}" for i in range(1, n_factors))][:n_factors]


def require_y(estimator, y):
    """Refuse to go on without a target."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")


def declared_classes(X, y):
    """Return the labels that a column of outcomes declares, in their order, or None.

    Parameters
    ----------
    X, y :
        As given to ``fit``.
    """
    if isinstance(y, str) and isinstance(X, RemoteRows):
        kind = X.schema.get(y)
        return list(kind) if isinstance(kind, list) else None
    if isinstance(y, str) and isinstance(X, HorizontalPartition):
        return X.declared(y)
    return declared_labels(getattr(y, "dtype", None))


def require_columns(estimator, partition, factors):
    """Refuse rows with neither features nor clusters, as scikit-learn does."""
    if partition.n_features == 0 and not factors:
        n_rows = sum(partition.n_rows().values())
        raise ValueError(
            f"Found array with 0 feature(s) (shape=({n_rows}, 0)) while a minimum of 1 "
            f"is required by {type(estimator).__name__} unless cluster is given"
        )


def check_target(y, target, trials=None):
    """Return `y` as classes or numbers, or say what is wrong.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
    target : {"classes", "numbers", "counts", "proportions"}
    trials : ndarray of shape (n_rows,), default=None
        What `y` are proportions of; 1 if None.

    Returns
    -------
    y : ndarray of shape (n_rows,)
    """
    if target == "classes":
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{kind}."
            )
        return y
    y = finite_per_row("y", y, len(y))
    if target == "numbers":
        return y
    events = y * (1.0 if trials is None else trials) if target == "proportions" else y
    whole = np.all(np.abs(events - np.rint(events)) <= 1e-6)
    if not whole or np.any(y < 0) or (target == "proportions" and np.any(y > 1)):
        raise ValueError(f"y must be {_NEEDED[target]}")
    return y


def finite_per_row(name, values, n_rows):
    """Return numbers that go with the rows, if any, or say what is wrong."""
    if values is None:
        return None
    values = one_per_row(name, values, n_rows)
    if values.dtype.kind == "O":
        values = np.array(values.tolist())
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, one per row")
    values = values.astype(float)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name} has NaN or infinity: give every row a finite number")
    return values


def check_weights(sample_weight, n_rows):
    """Return weights, if any; refuse those that are negative, or all zero."""
    weights = finite_per_row("sample_weight", sample_weight, n_rows)
    if weights is not None and (np.any(weights < 0) or not np.any(weights > 0)):
        raise ValueError("sample_weight must not be negative, and not all of it zero")
    return weights


def split_clusters(cluster):
    """Return the values of each factor under its key, and the factors' names.

    Parameters
    ----------
    cluster : array-like of shape (n_samples,) or (n_samples, n_factors), or None

    Returns
    -------
    aligned : dict of str to array-like
    names : list of str or None
        Of the columns of a frame.
    """
    if cluster is None:
        return {"cluster": None}, None
    if hasattr(cluster, "columns"):
        names = [str(name) for name in cluster.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"cluster has two columns of one name: {names}")
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
                    f"fit(cluster=...) has labels that clusters= does not list: "
                    f"{unknown[:5]}"
                )


def declared_clusters(cluster, known):
    """Return labels with one for all that are not `known`, missing ones among them.

    Parameters
    ----------
    cluster : array-like of shape (n_samples,)
    known : array-like or None
        Public labels; None leaves all as they are, to be refused.

    Returns
    -------
    cluster : array-like of shape (n_samples,)
    """
    if known is None:
        return cluster
    labels = np.asarray(known)
    other = OTHER if labels.dtype.kind == "U" else labels.max(initial=0) + 1
    column = np.ravel(cluster if hasattr(cluster, "shape") else keep_types(cluster))
    codes = read_labels(column, labels.tolist(), "cluster", strict=False)
    return np.append(labels, other)[codes]


def random_terms(slopes, factors, columns, effects):
    """Return which columns have random effects of which factor.

    Parameters
    ----------
    slopes : list, dict or None
    factors, columns : list of str
        Names of the columns of cluster labels, and of X.
    effects : dict
        With `random_intercept` and `correlated`.

    Returns
    -------
    terms : list of (int, list of int)
    """
    if not isinstance(slopes, dict):
        slopes = [slopes] if isinstance(slopes, str) else slopes
        if slopes is None or not len(slopes):
            slopes = {}
        elif len(factors) == 1:
            slopes = {factors[0]: slopes}
        else:
            known = factors[0] if factors else "cluster"
            raise ValueError(
                "slopes must say which column of cluster they vary with, as in "
                f"slopes={{{known!r}: {list(slopes)!r}}}, and cluster be given"
            )
    unknown = set(slopes) - set(factors)
    if unknown:
        raise ValueError(
            f"slopes= names the columns {sorted(unknown)} of cluster labels, and "
            f"cluster= has {factors}"
        )
    terms = []
    for number, factor in enumerate(factors):
        members = [_position(name, columns) for name in slopes.get(factor, [])]
        if len(set(members)) < len(members):
            raise ValueError(f"slopes names a column twice: {list(slopes[factor])}")
        if effects["random_intercept"] or not members:
            members = [INTERCEPT, *members]
        if effects["correlated"]:
            terms.append((number, members))
        else:
            terms.extend((number, [member]) for member in members)
    return terms


def _position(name, columns):
    if isinstance(name, str) and name in columns:
        return columns.index(name)
    is_number = isinstance(name, Integral) and not isinstance(name, bool)
    if is_number and 0 <= name < len(columns):
        return int(name)
    raise ValueError(f"slopes names {name!r}, which is no column of X: {columns[:10]}")


def check_same_kind(name, labels, known):
    """Refuse labels that differ from those of the fit by their type only.

    They would be taken for new ones: clusters without an effect, classes missed.
    """
    as_text = {str(label): label for label in known}
    for label in set(labels) - set(known):
        if str(label) in as_text:
            raise ValueError(
                f"{name} has the label {label!r}, the fit had "
                f"{as_text[str(label)]!r}: give both as text or as numbers"
            )


def some(labels, mask, most=5):
    """Return a few of the labels, for a message."""
    chosen = [label for label, is_in in zip(labels, mask) if is_in]
    text = ", ".join(map(repr, chosen[:most]))
    return f"[{text}, ... {len(chosen)} in all]" if len(chosen) > most else f"[{text}]"


def check_survey(survey, n_parties, factors=None, features=None):
    """Refuse data that no model can be fitted to, or whose clusters are too small.

    Parties end a fit where this raises, without a word; the researcher gets the survey
    and finds the same.

    Parameters
    ----------
    survey : Survey
        Of labels only, or of sums, too.
    n_parties : int
    factors, features : list of str, default=None
        Names of the columns of cluster labels, and of X.
    """
    terms, census = survey.terms, survey.census
    _check_kinds("y", [(label,) for label in survey.classes])
    for labels in census.labels:
        paths = [label if isinstance(label, tuple) else (label,) for label in labels]
        # the label of pooled clusters is text also among numbers
        _check_kinds("cluster", [path for path in paths if OTHER not in path])
    n_classes = len(survey.classes)
    if terms.target == "classes" and n_classes != 2:
        raise ValueError(
            f"y has {n_classes} class{'es' if n_classes != 1 else ''}, "
            f"{survey.classes[:5]}: two are needed"
        )
    if not len(survey.varies):
        return
    if terms.target == "numbers":
        _check_target_varies(survey)
    if terms.mixed and n_parties > 1:
        _check_sizes(survey)
    if terms.mixed:
        factors = factors or [f"column {i}" for i in range(terms.n_factors)]
        features = features or [f"x{i}" for i in range(survey.n_features)]
        _check_determined(survey, factors, features)


def _check_kinds(name, labels):
    """Refuse labels that have no common order, as text and numbers have none."""
    try:
        sorted(labels)
    except TypeError:
        labels = [part for path in labels for part in path]
        kinds = sorted({type(label).__name__ for label in labels})
        raise PartitionError(
            f"parties use different kinds of labels in {name}: {kinds}"
        ) from None


def _check_target_varies(survey):
    if survey.n_samples < 2:
        raise ValueError("n_samples=1: a linear model needs more rows")
    if not survey.varies[-1] and (survey.terms.fit_intercept or survey.is_zero[-1]):
        raise ValueError("y is the same in all rows (less offset): nothing to explain")


def _check_sizes(survey):
    """Refuse clusters of which sums would tell what single rows are."""
    census, limits = survey.census, survey.terms.limits
    min_parties, min_rows = limits[:2]
    for factor, mask in enumerate(census.too_small(*limits)):
        if not np.any(mask):
            continue
        names, holders = census.names(factor), census.n_holders[factor]
        few_holders = np.any(mask & (holders > 1) & (holders < min_parties))
        lacks = [f"min_parties={min_parties} holders"] if few_holders else []
        if np.any(census.n_rows[factor][mask] < min_rows):
            lacks.append(f"min_rows={min_rows} rows")
        are_pooled = np.array([str(name).endswith(OTHER) for name in names])
        advice = "small_clusters='pool' gives them one random effect together"
        if np.any(mask & are_pooled) or few_holders and max(holders) < min_parties:
            advice = (
                "pooling does not help, as no cluster has enough of both to join "
                "them: merge clusters, leave these out, or let one holder have all "
                "rows of each"
            )
        pooled = survey.pooled[factor] if any(survey.pooled) else []
        which = f" (pooled: {some(pooled, [True] * len(pooled))})" if pooled else ""
        raise ValueError(
            f"clusters {some(names, mask)}{which} have fewer than "
            f"{' or '.join(lacks)}: sums over so few would tell what the rows are; "
            f"{advice}, or lower the limits knowingly (also those of site files)"
        )


def _check_determined(survey, factors, features):
    """Refuse random effects that no rows can tell, as lme4 does."""
    terms = survey.terms
    for number, factor in enumerate(factors):
        rows = survey.census.n_rows[number]
        named = _named(factor, factors)
        if np.count_nonzero(rows) < 2:
            raise ValueError(
                f"{named} has the same label in all rows, after pooling if that was "
                "asked for: a variance of random effects needs several; leave it out"
            )
        if rows.max() == 1 and terms.target == "numbers":
            raise ValueError(_LIKE_ROWS.format(named))
        columns = terms.random.columns[terms.random.factors == number]
        still = [c for c in columns if c != INTERCEPT and not survey.varies[c]]
        if still and INTERCEPT in columns:
            raise ValueError(
                f"slopes names {features[still[0]]!r}, which does not vary: its random "
                "effects are those of the intercept; leave it out"
            )


_LIKE_ROWS = (
    "{} has another label in every row: their effects cannot be distinguished "
    "from the residuals; is it the right column?"
)


def _named(factor, factors):
    return f"cluster ({factor})" if len(factors) > 1 else "cluster"


def warn_of_survey(survey, factors, ledger):
    """Warn of clusters of single rows; say what sums tell of the others."""
    terms, census = survey.terms, survey.census
    if len(ledger.parties) > 1:
        if terms.pool:
            _note_pooled(survey, ledger)
        note_what_opens(census, terms, ledger)
    for factor, rows in zip(factors, census.n_rows):
        if terms.target == "classes" and rows.max() == 1:
            warn_user(_LIKE_ROWS.format(_named(factor, factors)))


#: what may be wrong with estimates, in the order in which it is looked for
PROBLEMS = {
    "collinear": "features are collinear: the rows do not determine all coefficients, "
    "which have no standard errors; leave some of the features out, such as one of "
    "each set of columns of zeros and ones, FederatedOneHotEncoder(drop='first')",
    "flat": "the log-likelihood is flat where the search started, which found no way: "
    "predictors are far from zero; look at the units of offset, or set "
    "fit_intercept=True",
    "few": "the search stopped where the fit began to hang on fewer rows than the "
    "min_rows of a site, of all or of a cluster: features separate the classes, or "
    "nearly so, or offset is in too small a unit; coefficients have no standard "
    "errors; leave out or merge the features that tell the classes apart, look at the "
    "units of offset",
    "separated": "features separate the classes: some coefficients grow without limit "
    "and have no standard errors; leave out or merge the features that tell the "
    "classes apart without error",
    "no_events": "y has no events, or nothing but events, in all rows or where a "
    "feature says so: some coefficients grow without limit and have no standard "
    "errors; leave out or merge such features",
    "wide": "random effects became as wide as they may be: their scale is held at "
    "{terms.widest:g}, coefficients are those that go with it and have no standard "
    "errors; {more_nodes}, which may be wider, unless features nearly separate the "
    "classes within clusters: the log-likelihood then rises for ever as effects and "
    "coefficients grow together; leave out or merge such features",
    "no_maximum": "the log-likelihood has no maximum where the search stopped",
    "ended": "the search ended after {n_iter} steps, where it found no better point: "
    "the log-likelihood is nearly flat, as where features nearly separate the classes, "
    "or quadrature errs by as much as it rises; coefficients are rough: {more_nodes}, "
    "or leave such features out",
    "not_converged": "the search did not converge: increase max_iter, or "
    "tol={terms.tol}",
}
# Error of the log-likelihood that is worth a warning, and nodes that have less of it.
_TOO_MUCH, _MANY_NODES = 0.01, 75


def warn_of_estimates(estimates, survey, features):
    """Warn of what keeps estimates from being what was asked for.

    Parameters
    ----------
    estimates : Estimates
    survey : Survey
    features : list of str
    """
    terms, error = survey.terms, estimates.log_likelihood[1]
    if np.any(survey.constant):
        warn_user(
            f"features {some(features, survey.constant)} do not vary: their "
            "coefficients are set to 0"
        )
    if survey.wide_offset:
        warn_user(
            "offset= has a standard deviation above 3, which means exposures that "
            "differ by factors of 20 and more: give the logarithm of the exposure, "
            "np.log(months), not the exposure itself"
        )
    more_nodes = f"try quadrature_params={{'n_nodes': {_MANY_NODES}}}"
    few_nodes = estimates.problem == "wide" and 1 < terms.n_quadrature < _MANY_NODES
    if error > _TOO_MUCH or few_nodes:
        warn_user(
            f"the log-likelihood may be off by {error:.1g}, as effects are wide and "
            f"clusters have few rows: {terms.n_quadrature} nodes are too few, "
            f"{more_nodes}"
        )
    if estimates.problem:
        problem = PROBLEMS[estimates.problem].format(
            terms=terms, n_iter=estimates.n_iter, more_nodes=more_nodes
        )
        warn_user(problem, ConvergenceWarning)


def warn_of_same_clusters(fitted, census):
    """Warn of factors that group the rows alike, whose variances are not told apart.

    Counts of pairs of clusters may be encrypted. But effects are their covariance times
    slopes of the log-likelihood, which are the same for the same clusters.

    Parameters
    ----------
    fitted : estimator
        Not singular.
    census : Census
    """
    slopes = {}
    for factor, names in fitted.effect_names_.items():
        effects = fitted._of_factor(factor)[1].T
        solved = np.linalg.solve(fitted.random_effect_covariance_[factor], effects)
        slopes[factor] = dict(zip(names, np.sort(solved)))
    for (i, a), (j, b) in combinations(enumerate(slopes), 2):
        if sorted(census.n_rows[i]) != sorted(census.n_rows[j]):
            continue
        for name in slopes[a].keys() & slopes[b].keys():
            atol = 1e-3 * np.abs(slopes[a][name]).max()
            if np.allclose(slopes[a][name], slopes[b][name], rtol=0, atol=atol):
                warn_user(
                    f"{a!r} and {b!r} have the same groups of rows: only the sum of "
                    f"their variances of {name} is identifiable; leave one out"
                )
                return


def _note_pooled(survey, ledger):
    """Say which clusters are one: at sites that did not name them, or of all."""
    census = survey.census
    names = [str(name) for i in range(census.n_factors) for name in census.names(i)]
    names = " ".join([*names, *(name for pooled in survey.pooled for name in pooled)])
    merged = [party for party in ledger.parties if merged_label(party) in names]
    if merged:
        ledger.note(
            f"{', '.join(merged)} did not name clusters of which they have few rows: "
            f"these are one at each, such as {merged_label(merged[0])!r}, and share "
            "one random effect"
        )
    for pooled in filter(None, survey.pooled):
        ledger.note(
            f"small clusters {some(pooled, [True] * len(pooled))} are pooled into "
            "one: their rows share one random effect"
        )


def note_what_opens(census, terms, ledger):
    """Say what sums tell of clusters, and which of these are one party's or two's."""

    def warn(message, topic="also"):
        ledger.note(message, topic)
        warn_leak(message)

    told = (
        "log-likelihoods of a cluster at many trial effects can determine the "
        "predictors of its rows if these are few: see min_rows"
    )
    if terms.target == "numbers":
        told = (
            "sums of the features and the target are known of every cluster that "
            "several parties hold: more than in other families, where these are "
            "weighted by the model"
        )
    ledger.note(told)
    if terms.crossed:
        warn(
            "crossed effects open the number of rows of every pair of clusters, "
            "and sums of each cluster also where one party holds it alone"
        )
    names, holders = census.names(0), census.n_holders[0]
    alone, two = holders == 1, holders == 2
    if np.any(alone) and terms.release_effects == "all":
        warn(
            f"clusters {some(names, alone)} are held by one party each: "
            "their random effects tell about that party's rows alone; "
            "release_effects='shared' withholds them"
        )
    if np.any(two) and len(ledger.parties) > 2:
        warn(
            f"clusters {some(names, two)} are held by two parties: each "
            "learns the other's sums by subtracting its own; min_parties=3 refuses "
            "such clusters",
            "assumption",
        )
