"""Laplace's approximation for several random effects per cluster.

Around the mode of the effects u of a block of clusters, the log-likelihood is expanded
in the effects b = Lambda u of each cell, a finest cluster: gradient, Hessian and third
derivatives, sums over the cell's rows. These tell the mode, the approximated integral

    F = l(u) - u'u / 2 - log|H| / 2,   H = I + Lambda' Z'WZ Lambda,

and, with one more sum over rows, its exact gradient by (beta, theta): the mode and H
move with the parameters, too.
"""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import permutations

import numpy as np

from skprivbn.mixed_model._updates import STEP, second_derivatives, stencil
from skprivbn.utils._linalg import symmetric, upper

# Longest Newton step of an effect, in units of the predictor.
_FAR = 2.0
# Gain of such a step below which third derivatives help.
_NEAR = 0.1


@dataclass(frozen=True)
class Model:
    """Which effects the rows of a cell have, and parameters, if they are known.

    Parameters
    ----------
    random : RandomTerms
    blocks : Blocks
    numbers : ndarray of int of shape (n_cells, n_effects)
        Numbers of the effects of each cell.
    beta : ndarray of shape (n_fixed,), default=None
    theta : ndarray of shape (n_theta,), default=None
    """

    random: object
    blocks: object
    numbers: np.ndarray
    beta: np.ndarray | None = None
    theta: np.ndarray | None = None

    def at(self, parameters):
        """Return the model at parameters, (beta, theta)."""
        beta, theta = np.split(parameters, [-len(self.random.start)])
        return replace(self, beta=beta, theta=theta)

    @cached_property
    def matrix(self):
        """Lambda."""
        return self.random.matrix(self.theta)


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


def predictors(rows, model, u):
    """Return the predictor of each row of a holder at effects u; see `expand`."""
    effects = u[model.numbers] @ model.matrix.T
    mixed = np.einsum("ij,ij->i", rows.Z, effects[rows.category])
    return rows.offset + rows.X @ model.beta + mixed


def expand(rows, model, u):
    """Expand the log-likelihood of a holder's rows around effects.

    Parameters
    ----------
    rows : Rows
        Their categories are the cells.
    model : Model
    u : ndarray of shape (n_numbers,)

    Returns
    -------
    expansion : Expansion
    """
    eta = predictors(rows, model, u)
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


def solve_modes(expansion, model, u):
    """Find the modes next to where the log-likelihood was expanded.

    One Newton step; value and Hessian at its end are known from the third derivatives.

    Parameters
    ----------
    expansion : Expansion
        Of everybody's rows.
    model : Model
    u : ndarray of shape (n_numbers,)
        Where it was expanded.

    Returns
    -------
    modes : Modes
    """
    blocks, numbers, matrix = model.blocks, model.numbers, model.matrix
    gradient = -u
    np.add.at(gradient, numbers, expansion.gradient @ matrix)
    hessian = matrix.T @ expansion.hessian @ matrix
    third = np.einsum(
        "cxyz,xi,yj,zk->cijk", expansion.third, matrix, matrix, matrix, optimize=True
    )
    systems = _systems(model, hessian)
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
    inverses, at_end = [], _systems(model, hessian + change)
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


def _systems(model, hessian):
    """Return I and the Hessians of the cells added up, block by block."""
    systems = model.blocks.gather(hessian, model.numbers)
    return [system + np.eye(system.shape[1]) for system in systems]


def slope_at(rows, model, modes):
    """Return a holder's share of the gradient of F, and of the expected information.

    Parameters
    ----------
    rows : Rows
    model : Model
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
    eta = predictors(rows, model, modes.u)
    by_eta = rows.family.derivatives(rows.events, rows.trials, eta)
    turned = rows.Z @ model.matrix
    solved = np.einsum("nij,nj->ni", modes.inverse[rows.category], turned)
    leverage = np.einsum("ni,ni->n", turned, solved)
    u, pull = (v[model.numbers][rows.category] for v in (modes.u, modes.pull))
    pulled = np.einsum("ni,ni->n", turned, pull)
    residual = by_eta.first - by_eta.slope * leverage / 2 - by_eta.weight * pulled
    inner = (
        u * residual[:, None]
        + pull * by_eta.first[:, None]
        - solved * by_eta.weight[:, None]
    )
    information = (rows.X * by_eta.weight[:, None]).T @ rows.X
    return rows.X.T @ residual, information, inner


def predict_modes(before, expansion, u, after):
    """Return where the modes should be at other parameters, and how spread out.

    Modes are those of the linear model with the same weights; spreads have weights that
    change with the effects.

    Parameters
    ----------
    before : Model
    expansion : Expansion
        Of everybody's rows, at the parameters `before`, around `u`.
    u : ndarray of shape (n_numbers,)
    after : Model

    Returns
    -------
    u : ndarray of shape (n_numbers,)
    inverse : ndarray of shape (n_cells, q, q)
        As in :class:`Modes`.
    """
    numbers, new = after.numbers, after.matrix
    pull, effects = _pull(before, expansion, u, after)
    modes, _, systems = _parabola(after, pull, expansion.hessian)
    moved = modes[numbers] @ new.T - effects
    # so far away a parabola promises too much
    far = np.abs(moved).max(axis=1, initial=0.0) > _FAR
    moved = moved.clip(-_FAR, _FAR)
    modes[numbers[far]] = (effects + moved)[far] @ np.linalg.pinv(new).T
    moved += expansion.shares @ (after.beta - before.beta)
    hessian = expansion.hessian + np.einsum("cijk,ck->cij", expansion.third, moved)
    inverses = []
    for system, ahead in zip(systems, _systems(after, new.T @ hessian @ new)):
        makes_sense = np.linalg.eigvalsh(ahead)[:, :1, None] > 0.5
        inverses.append(np.linalg.inv(np.where(makes_sense, ahead, system)))
    return modes, after.blocks.pick(inverses, numbers)


def _pull(before, expansion, u, after):
    """Return derivatives by effects of zero that parabolas promise, and effects."""
    effects = u[before.numbers] @ before.matrix.T
    pull = expansion.gradient - expansion.products @ (after.beta - before.beta)
    return pull + np.einsum("cij,cj->ci", expansion.hessian, effects), effects


def _parabola(model, pull, hessian):
    """Integrate over effects where log-likelihoods are parabolas.

    Parameters
    ----------
    model : Model
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
    blocks, matrix = model.blocks, model.matrix
    turned = np.zeros(len(blocks.column))
    np.add.at(turned, model.numbers, pull @ matrix)
    systems = _systems(model, matrix.T @ hessian @ matrix)
    u = blocks.solve(systems, turned)
    gain = blocks.sums(turned * u) / 2
    for members, system in zip(blocks.members, systems):
        gain[members[:, 0]] -= np.linalg.slogdet(system)[1] / 2
    return u, gain, systems


def beta_correction(expansion, model, modes, u, inverse):
    """Return what moving to the modes adds to the gradient by beta, cell by cell.

    Parameters
    ----------
    expansion : Expansion
        Of everybody's rows, around `u`.
    model : Model
    modes : Modes
    u, inverse : ndarray
        What was expected of the modes.

    Returns
    -------
    correction : ndarray of shape (n_cells, n_fixed)
    """
    matrix, numbers = model.matrix, model.numbers
    moved = (modes.u - u)[numbers] @ matrix.T
    pulled = modes.pull[numbers] @ matrix.T
    correction = np.einsum("cij,ci->cj", expansion.products, moved + pulled)
    if modes.decrement > _NEAR:
        # so far away, parabolas are safer than what bends them
        return -correction
    spread = matrix @ (modes.inverse - inverse) @ matrix.T
    spread += np.einsum("ci,cj->cij", moved, moved + 2 * pulled)
    bent = np.einsum("cijk,cjk->ci", expansion.third, spread) / 2
    return -correction - np.einsum("cij,ci->cj", expansion.shares, bent)


def theta_slope(expansion, model, modes, u):
    """Return the gradient of F by theta, cell by cell, from sums that are known.

    Parameters
    ----------
    expansion, model, modes, u :
        As in :func:`beta_correction`.

    Returns
    -------
    gradient : ndarray of shape (n_cells, n_theta)
    """
    matrix, numbers = model.matrix, model.numbers
    at, pull = modes.u[numbers], modes.pull[numbers]
    moved = (modes.u - u)[numbers] @ matrix.T
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
    return inner[(slice(None), *model.random.positions)]


def parabola_gains(expansion, model, scale):
    """Return what independent effects of one scale add, from parabolas at zero.

    Parameters
    ----------
    expansion : Expansion
        Around effects of zero.
    model : Model
    scale : float

    Returns
    -------
    gain : ndarray of shape (n_numbers,)
        Of log-likelihood, at the first effect of each block.
    """
    scaled = replace(model, theta=scale * model.random.start)
    return _parabola(scaled, expansion.gradient, expansion.hessian)[1]


def theta_curvature(model, expansion, u):
    """Return observed information on theta, and on beta with theta.

    That of the linear model with the same weights, by differences.

    Parameters
    ----------
    model : Model
    expansion : Expansion
        Around `u`; zero in cells that do not count.
    u : ndarray of shape (n_numbers,)

    Returns
    -------
    information : ndarray of shape (n_theta, n_theta)
    cross : ndarray of shape (n_fixed, n_theta)
    """
    n_theta, (pull, _) = len(model.theta), _pull(model, expansion, u, model)

    def look(theta):
        trial = replace(model, theta=theta)
        modes, gain, _ = _parabola(trial, pull, expansion.hessian)
        return gain.sum(), modes[model.numbers] @ trial.matrix.T

    gains, effects = zip(*map(look, stencil(model.theta)))
    plus, minus = np.split(np.array(effects[1 : 1 + 2 * n_theta]), 2)
    cross = np.einsum("cij,tci->jt", expansion.products, (plus - minus) / (2 * STEP))
    return -second_derivatives(np.array(gains), n_theta), cross


def missing_beta(model, modes, products):
    """Return what not seeing the effects costs of the information on beta.

    Parameters
    ----------
    model : Model
    modes : Modes
    products : ndarray of shape (n_cells, n_effects, n_fixed)
        Z'WX of each cell.

    Returns
    -------
    missing : ndarray of shape (n_fixed, n_fixed)
    """
    turned = np.zeros((len(modes.u), products.shape[2]))
    np.add.at(turned, model.numbers, model.matrix.T @ products)
    missing = np.zeros((products.shape[2], products.shape[2]))
    for members, inverse in zip(model.blocks.members, modes.inverses):
        own = turned[members]
        missing += np.einsum("bix,bij,bjy->xy", own, inverse, own, optimize=True)
    return missing


def information(expansion, model, modes, u):
    """Return information on the parameters if effects were seen, and what is missing.

    Parameters
    ----------
    expansion : Expansion
        Zero in cells that do not count.
    model : Model
    modes : Modes
    u : ndarray of shape (n_numbers,)
        Around which it is.

    Returns
    -------
    complete, missing : ndarray of shape (n_parameters, n_parameters)
        The former for theta only.
    """
    n_fixed, size = len(model.beta), len(model.beta) + len(model.theta)
    beta, theta = slice(n_fixed), slice(n_fixed, size)
    complete, missing = np.zeros((2, size, size))
    at, (rows, columns) = modes.u[model.numbers], model.random.positions
    squares = at[:, :, None] * at[:, None, :] + modes.inverse
    every = np.einsum("cij,ckl->ikjl", expansion.hessian, squares)
    complete[theta, theta] = every[rows[:, None], columns[:, None], rows, columns]
    observed, cross = theta_curvature(model, expansion, u)
    missing[beta, beta] = missing_beta(model, modes, expansion.products)
    missing[beta, theta], missing[theta, beta] = -cross, -cross.T
    missing[theta, theta] = complete[theta, theta] - observed
    return complete, missing
