"""Laplace's approximation for several random effects per cluster.

Around the mode of the effects u of a block of clusters, the log-likelihood is expanded
in the effects b = Lambda u of each cell, a finest cluster: gradient, Hessian and third
derivatives, sums over the cell's rows. These tell the mode, the approximated integral

    F = l(u) - u'u / 2 - log|H| / 2,   H = I + Lambda' Z'WZ Lambda,

and, with one more sum over rows, its exact gradient by (beta, theta): the mode and H
move with the parameters, too.
"""

from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np

from skprivbn.mixed_model._updates import STEP, second_derivatives, stencil
from skprivbn.utils._linalg import symmetric, upper

# Longest Newton step of an effect, in units of the predictor.
_FAR = 2.0
# Gain of such a step below which third derivatives help.
_NEAR = 0.1


@dataclass(frozen=True)
class Shape:
    """Which effects the rows of a cell have, and what the parameters stand for.

    Parameters
    ----------
    random : RandomTerms
    blocks : Blocks
    numbers : ndarray of int of shape (n_cells, n_effects)
        Numbers of the effects of each cell.
    """

    random: object
    blocks: object
    numbers: np.ndarray

    @property
    def pairs(self):
        """Numbers of all pairs of effects of each cell."""
        return self.numbers[:, :, None], self.numbers[:, None, :]

    def split(self, parameters):
        """Return beta and Lambda."""
        n_theta = len(self.random.start)
        beta = parameters[: len(parameters) - n_theta]
        return beta, self.random.matrix(parameters[len(beta) :])


@dataclass(frozen=True)
class Expansion:
    """Derivatives by the effects b of each cell, up to the third.

    Attributes
    ----------
    value : ndarray of shape (n_cells,)
    gradient : ndarray of shape (n_cells, q)
    hessian : ndarray of shape (n_cells, q, q)
        Of minus the log-likelihood.
    third : ndarray of shape (n_cells, q, q, q)
        Derivative of the Hessian.
    products : ndarray of shape (n_cells, q, n_fixed)
        Minus the derivative of the gradient by beta.
    """

    value: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray
    third: np.ndarray
    products: np.ndarray

    @property
    def shares(self):
        """What the columns of X are, by weighted least squares on those of Z.

        Of shape (n_cells, q, n_fixed): with these, sums with columns of Z tell about
        sums with columns of X, which are not known.
        """
        return np.linalg.pinv(self.hessian, 1e-9, hermitian=True) @ self.products

    def only(self, chosen):
        """Return the same with zeros in cells that are not chosen, but for the value.

        Parameters
        ----------
        chosen : ndarray of bool of shape (n_cells,)
        """
        flat = np.where(chosen[:, None], self.flat, 0.0)
        return self.from_flat(self.value, flat, self.gradient.shape[1])

    @property
    def flat(self):
        """Everything in one row per cell, without the value."""
        a, b, c = _triples(self.gradient.shape[1])
        pieces = [self.gradient, upper(self.hessian), self.third[:, a, b, c]]
        pieces.append(self.products.reshape(len(self.gradient), -1))
        return np.concatenate(pieces, axis=1)

    @classmethod
    def from_flat(cls, value, flat, q):
        """Undo :attr:`flat`."""
        n, triples = len(flat), _triples(q)
        sizes = np.cumsum([q, q * (q + 1) // 2, len(triples[0])])
        gradient, hessian, told, products = np.split(flat, sizes, axis=1)
        third = np.zeros((n, q, q, q))
        for x, y, z in permutations(triples):
            third[:, x, y, z] = told
        return cls(
            value, gradient, symmetric(hessian), third, products.reshape(n, q, -1)
        )


@cache
def _triples(q):
    triples = [(a, b, c) for a in range(q) for b in range(a, q) for c in range(b, q)]
    return tuple(np.array(triples).T)


def predictors(rows, shape, parameters, u):
    """Return the predictor of each row of a holder at effects u; see `expand`."""
    beta, matrix = shape.split(parameters)
    effects = u[shape.numbers] @ matrix.T
    mixed = np.einsum("ij,ij->i", rows.Z, effects[rows.category])
    return rows.offset + rows.X @ beta + mixed


def expand(rows, shape, parameters, u):
    """Expand the log-likelihood of a holder's rows around effects.

    Parameters
    ----------
    rows : Rows
        Their categories are the cells.
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    u : ndarray of shape (n_numbers,)

    Returns
    -------
    expansion : Expansion
    """
    eta = predictors(rows, shape, parameters, u)
    by_eta = rows.family.derivatives(rows.events, rows.trials, eta)
    Z, q = rows.Z, rows.Z.shape[1]
    i, j = np.triu_indices(q)
    a, b, c = _triples(q)
    columns = [
        rows.log_likelihood(eta[:, None]),
        by_eta.first[:, None] * Z,
        by_eta.weight[:, None] * Z[:, i] * Z[:, j],
        by_eta.slope[:, None] * Z[:, a] * Z[:, b] * Z[:, c],
        *(by_eta.weight[:, None] * Z[:, [x]] * rows.X for x in range(q)),
    ]
    sums = rows.sum_by_category(np.concatenate(columns, axis=1))
    return Expansion.from_flat(sums[:, 0], sums[:, 1:], q)


@dataclass(frozen=True)
class Modes:
    """The modes of the effects, and what is integrated around them.

    Attributes
    ----------
    u : ndarray of shape (n_numbers,)
    decrement : float
        How far the expansion was from the modes: a block's largest gain.
    gain : ndarray of shape (n_numbers,)
        What log-likelihood and prior add to the value of the expansion, and minus half
        the log-determinant; entered at the first effect of each block.
    inverse : ndarray of shape (n_cells, q, q)
        Part of H's inverse that belongs to the effects of each cell.
    pull : ndarray of shape (n_numbers,)
        H^-1 times the derivative of -log|H| / 2 by u.
    inverses : tuple of ndarray of shape (n_blocks, size, size)
        H^-1.
    """

    u: np.ndarray
    decrement: float
    gain: np.ndarray
    inverse: np.ndarray
    pull: np.ndarray
    inverses: tuple

    @classmethod
    def at(cls, u, n_cells, q):
        """Return modes of which nothing but the place is known."""
        nothing = np.zeros(len(u))
        return cls(u, 0.0, nothing, np.zeros((n_cells, q, q)), nothing, ())


def solve_modes(expansion, shape, parameters, u):
    """Find the modes next to where the log-likelihood was expanded.

    One Newton step; value and Hessian at its end are known from the third derivatives.

    Parameters
    ----------
    expansion : Expansion
        Of everybody's rows.
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    u : ndarray of shape (n_numbers,)
        Where it was expanded.

    Returns
    -------
    modes : Modes
    """
    blocks, numbers = shape.blocks, shape.numbers
    _, matrix = shape.split(parameters)
    gradient = -u
    np.add.at(gradient, numbers, expansion.gradient @ matrix)
    hessian = matrix.T @ expansion.hessian @ matrix
    third = np.einsum(
        "cxyz,xi,yj,zk->cijk", expansion.third, matrix, matrix, matrix, optimize=True
    )
    systems = _systems(shape, hessian)
    step = blocks.solve(systems, gradient)
    gains = blocks.sums(gradient * step)
    decrement = float(gains.max(initial=0.0))
    # far from the modes a parabola may promise too much
    far, cubic = np.zeros((2, len(u)))
    np.maximum.at(far, numbers, np.abs(step[numbers] @ matrix.T).max(1)[:, None])
    for members in blocks.members:
        step[members] *= np.minimum(1, _FAR / far[members].max(1).clip(_FAR))[:, None]
    moved = step[numbers]
    change = np.einsum("cijk,ck->cij", third, moved)
    np.add.at(cubic, numbers[:, 0], np.einsum("cij,ci,cj->c", change, moved, moved))
    gain = blocks.sums(gradient * step - cubic / 6 - u**2 / 2)
    inverses, at_end = [], _systems(shape, hessian + change)
    for members, before, after in zip(blocks.members, systems, at_end):
        sign, _ = np.linalg.slogdet(after)
        # block by block: own ones are not the same at all parties
        after = np.where((sign > 0)[:, None, None], after, before)
        log_determinant = np.linalg.slogdet(after)[1]
        quadratic = np.einsum("bi,bij,bj->b", step[members], before, step[members])
        gain[members[:, 0]] -= (quadratic + log_determinant) / 2
        inverses.append(np.linalg.inv(after))
    inverse = blocks.pick(inverses, numbers)
    force, pull = np.zeros((2, len(u)))
    np.add.at(force, numbers, -np.einsum("cijk,cjk->ci", third, inverse) / 2)
    for members, every in zip(blocks.members, inverses):
        pull[members] = np.einsum("bij,bj->bi", every, force[members])
    return Modes(u + step, decrement, gain, inverse, pull, tuple(inverses))


def _systems(shape, hessian):
    """Return I and the Hessians of the cells added up, block by block."""
    systems = shape.blocks.gather([(*shape.pairs, hessian)])
    return [system + np.eye(system.shape[1]) for system in systems]


def slope_at(rows, shape, parameters, modes):
    """Return a holder's share of the gradient of F, and of the expected information.

    Parameters
    ----------
    rows : Rows
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    modes : Modes

    Returns
    -------
    gradient : ndarray of shape (n_fixed,)
        By beta.
    information : ndarray of shape (n_fixed, n_fixed)
        Of beta given the effects.
    inner : ndarray of shape (n_rows, n_effects)
        Its products with the columns of Z are the gradient by Lambda.
    """
    _, matrix = shape.split(parameters)
    eta = predictors(rows, shape, parameters, modes.u)
    by_eta = rows.family.derivatives(rows.events, rows.trials, eta)
    turned = rows.Z @ matrix
    solved = np.einsum("nij,nj->ni", modes.inverse[rows.category], turned)
    leverage = np.einsum("ni,ni->n", turned, solved)
    u, pull = (v[shape.numbers][rows.category] for v in (modes.u, modes.pull))
    pulled = np.einsum("ni,ni->n", turned, pull)
    residual = by_eta.first - by_eta.slope * leverage / 2 - by_eta.weight * pulled
    inner = (
        u * residual[:, None]
        + pull * by_eta.first[:, None]
        - solved * by_eta.weight[:, None]
    )
    information = (rows.X * by_eta.weight[:, None]).T @ rows.X
    return rows.X.T @ residual, information, inner


def predict_modes(shape, before, expansion, u, after):
    """Return where the modes should be at other parameters, and how spread out.

    Modes are those of the linear model with the same weights; spreads have weights that
    change with the effects.

    Parameters
    ----------
    shape : Shape
    before : ndarray of shape (n_fixed + n_theta,)
    expansion : Expansion
        Of everybody's rows, at the parameters `before`, around `u`.
    u : ndarray of shape (n_numbers,)
    after : ndarray of shape (n_fixed + n_theta,)

    Returns
    -------
    u : ndarray of shape (n_numbers,)
    inverse : ndarray of shape (n_cells, q, q)
        As in :class:`Modes`.
    """
    numbers = shape.numbers
    _, new = shape.split(after)
    pull, effects = _pull(shape, before, expansion, u, after)
    modes, _, systems = _parabola(shape, new, pull, expansion.hessian)
    moved = modes[numbers] @ new.T - effects
    # so far away a parabola promises too much
    far = np.abs(moved).max(axis=1, initial=0.0) > _FAR
    moved = moved.clip(-_FAR, _FAR)
    modes[numbers[far]] = (effects + moved)[far] @ np.linalg.pinv(new).T
    moved += expansion.shares @ (shape.split(after)[0] - shape.split(before)[0])
    hessian = expansion.hessian + np.einsum("cijk,ck->cij", expansion.third, moved)
    inverses = []
    for system, ahead in zip(systems, _systems(shape, new.T @ hessian @ new)):
        makes_sense = np.linalg.eigvalsh(ahead)[:, :1, None] > 0.5
        inverses.append(np.linalg.inv(np.where(makes_sense, ahead, system)))
    return modes, shape.blocks.pick(inverses, numbers)


def _pull(shape, before, expansion, u, after):
    """Return derivatives by effects of zero that parabolas promise, and effects."""
    (old_beta, old), (beta, _) = shape.split(before), shape.split(after)
    effects = u[shape.numbers] @ old.T
    pull = expansion.gradient - expansion.products @ (beta - old_beta)
    return pull + np.einsum("cij,cj->ci", expansion.hessian, effects), effects


def _parabola(shape, matrix, pull, hessian):
    """Integrate over effects where log-likelihoods are parabolas.

    Parameters
    ----------
    shape : Shape
    matrix : ndarray of shape (q, q)
        Lambda.
    pull : ndarray of shape (n_cells, q)
        Derivatives by the effects where these are zero.
    hessian : ndarray of shape (n_cells, q, q)

    Returns
    -------
    u : ndarray of shape (n_numbers,)
        The modes.
    gain : ndarray of shape (n_numbers,)
        Logarithms of the integrals, at the first effect of each block.
    systems : list of ndarray of shape (n_blocks, size, size)
    """
    blocks, turned = shape.blocks, np.zeros(len(shape.blocks.column))
    np.add.at(turned, shape.numbers, pull @ matrix)
    systems = _systems(shape, matrix.T @ hessian @ matrix)
    u = blocks.solve(systems, turned)
    gain = blocks.sums(turned * u) / 2
    for members, system in zip(blocks.members, systems):
        gain[members[:, 0]] -= np.linalg.slogdet(system)[1] / 2
    return u, gain, systems


def beta_correction(expansion, shape, parameters, modes, u, inverse):
    """Return what moving to the modes adds to the gradient by beta, cell by cell.

    Parameters
    ----------
    expansion : Expansion
        Of everybody's rows, around `u`.
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    modes : Modes
    u, inverse : ndarray
        What was expected of the modes.

    Returns
    -------
    correction : ndarray of shape (n_cells, n_fixed)
    """
    _, matrix = shape.split(parameters)
    moved = (modes.u - u)[shape.numbers] @ matrix.T
    pulled = modes.pull[shape.numbers] @ matrix.T
    correction = np.einsum("cij,ci->cj", expansion.products, moved + pulled)
    if modes.decrement > _NEAR:
        # so far away, parabolas are safer than what bends them
        return -correction
    spread = matrix @ (modes.inverse - inverse) @ matrix.T
    spread += np.einsum("ci,cj->cij", moved, moved + 2 * pulled)
    bent = np.einsum("cijk,cjk->ci", expansion.third, spread) / 2
    return -correction - np.einsum("cij,ci->cj", expansion.shares, bent)


def theta_slope(expansion, shape, parameters, modes, u):
    """Return the gradient of F by theta, cell by cell, from sums that are known.

    Parameters
    ----------
    expansion, shape, parameters, modes, u :
        As in :func:`beta_correction`.

    Returns
    -------
    gradient : ndarray of shape (n_cells, n_theta)
    """
    _, matrix = shape.split(parameters)
    at, pull = modes.u[shape.numbers], modes.pull[shape.numbers]
    moved = (modes.u - u)[shape.numbers] @ matrix.T
    bent = np.einsum("cijk,ck->cij", expansion.third, moved)
    gradient = expansion.gradient - np.einsum(
        "cij,cj->ci", expansion.hessian + bent / 2, moved
    )
    hessian = expansion.hessian + bent
    spread = matrix @ modes.inverse @ matrix.T
    residual = gradient - np.einsum("cijk,cjk->ci", expansion.third, spread) / 2
    residual = residual - np.einsum("cij,cj->ci", hessian, pull @ matrix.T)
    inner = (
        residual[:, :, None] * at[:, None, :]
        + gradient[:, :, None] * pull[:, None, :]
        - hessian @ matrix @ modes.inverse
    )
    return inner[(slice(None), *shape.random.positions)]


def parabola_gains(expansion, shape, scale):
    """Return what independent effects of one scale add, from parabolas at zero.

    Parameters
    ----------
    expansion : Expansion
        Around effects of zero.
    shape : Shape
    scale : float

    Returns
    -------
    gain : ndarray of shape (n_numbers,)
        Of log-likelihood, at the first effect of each block.
    """
    matrix = scale * np.eye(expansion.gradient.shape[1])
    return _parabola(shape, matrix, expansion.gradient, expansion.hessian)[1]


def theta_curvature(shape, parameters, expansion, u):
    """Return observed information on theta, and on beta with theta.

    That of the linear model with the same weights, by differences.

    Parameters
    ----------
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    expansion : Expansion
        Around `u`; zero in cells that do not count.
    u : ndarray of shape (n_numbers,)

    Returns
    -------
    information : ndarray of shape (n_theta, n_theta)
    cross : ndarray of shape (n_fixed, n_theta)
    """
    beta, _ = shape.split(parameters)
    theta, n_theta = parameters[len(beta) :], len(parameters) - len(beta)
    pull, _ = _pull(shape, parameters, expansion, u, parameters)

    def look(point):
        matrix = shape.random.matrix(point)
        modes, gain, _ = _parabola(shape, matrix, pull, expansion.hessian)
        return gain.sum(), modes[shape.numbers] @ matrix.T

    gains, effects = zip(*map(look, stencil(theta)))
    plus, minus = np.split(np.array(effects[1 : 1 + 2 * n_theta]), 2)
    cross = np.einsum("cij,tci->jt", expansion.products, (plus - minus) / (2 * STEP))
    return -second_derivatives(np.array(gains), n_theta), cross


def missing_beta(shape, parameters, modes, products):
    """Return what not seeing the effects costs of the information on beta.

    Parameters
    ----------
    shape : Shape
    parameters : ndarray of shape (n_fixed + n_theta,)
    modes : Modes
    products : ndarray of shape (n_cells, n_effects, n_fixed)
        Z'WX of each cell.

    Returns
    -------
    missing : ndarray of shape (n_fixed, n_fixed)
    """
    _, matrix = shape.split(parameters)
    turned = np.zeros((len(modes.u), products.shape[2]))
    np.add.at(turned, shape.numbers, matrix.T @ products)
    missing = np.zeros((products.shape[2], products.shape[2]))
    for members, inverse in zip(shape.blocks.members, modes.inverses):
        own = turned[members]
        missing += np.einsum("bix,bij,bjy->xy", own, inverse, own, optimize=True)
    return missing


def theta_information(shape, modes, hessian):
    """Return the information on theta if the effects were seen.

    Parameters
    ----------
    shape : Shape
    modes : Modes
    hessian : ndarray of shape (n_cells, n_effects, n_effects)

    Returns
    -------
    information : ndarray of shape (n_theta, n_theta)
    """
    u = modes.u[shape.numbers]
    squares = u[:, :, None] * u[:, None, :] + modes.inverse
    every = np.einsum("cij,ckl->ikjl", hessian, squares)
    rows, columns = shape.random.positions
    return every[rows[:, None], columns[:, None], rows, columns]


def information(expansion, shape, parameters, modes, u):
    """Return information on the parameters if effects were seen, and what is missing.

    Parameters
    ----------
    expansion : Expansion
        Zero in cells that do not count.
    shape : Shape
    parameters : ndarray of shape (n_parameters,)
    modes : Modes
    u : ndarray of shape (n_numbers,)
        Around which it is.

    Returns
    -------
    complete, missing : ndarray of shape (n_parameters, n_parameters)
        The former for theta only.
    """
    size = len(parameters)
    beta = slice(size - len(shape.random.start))
    theta = slice(beta.stop, size)
    complete, missing = np.zeros((2, size, size))
    complete[theta, theta] = theta_information(shape, modes, expansion.hessian)
    observed, cross = theta_curvature(shape, parameters, expansion, u)
    missing[beta, beta] = missing_beta(shape, parameters, modes, expansion.products)
    missing[beta, theta], missing[theta, beta] = -cross, -cross.T
    missing[theta, theta] = complete[theta, theta] - observed
    return complete, missing
