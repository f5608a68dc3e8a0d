"""Simulated connections of people to the access points of a building."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state

from skprivbn.utils._sklearn import Interval, validate_params
from skprivbn.utils._typing import RandomStateLike

#: ten-minute slots of a day, and how many make one record
N_SLOTS, N_STEPS = 144, 6


@validate_params(
    {
        "n_individuals": [Interval(Integral, 1, None, closed="left")],
        "n_access_points": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
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
