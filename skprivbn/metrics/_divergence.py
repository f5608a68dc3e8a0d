"""How far a learnt distribution is from the true one."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import rel_entr

from skprivbn.bayesian_network import BayesianNetwork, GaussianBayesianNetwork

__all__ = ["kl_divergence"]


def kl_divergence(p: Any, q: Any) -> float:
    """Kullback-Leibler divergence from model p to model q, in nats.

    Parameters
    ----------
    p, q : BayesianNetwork, GaussianBayesianNetwork or MarkovRandomField
        Two models of the same kind over the same nodes, matched by name. Their
        graphs may differ. States are matched by label.

    Returns
    -------
    divergence : float
        Zero if the distributions are the same; infinite if q excludes something that
        is possible under p.

    Notes
    -----
    The divergence is exact. For discrete networks it is summed family by family,
    with the marginals of p on the families of q from exact inference, and the joint
    table is never built.

    Examples
    --------
    >>> from skprivbn.bayesian_network import BayesianNetwork
    >>> from skprivbn.metrics import kl_divergence
    >>> fair = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.5, 0.5]])
    >>> loaded = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.75, 0.25]])
    >>> round(kl_divergence(fair, loaded), 6)
    0.143841
    """
    for kind, divergence in (
        (BayesianNetwork, _discrete_kl),
        (GaussianBayesianNetwork, _gaussian_kl),
    ):
        if isinstance(p, kind) and isinstance(q, kind):
            if set(p.nodes) != set(q.nodes):
                raise ValueError(
                    "the networks must have the same nodes, got "
                    f"{sorted(set(p.nodes) ^ set(q.nodes))[:5]} in one only"
                )
            return divergence(p, q)
    # Undirected models bring their own divergence: metrics do not import them.
    if type(p) is type(q) and hasattr(p, "kl_divergence"):
        return p.kl_divergence(q)
    raise TypeError(
        "expected two BayesianNetwork, two GaussianBayesianNetwork or two "
        f"MarkovRandomField, got {type(p).__name__} and {type(q).__name__}"
    )


def _discrete_kl(p, q):
    for node in p.nodes:
        if set(p.states[node]) != set(q.states[node]):
            raise ValueError(
                f"node {node!r} has states {list(p.states[node])} in one network and "
                f"{list(q.states[node])} in the other"
            )
    return float(sum(_family_kl(p, q, node) for node in p.nodes))


def _family_kl(p, q, node):
    """Return one node's part: E_p of log p(node | its parents) - log q(node | ...)."""
    ours, theirs = p.parents[node], q.parents[node]
    q_table = _in_states_of(p, q, node)
    if set(ours) == set(theirs):
        # The same family: a weighted sum of divergences, which cannot cancel.
        axes = [theirs.index(parent) for parent in ours]
        q_table = q_table.transpose([*axes, len(axes)])
        terms = rel_entr(_normalised(p.cpts[node]), _normalised(q_table))
        weights = p.query(ours) if ours else np.ones(())
        # An impossible configuration of the parents has no part, even if infinite.
        rows = np.where(weights > 0, terms.sum(axis=-1), 0.0)
        return (weights * rows).sum()
    own = p.query([*ours, node])
    cross = p.query([*theirs, node])
    with np.errstate(divide="ignore"):
        log_q = np.where(cross > 0, np.log(_normalised(q_table)), 0.0)
    log_p = np.log(_normalised(p.cpts[node]), where=own > 0, out=np.zeros_like(own))
    return (own * log_p).sum() - (cross * log_q).sum()


def _normalised(table):
    return table / table.sum(axis=-1, keepdims=True)


def _in_states_of(p, q, node):
    """Return q's table of a node with its axes in the order of p's labels."""
    table = q.cpts[node]
    for axis, variable in enumerate((*q.parents[node], node)):
        labels = q.states[variable]
        order = [labels.index(label) for label in p.states[variable]]
        table = table.take(order, axis=axis)
    return table


def _gaussian_kl(p, q):
    order = [q.nodes.index(node) for node in p.nodes]
    q_factor = np.linalg.cholesky(q.covariance[np.ix_(order, order)])
    p_factor = np.linalg.cholesky(p.covariance)
    ratio = solve_triangular(q_factor, p_factor, lower=True)
    shift = solve_triangular(q_factor, q.mean[order] - p.mean, lower=True)
    # Both factors are lower triangular, and so is their ratio: its diagonal gives
    # the log-determinants.
    log_determinants = -2 * np.log(np.diag(ratio)).sum()
    squares = (ratio**2).sum() + (shift**2).sum() - len(order)
    return float(max(0.0, 0.5 * (squares + log_determinants)))
