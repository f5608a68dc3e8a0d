"""Linear mixed models from sums of products, without rows.

With y = X beta + Z b + e, b = sigma Lambda u, u ~ N(0, I) and e ~ N(0, sigma^2), the
log-likelihood depends on the rows through sums of products of [Z X y] only. Beta and
sigma are known given theta, the entries of Lambda (Bates et al. 2015).
"""

from dataclasses import dataclass, replace

import numpy as np

from skprivbn.mixed_model._updates import least_coefficients

_STEP = 1e-3


@dataclass(frozen=True)
class Products:
    """Sums of products over rows, by block of random effects.

    Parameters
    ----------
    blocks : Blocks
    zz : list of ndarray of shape (n_blocks, size, size)
    zr : ndarray of shape (n_numbers, n_fixed + 1)
        Z'[X y].
    """

    blocks: object
    zz: list
    zr: np.ndarray


@dataclass(frozen=True)
class Columns:
    """Rows of one holder: [Z], [X y], and the effects that each row has.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_effects)
    R : ndarray of shape (n_rows, n_fixed + 1)
    numbers : ndarray of int of shape (n_rows, n_effects)
    blocks : Blocks
    """

    Z: np.ndarray
    R: np.ndarray
    numbers: np.ndarray
    blocks: object

    def divided(self, unit):
        """Return the rows in another unit."""
        return replace(self, Z=self.Z / unit, R=self.R / unit)

    def turned(self, turn):
        """Return the rows with X multiplied by a matrix from the right."""
        return replace(self, R=np.column_stack([self.R[:, :-1] @ turn, self.R[:, -1]]))

    def products(self, closed):
        """Return the products of rows whose effects are in `closed`, or are not.

        Parameters
        ----------
        closed : ndarray of bool of shape (n_numbers,)

        Returns
        -------
        products : Products
        """
        chosen = np.all(closed[self.numbers], axis=1)
        Z, R, numbers = self.Z[chosen], self.R[chosen], self.numbers[chosen].T
        pairs = [(i, j) for i in range(Z.shape[1]) for j in range(Z.shape[1])]
        entries = ((numbers[i], numbers[j], Z[:, i] * Z[:, j]) for i, j in pairs)
        zr = np.zeros((len(self.blocks.column), R.shape[1]))
        for i in range(Z.shape[1]):
            np.add.at(zr, numbers[i], Z[:, [i]] * R)
        return Products(self.blocks, self.blocks.gather(entries), zr)


def pack(products, opened, factors):
    """Return what is not zero of the products of some effects, as one vector.

    Parameters
    ----------
    products : Products
    opened : ndarray of bool of shape (n_numbers,)
    factors : ndarray of int of shape (n_effects,)
        Factor of each column: levels of one factor never meet in a row.

    Returns
    -------
    vector : ndarray of shape (n_values,)
    """
    masks = _masks(products.blocks, opened, factors)
    pieces = [zz[mask] for zz, mask in zip(products.zz, masks)]
    return np.concatenate([*pieces, products.zr[opened].ravel()])


def unpack(vector, blocks, opened, factors, width):
    """Return the products that :func:`pack` made a vector of, `width` columns."""
    matrices = []
    for mask in _masks(blocks, opened, factors):
        matrix, n = np.zeros(mask.shape), np.count_nonzero(mask)
        matrix[mask], vector = vector[:n], vector[n:]
        diagonal = matrix * np.eye(mask.shape[1])
        matrices.append(matrix + np.swapaxes(matrix, 1, 2) - diagonal)
    zr = np.zeros((len(opened), width))
    zr[opened] = vector.reshape(-1, width)
    return Products(blocks, matrices, zr)


def _masks(blocks, opened, factors):
    for numbers in blocks.members:
        factor, level = factors[blocks.column[numbers]], blocks.level[numbers]
        apart = factor[:, :, None] == factor[:, None, :]
        apart &= level[:, :, None] != level[:, None, :]
        above = np.triu(np.ones((numbers.shape[1], numbers.shape[1]), dtype=bool))
        yield opened[numbers][:, :, None] & above & ~apart


def absorb(products, matrix):
    """Integrate the random effects out.

    Parameters
    ----------
    products : Products
    matrix : ndarray of shape (n_effects, n_effects)
        Lambda.

    Returns
    -------
    log_determinant : float
        Of Lambda' Z'Z Lambda + I.
    explained : ndarray of shape (n_fixed + 1, n_fixed + 1)
        What the effects take away from the products of [X y].
    """
    log_determinant, width = 0.0, products.zr.shape[1]
    explained = np.zeros((width, width))
    for _, root, half in _solve(products, matrix):
        log_determinant += 2 * np.log(np.einsum("bii->bi", root)).sum()
        explained += np.einsum("bik,bil->kl", half, half)
    return log_determinant, explained


def _solve(products, matrix):
    """Yield numbers of the effects, Cholesky root and root^-1 Lambda' Z'[X y]."""
    blocks = products.blocks
    spread = blocks.spread(matrix)
    for numbers, zz, factor in zip(blocks.members, products.zz, spread):
        turned = np.swapaxes(factor, 1, 2)
        system = turned @ zz @ factor + np.eye(numbers.shape[1])
        root = np.linalg.cholesky(system)
        yield numbers, root, np.linalg.solve(root, turned @ products.zr[numbers])


@dataclass(frozen=True)
class LinearFit:
    """The best fixed effects for given theta.

    Attributes
    ----------
    log_likelihood : float
        Maximised over beta and sigma, or restricted (REML).
    beta : ndarray of shape (n_fixed,)
    covariance : ndarray of shape (n_fixed, n_fixed)
    sigma : float
    determined : bool
        Whether the rows determine all of beta.
    """

    log_likelihood: float
    beta: np.ndarray
    covariance: np.ndarray
    sigma: float
    determined: bool

    def turned_back(self, turn, nothing, reml):
        """Return the same fit for columns as they were before they were turned.

        Parameters
        ----------
        turn : ndarray of shape (n_fixed, n_fixed)
            See :func:`~skprivbn.mixed_model._updates.decorrelate`.
        nothing : ndarray of bool of shape (n_fixed,)
            Columns of which nothing is left.
        reml : bool

        Returns
        -------
        fit : LinearFit
            With the smallest coefficients where rows do not determine them.
        """
        if np.array_equal(turn, np.eye(len(turn))):
            return self
        beta, _ = least_coefficients(turn @ self.beta, turn, nothing)
        covariance = turn @ self.covariance @ turn.T
        value = self.log_likelihood
        if reml:
            # the restricted likelihood depends on the units of the features
            value += np.log(np.diag(turn)[~nothing]).sum()
        return replace(self, log_likelihood=value, beta=beta, covariance=covariance)


def profile(log_determinant, explained, products, n_rows, reml):
    """Maximise the likelihood over beta and sigma.

    Parameters
    ----------
    log_determinant, explained :
        Of :func:`absorb`.
    products : ndarray of shape (n_fixed + 1, n_fixed + 1)
        Of [X y].
    n_rows : int
    reml : bool

    Returns
    -------
    fit : LinearFit
    """
    left = products - explained
    n_fixed = len(left) - 1
    values, vectors = np.linalg.eigh(left[:-1, :-1])
    known = values > 1e-11 * max(values[-1], 1e-300) if n_fixed else values > 0
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    beta = inverse @ left[:-1, -1]
    n_known = int(np.count_nonzero(known))
    residual = max(left[-1, -1] - left[:-1, -1] @ beta, 1e-12 * products[-1, -1])
    n_free = max(n_rows - n_known * reml, 1)
    deviance = log_determinant + n_free * (1 + np.log(2 * np.pi * residual / n_free))
    if reml:
        deviance += np.log(values[known]).sum()
    variance = residual / n_free
    return LinearFit(
        -deviance / 2, beta, variance * inverse, variance**0.5, n_known == n_fixed
    )


def stencil(theta):
    """Return points around theta that give gradient and Hessian there.

    Parameters
    ----------
    theta : ndarray of shape (n_theta,)

    Returns
    -------
    points : ndarray of shape (n_points, n_theta)
        Theta itself first.
    """
    steps = _STEP * np.eye(len(theta))
    i, j = np.triu_indices(len(theta), 1)
    here = np.zeros((1, len(theta)))
    away = [here, steps, -steps, 2 * steps, -2 * steps, steps[i] + steps[j]]
    return theta + np.concatenate(away)


def _derivatives(values, size):
    """Return gradient and Hessian from the values on a stencil."""
    bounds = np.cumsum([1, size, size, size, size])
    centre, plus, minus, far_plus, far_minus, both = np.split(values, bounds)
    gradient = (8 * (plus - minus) - (far_plus - far_minus)) / (12 * _STEP)
    hessian = np.diag((plus - 2 * centre + minus) / _STEP**2)
    i, j = np.triu_indices(size, 1)
    hessian[i, j] = hessian[j, i] = (both - plus[i] - plus[j] + centre) / _STEP**2
    return gradient, hessian


class ThetaSearch:
    """Newton's method on theta, from values on stencils; never ends below its best.

    The log-likelihood is even in the columns of Lambda, so that no bound is needed.

    Parameters
    ----------
    theta : ndarray of shape (n_theta,)
        To start from.
    tol : float
        Stop when the next step promises a smaller gain.

    Attributes
    ----------
    theta : ndarray of shape (n_theta,)
        Around which the log-likelihood is to be looked at next.
    """

    def __init__(self, theta, tol):
        self.theta = theta
        self.tol = tol
        self._best = None

    def update(self, values):
        """Move theta.

        Parameters
        ----------
        values : ndarray of shape (n_points,)
            Log-likelihoods on the stencil of theta.

        Returns
        -------
        go_on : bool
            If not, theta is where the search ends, and `values` are about it.
        """
        if self._best is not None:
            best, value, gradient = self._best
            promised = gradient @ (self.theta - best)
            if values[0] - value < 1e-3 * promised - 1e-9:
                self.theta = (self.theta + best) / 2
                return bool(np.abs(self.theta - best).max() > 1e-9)
        if not len(self.theta):
            return False
        gradient, hessian = _derivatives(values, len(self.theta))
        self._best = self.theta, values[0], gradient
        curvature, vectors = np.linalg.eigh(-hessian)
        # Where it is not concave, a step of about the same size uphill.
        size = np.maximum(np.abs(curvature), 1e-6 * np.abs(curvature).max() + 1e-12)
        step = vectors @ ((vectors.T @ gradient) / size)
        longest = 2 * max(np.linalg.norm(self.theta), 0.1)
        step *= min(longest / max(np.linalg.norm(step), 1e-300), 1.0)
        if gradient @ step / 2 <= self.tol:
            return False
        self.theta = self.theta + step
        return True


def predict_effects(products, matrix, fit):
    """Return means and standard deviations of the effects given the rows.

    Parameters
    ----------
    products : Products
    matrix : ndarray of shape (n_effects, n_effects)
        Lambda.
    fit : LinearFit

    Returns
    -------
    effects : ndarray of shape (n_numbers,)
    covariances : ndarray of shape (n_numbers, n_effects)
        With the effects of the same level; standard deviations are the roots of
        ``covariances[i, column[i]]``.
    """
    blocks, covariances = products.blocks, []
    contrast = np.append(-fit.beta, 1.0)[:, None]
    effects = np.zeros(len(blocks.column))
    spread = blocks.spread(matrix)
    for (numbers, root, half), factor in zip(_solve(products, matrix), spread):
        u = np.linalg.solve(np.swapaxes(root, 1, 2), half @ contrast)
        effects[numbers] = (factor @ u)[..., 0]
        thin = np.linalg.solve(root, np.swapaxes(factor, 1, 2))
        covariances.append(fit.sigma**2 * np.swapaxes(thin, 1, 2) @ thin)
    return effects, blocks.within_levels(covariances, len(matrix))
