"""Private stochastic gradient descent: the general-purpose baseline.

References
----------
M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang (2016).
Deep learning with differential privacy. CCS.
"""

from functools import lru_cache

import numpy as np

from skprivbn.graphical_model._tables import Contribution, count_tables
from skprivbn.privacy import add_discrete_gaussian
from skprivbn.privacy._exact_sampling import random_words
from skprivbn.utils._linalg import single_threaded
from skprivbn.utils._progress import NO_PROGRESS

#: bits of the fixed-point clipping factors and model marginals
_FACTOR_BITS, _MARGINAL_BITS = 20, 16


@lru_cache(maxsize=16)
def noise_multiplier(epsilon, delta, sampling_rate, n_steps):
    """Noise per unit of clipping norm, calibrated with dp-accounting's RDP accountant.

    The event is the Poisson-subsampled Gaussian mechanism. The noise added is discrete
    on a grid so fine (millions of steps per standard deviation) that the two differ by
    far less than floating-point error.
    """
    import dp_accounting
    from dp_accounting import rdp

    def event(multiplier):
        gaussian = dp_accounting.GaussianDpEvent(multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(sampling_rate, gaussian)
        return dp_accounting.SelfComposedDpEvent(sampled, n_steps)

    return dp_accounting.calibrate_dp_mechanism(
        rdp.RdpAccountant, event, epsilon, delta, tol=1e-4
    )


@single_threaded
def private_gradient_descent(
    codes,
    layout,
    epsilon,
    delta,
    progress=NO_PROGRESS,
    persons=None,
    *,
    sampling_rate=0.02,
    n_steps=200,
    clip=None,
    learning_rate=0.4,
):
    """Maximise the likelihood with clipped, noisy gradients of random batches.

    Everything that depends on the data is an integer before noise is added: clipping
    factors are rounded down and the model's marginals, which are public, are rounded
    to fixed point first, so that the bound on a row's gradient holds exactly. A person
    with several rows counts as one, whose gradient is the mean of theirs: drawn,
    clipped and hidden as a whole.

    Parameters
    ----------
    codes : ndarray of int of shape (n_samples, n_columns)
        The rows.
    layout : TableLayout
        The field, perhaps with ties.
    epsilon, delta : float
        Guarantee of the whole descent.
    progress : Progress, default=NO_PROGRESS
        Told of every step.
    persons : ndarray of int of shape (n_samples,), default=None
        Who stands behind each row. None takes every row for a person.
    sampling_rate : float, default=0.02
        Probability of each row, or person, to be in the batch of a step.
    n_steps : int, default=200
        Number of steps.
    clip : float, default=None
        Bound on the norm of a row's, or person's, gradient; by default the largest norm
        of a row's counts, the square root of the number of cliques without ties, which
        clips little.
    learning_rate : float, default=0.4
        Of Adam.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
        Average over the second half of the steps.
    """
    clip = clip or float(np.linalg.norm(layout.multiplicity))
    multiplier = noise_multiplier(epsilon, delta, sampling_rate, n_steps)
    grid = 2.0 ** (_FACTOR_BITS + _MARGINAL_BITS)
    theta, average = np.zeros((2, layout.n_parameters))
    first, second = np.zeros((2, layout.n_parameters))
    record = Contribution(max_weight=2**_FACTOR_BITS)
    people = _People(_cells(codes, layout), persons)

    def noisy_gradient(theta):
        marginals = np.rint(layout.marginals(theta)[1] * 2**_MARGINAL_BITS)
        marginals = marginals.astype(np.int64)
        batch = people.rows_of(_coins(people.n_people, sampling_rate))
        square = people.squares(batch, marginals / 2**_MARGINAL_BITS)
        # a hair below the bound, for the rounding of the norm itself
        factor = np.minimum(1.0, (1 - 1e-9) * clip / np.sqrt(np.maximum(square, 1e-12)))
        factor = np.floor(factor * 2**_FACTOR_BITS / people.n_rows[batch])
        factor = factor.astype(np.int64)
        total = count_tables(codes[batch], layout, record, weight=factor)
        total = total * 2**_MARGINAL_BITS - factor.sum() * marginals
        noisy = add_discrete_gaussian(total, clip * grid, multiplier * clip * grid)
        return noisy / (grid * multiplier * clip)

    for step in range(1, n_steps + 1):
        with progress.step():
            gradient = noisy_gradient(theta)
        # Adam does not depend on the scale of gradients, so the private number of
        # rows in the batch is not needed
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        direction = first / (1 - 0.9**step) / np.sqrt(second / (1 - 0.99**step) + 1e-12)
        theta = theta + learning_rate * direction / np.sqrt(step)
        if 2 * step > n_steps:
            average += theta
    return average / (n_steps - n_steps // 2)


class _People:
    """Rows of people, each of whom has a gradient: cells less the model's marginals.

    Parameters
    ----------
    cells : ndarray of int of shape (n_samples, n_cliques)
        Position of every row's cell of every clique.
    persons : ndarray of int of shape (n_samples,) or None

    Attributes
    ----------
    n_people : int
    n_rows : ndarray of int of shape (n_samples,)
        Of the person behind each row.
    """

    def __init__(self, cells, persons):
        if persons is None:
            persons = np.arange(len(cells))
        _, self._person = np.unique(persons, return_inverse=True)
        self._cells, numbers = cells, np.bincount(self._person)
        self.n_people, self.n_rows = len(numbers), numbers[self._person]
        # squared norm of the mean of a person's indicators, of all cells
        n_cells = cells.max(initial=0) + 1
        keys = self._person[:, None] * n_cells + cells
        keys, times = np.unique(keys, return_counts=True)
        sums = np.bincount(
            keys // n_cells, weights=times.astype(float) ** 2, minlength=self.n_people
        )
        self._own = (sums / numbers**2)[self._person]

    def rows_of(self, chosen):
        """Return the rows of chosen people."""
        return np.flatnonzero(chosen[self._person])

    def squares(self, rows, public):
        """Return, for each of some rows, the squared norm of its person's gradient."""
        person = self._person[rows]
        inner = np.bincount(
            person,
            weights=public[self._cells[rows]].sum(axis=1),
            minlength=self.n_people,
        )
        inner = inner[person] / self.n_rows[rows]
        return self._own[rows] - 2 * inner + public @ public


def _cells(codes, layout):
    """Position in the parameter vector of every row's cell of every clique."""
    return np.stack(
        [
            layout.starts[table]
            + np.ravel_multi_index(codes[:, clique].T, layout.shapes[table])
            for clique, table in zip(layout.cliques, layout.ties)
        ],
        axis=1,
    )


def _coins(n, probability):
    """Independent coins from the operating system, with a 64-bit probability."""
    draws = random_words(n)
    if probability >= 1:
        return np.ones(n, dtype=bool)
    return draws < np.uint64(int(probability * 2.0**64))
