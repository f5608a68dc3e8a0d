"""Random discrete models, and connections of people to access points."""

from itertools import product
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets._sem import random_connected_graph, random_dag
from skprivbn.utils._sklearn import Interval, StrOptions, validate_params
from skprivbn.utils._typing import RandomStateLike


@validate_params(
    {
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "n_states": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "n_edges": [Interval(Integral, 0, None, closed="left"), None],
        "max_parents": [Interval(Integral, 0, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }
)
def make_discrete_bayesian_network(
    n_features: int = 10,
    *,
    n_states: int | tuple[int, int] = 2,
    n_edges: int | None = None,
    max_parents: int = 3,
    alpha: float = 0.5,
    random_state: RandomStateLike = None,
) -> BayesianNetwork:
    """Generate a random discrete Bayesian network.

    Edges are placed uniformly at random, and every row of every conditional
    probability table is drawn from a symmetric Dirichlet distribution. Rows of
    data come from the network's ``sample``.

    Parameters
    ----------
    n_features : int, default=10
        Number of variables, called "x0", "x1", ...
    n_states : int or tuple of (int, int), default=2
        Number of states of every variable, or the smallest and largest number,
        drawn uniformly for each. States are the integers from 0.
    n_edges : int, default=None
        Exact number of edges; `None` means ``n_features``, or as many as possible.
    max_parents : int, default=3
        Largest number of parents of a variable.
    alpha : float, default=0.5
        Concentration of the Dirichlet distribution; small values make effects
        strong.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    network : BayesianNetwork
        The network.

    See Also
    --------
    make_markov_random_field : Undirected models.
    load_asia : A small network that everybody knows.

    Examples
    --------
    >>> from skprivbn.datasets import make_discrete_bayesian_network
    >>> network = make_discrete_bayesian_network(
    ...     5, n_states=(2, 4), n_edges=6, random_state=0
    ... )
    >>> X = network.sample(100, random_state=0)
    >>> X.shape
    (100, 5)
    """
    rng = check_random_state(random_state)
    if n_edges is None:
        n_edges = min(
            n_features, int(np.minimum(np.arange(n_features), max_parents).sum())
        )
    adjacency, _ = random_dag(n_features, n_edges, rng, max_parents=max_parents)
    sizes = _draw_sizes(n_states, n_features, rng)
    nodes = [f"x{i}" for i in range(n_features)]
    states, parents, cpts = {}, {}, {}
    for i, node in enumerate(nodes):
        sources = np.flatnonzero(adjacency[:, i])
        states[node] = list(range(sizes[i]))
        parents[node] = [nodes[source] for source in sources]
        cpts[node] = _dirichlet(
            rng, alpha, tuple(sizes[source] for source in sources), sizes[i]
        )
    return BayesianNetwork(nodes, states, parents, cpts)


@validate_params(
    {
        "n_features": [Interval(Integral, 2, None, closed="left")],
        "n_states": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "graph": [StrOptions({"chain", "erdos_renyi"})],
        "order": [Interval(Integral, 1, None, closed="left")],
        "n_edges": [Interval(Integral, 1, None, closed="left"), None],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }
)
def make_markov_random_field(
    n_features: int = 10,
    n_states: int | tuple[int, int] = 10,
    *,
    graph: str = "chain",
    order: int = 1,
    n_edges: int | None = None,
    alpha: float = 1.0,
    random_state: RandomStateLike = None,
) -> dict[tuple[int, int], np.ndarray]:
    """Generate a random pairwise Markov random field.

    The probability of a row x is proportional to the exponential of the sum,
    over edges (i, j), of ``potentials[i, j][x[i], x[j]]``.

    Parameters
    ----------
    n_features : int, default=10
        Number of variables.
    n_states : int or tuple of (int, int), default=10
        Number of states of every variable, or the smallest and largest number,
        drawn uniformly for each. States are the integers from 0.
    graph : {"chain", "erdos_renyi"}, default="chain"
        "chain" links variables at most ``order`` positions apart. "erdos_renyi"
        is a connected random graph: a random spanning tree and further edges
        chosen uniformly.
    order : int, default=1
        Order of the chain, ignored otherwise.
    n_edges : int, default=None
        Exact number of edges of the random graph; `None` means
        ``2 * n_features``, or as many as there are pairs. Ignored for a chain.
    alpha : float, default=1.0
        Exponentiated potentials of an edge are drawn, all its cells together,
        from a symmetric Dirichlet distribution with this concentration.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    potentials : dict of (int, int) to ndarray of shape (n_states_i, n_states_j)
        Log potentials of the edges (i, j), i < j, in lexicographic order.

    See Also
    --------
    make_discrete_bayesian_network : Directed models.

    Notes
    -----
    The paper that introduced private learning with collective graphical models
    [1]_ uses third-order chains and connected random graphs of 10 variables.

    References
    ----------
    .. [1] Bernstein, McKenna, Sun, Sheldon, Hay and Miklau (2017). Differentially
       private learning of undirected graphical models using collective graphical
       models. ICML.

    Examples
    --------
    >>> from skprivbn.datasets import make_markov_random_field
    >>> potentials = make_markov_random_field(4, n_states=3, order=2, random_state=0)
    >>> list(potentials)
    [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    >>> potentials[0, 1].shape
    (3, 3)
    """
    rng = check_random_state(random_state)
    sizes = _draw_sizes(n_states, n_features, rng)
    if graph == "chain":
        pairs = product(range(n_features), repeat=2)
        edges = [(i, j) for i, j in pairs if 1 <= j - i <= order]
    else:
        if n_edges is None:
            n_edges = min(2 * n_features, n_features * (n_features - 1) // 2)
        edges = random_connected_graph(n_features, n_edges, rng)
    potentials = {}
    for i, j in edges:
        table = _dirichlet(rng, alpha, (), sizes[i] * sizes[j])
        potentials[i, j] = np.log(table).reshape(sizes[i], sizes[j])
    return potentials


def _draw_sizes(n_states, n_features, rng):
    if isinstance(n_states, Integral):
        return np.full(n_features, n_states)
    if len(n_states) != 2 or not 1 <= n_states[0] <= n_states[1]:
        raise ValueError(
            "n_states must be an integer or a pair, 1 <= smallest <= largest, "
            f"got {n_states!r}."
        )
    return rng.randint(n_states[0], n_states[1] + 1, size=n_features)


def _dirichlet(rng, alpha, shape, n_cells):
    """Draw distributions over the last axis that never have an exact zero."""
    draws = rng.dirichlet(np.full(n_cells, float(alpha)), size=shape)
    draws = np.maximum(draws, np.finfo(float).tiny ** 0.5)
    return draws / draws.sum(axis=-1, keepdims=True)


#: ten-minute slots of a day, and how many make one record
N_SLOTS, N_STEPS = 144, 6


@validate_params(
    {
        "n_individuals": [Interval(Integral, 1, None, closed="left")],
        "n_access_points": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
)
def make_wifi_sessions(
    n_individuals: int = 500,
    n_access_points: int = 10,
    *,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate where people's devices are connected, every ten minutes of a day.

    An individual is one person on one day. The day's 144 slots are cut into 24
    records of six time steps. State 0 means not connected and is by far the most
    frequent; access points 1, 2, ... are used with Zipf-distributed popularity, and
    people stay where they are more often than they move.

    Parameters
    ----------
    n_individuals : int, default=500
        Number of person-days.
    n_access_points : int, default=10
        Number of access points.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible output.

    Returns
    -------
    X : ndarray of shape (24 * n_individuals, 6)
        State at each of six time steps, from 0 to `n_access_points`.
    individual : ndarray of shape (24 * n_individuals,)
        Whose record it is.

    See Also
    --------
    skprivbn.graphical_model.DPCGMLearner : Learns chains with tied potentials, and
        bounds what people with several records contribute.

    Examples
    --------
    >>> from skprivbn.datasets import make_wifi_sessions
    >>> X, individual = make_wifi_sessions(100, random_state=0)
    >>> X.shape, individual.shape
    ((2400, 6), (2400,))
    >>> bool((X == 0).mean() > 0.5)
    True
    """
    rng = check_random_state(random_state)
    popularity = 1 / np.arange(1, n_access_points + 1)
    popularity /= popularity.sum()
    hour = np.arange(N_SLOTS) / 6
    # people arrive in the morning and leave in the evening
    arrive = 0.002 + 0.045 * np.exp(-((hour - 10.5) ** 2) / (2 * 2.5**2))
    leave = np.where(hour > 17, 0.12, 0.05)
    state = np.zeros(n_individuals, dtype=np.intp)
    days = np.empty((n_individuals, N_SLOTS), dtype=np.intp)
    for slot in range(N_SLOTS):
        draw = rng.uniform(size=n_individuals)
        target = 1 + rng.choice(n_access_points, size=n_individuals, p=popularity)
        absent = state == 0
        moved = np.where(absent, draw < arrive[slot], draw > 1 - 0.15)
        left = ~absent & (draw < leave[slot])
        state = np.where(left, 0, np.where(moved, target, state))
        days[:, slot] = state
    X = days.reshape(-1, N_STEPS)
    return X, np.repeat(np.arange(n_individuals), N_SLOTS // N_STEPS)
