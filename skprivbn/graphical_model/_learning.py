"""From released tables to a fitted field: post-processing, which sees no row."""

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._estimation import (
    collective_em,
    empirical_bayes,
    naive_mle,
)
from skprivbn.graphical_model._random_field import MarkovRandomField
from skprivbn.graphical_model._tables import NoisyTables, resolve_cliques, resolve_ties
from skprivbn.privacy._noise_report import noisy_number
from skprivbn.utils import warn_user

#: penalty that keeps the maximum likelihood of exact tables finite
_EXACT_PENALTY = 1e-9
#: a distance between learnt and released marginals that is worth a warning
_FAR = 0.02


def estimate_potentials(tables, learner, progress):
    """Estimate potentials from tables by the method of a learner.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    learner : DPCGMLearner
        Says how: `method` and `method_params`.
    progress : Progress
        Told of every step.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    n_iter : int
        Iterations of "cgm" or "naive".
    """
    n_iter, converged, settings = 0, True, learner._settings
    exact = tables.kind == "none" or not tables.std.any()
    if exact or learner.method == "naive":
        penalty = _EXACT_PENALTY if exact else settings.regularization
        theta, n_iter, converged = naive_mle(
            tables, penalty, settings.max_iter, progress, settings.projection
        )
    elif learner.method == "cgm":
        e_step = "nlbp" if settings.inference == "nlbp" else "dual"
        theta, n_iter, converged = collective_em(
            tables, e_step, progress=progress, **settings.of_method
        )
    else:
        theta = empirical_bayes(tables, progress=progress)
    if not converged:
        warn_user(
            f"method={learner.method!r} has not converged after {n_iter} iterations; "
            "raise max_iter",
            ConvergenceWarning,
        )
    return theta, n_iter


def make_field(layout, theta, nodes, states):
    """Return the MarkovRandomField with these potentials.

    Parameters
    ----------
    layout : TableLayout
    theta : ndarray of shape (n_parameters,)
    nodes : sequence of str
    states : dict of str to tuple

    Returns
    -------
    field : MarkovRandomField
    """
    if layout.support is not None:
        theta = np.where(layout.support, theta, -np.inf)
    tables = layout.split(theta)
    potentials = {
        tuple(nodes[i] for i in clique): tables[number]
        for clique, number in zip(layout.cliques, layout.ties)
    }
    exact = isinstance(layout.inference, EliminationPlan)
    return MarkovRandomField(nodes, states, potentials, "exact" if exact else "loopy")


def describe(tables, field, n_records):
    """Return released marginals, their standard errors, and the error to expect.

    Total variation to expect between the field's marginals and the rows' tables is half
    the mean absolute noise of each cell; but a cell in which noise drowns what is there
    is estimated close to zero, and so wrong by no more than that.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    field : MarkovRandomField
        Fitted to it.
    n_records : float
        Number of records.

    Returns
    -------
    released, std : dict of tuple of str to ndarray
        Marginals as released, and their standard errors.
    errors : dict of tuple of str to float
        Total variation to expect.
    """
    layout, (released, std, errors) = tables.layout, ({}, {}, {})
    values, ratio = layout.split(tables.values), tables.absolute_noise_ratio
    for (clique, fitted), table in zip(field.marginals().items(), layout.ties):
        total = layout.multiplicity[table] * n_records
        p, noise = np.clip(fitted, 0, 1), tables.std[table] / total
        released[clique] = values[table] / total
        std[clique] = np.sqrt(p * (1 - p) / n_records + noise**2)
        errors[clique] = float(np.minimum(ratio * noise, fitted).sum() / 2)
    return released, std, errors


def noise_on_tables(tables, nodes):
    """Return the noise on released tables, and words about states that hardly occur.

    Parameters
    ----------
    tables : NoisyTables
    nodes : sequence of str

    Returns
    -------
    numbers : list of NoisyNumber
    warnings : list of str
    """
    layout, n_records = tables.layout, tables.n_records()
    numbers = [noisy_number("number of records", n_records, tables.n_records_std)]
    firsts = np.unique(layout.ties, return_index=True)[1]
    for i, std, n_cells in zip(firsts, tables.std, layout.n_cells):
        columns = ", ".join(repr(nodes[v]) for v in layout.cliques[i])
        mean_count = n_records * layout.multiplicity[layout.ties[i]] / n_cells
        numbers.append(noisy_number(f"mean cell of {columns}", mean_count, std))
    return numbers, _rare_states(tables, [layout.cliques[i] for i in firsts], nodes)


def _rare_states(tables, cliques, nodes):
    """Return words about columns whose values are hardly ever declared states."""
    totals, reach = tables.totals, 3 * np.sqrt(tables.totals_variance)
    most = float(totals.max())
    check = "check the spelling of states, and bins"
    if tables.n_records() <= 3 * tables.n_records_std and np.all(totals <= reach):
        return [
            f"about {max(most, 0):,.0f} rows have declared states in all columns of a "
            f"table, which is within the noise: {check}, or take more rows"
        ]
    rare = totals + reach < most / 2
    spelt = {v for clique, few in zip(cliques, rare) if not few for v in clique}
    for v in {v for clique in cliques for v in clique} - spelt:
        total = max(t for t, clique in zip(totals, cliques) if v in clique)
        return [
            f"about {max(total, 0):,.0f} of {most:,.0f} rows have declared states in "
            f"column {nodes[v]!r}: {check}"
        ]
    return []


def warn_of_misfit(field, released, std):
    """Warn if a loopy field is further from its tables than noise explains."""
    if field.inference == "exact":
        return
    fitted = field.marginals()
    miss = max(
        (np.abs(fitted[c] - released[c]) - 6 * std[c]).max() for c in field.cliques
    )
    if miss > _FAR:
        warn_user(
            f"the learnt marginals miss the tables by {miss:.2g} more than noise "
            "explains: learning with loopy belief propagation failed; use fewer or "
            "smaller cliques, or raise max_cells for exact inference",
            ConvergenceWarning,
        )


def read_tables(noisy_tables, std, noise, nodes, make_layout, learner):
    """Check tables that were released before.

    Parameters
    ----------
    noisy_tables : mapping of clique to array-like
        Noisy counts, in records.
    std : float or sequence of float
        Standard deviation of the noise, one for all or one per table.
    noise : {"laplace", "gaussian"}
        Its distribution.
    nodes : sequence of str
        Names of the columns.
    make_layout : callable
        From cliques and ties to a TableLayout.
    learner : DPCGMLearner
        Says which cliques are tied, if it has a stationary field.

    Returns
    -------
    tables : NoisyTables
    """
    measured = resolve_cliques(list(noisy_tables), nodes)
    scopes, ties = measured, np.arange(len(measured))
    if learner._settings.stationary:
        scopes, ties = resolve_ties(resolve_cliques(learner.cliques, nodes), True)
        firsts = [scopes[i] for i in np.unique(ties, return_index=True)[1]]
        if measured != firsts:
            raise ValueError(
                "with stationary=True there must be one table for each of "
                f"{[tuple(nodes[i] for i in first) for first in firsts]}, in this "
                "order: the sum over all cliques tied to it"
            )
    layout = make_layout(scopes, ties)
    values = [np.asarray(table, dtype=float) for table in noisy_tables.values()]
    for clique, table, shape in zip(noisy_tables, values, layout.shapes):
        if table.shape != shape or not np.all(np.isfinite(table)):
            raise ValueError(
                f"the table of clique {clique!r} must be finite, of shape {shape}"
            )
    std = np.broadcast_to(np.asarray(std, dtype=float), len(values)).copy()
    if not np.all(std >= 0):
        raise ValueError("std must not be negative")
    return NoisyTables(layout, layout.flatten(values), std, noise)
