"""Expectation maximisation for collective graphical models.

The true contingency tables n are hidden, the noisy ones y are seen. The E-step finds
the most probable n given y and the current potentials, the M-step the potentials whose
marginals are n / N.

References
----------
G. Bernstein, R. McKenna, T. Sun, D. Sheldon, M. Hay, G. Miklau (2017). Differentially
private learning of undirected graphical models using collective graphical models.
ICML.
"""

import numpy as np

from skprivbn.graphical_model._estimation import maximise_likelihood
from skprivbn.utils._linalg import single_threaded
from skprivbn.utils._progress import NO_PROGRESS

#: EM iterations without getting closer after which it stops: a field cannot follow the
#: negative noise of empty cells, so that sparse tables may stay further away
_PATIENCE = 10


def log_noise_gradient(tables, expected):
    """Gradient of log p(y | n) with respect to n."""
    residual = tables.values - expected
    if tables.kind == "laplace":
        return np.sign(residual) / tables.mean_absolute_noise
    return residual / tables.variance


def nonlinear_belief_propagation(tables, theta, n_records, max_iter=100, tol=1e-4):
    """Algorithm 1 of the paper: the E-step as repeated belief propagation.

    The damping is 2 / (k + 1) in iteration k; with a constant one the iterates keep
    jumping around the kinks of the Laplace likelihood.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    theta : ndarray of shape (n_parameters,)
        Current potentials.
    n_records : float
        Number of records.
    max_iter : int, default=100
        Most iterations.
    tol : float, default=1e-4
        Stop when the mean change of a cell is below this fraction of the noise.

    Returns
    -------
    expected : ndarray of shape (n_parameters,)
        Most probable true tables.
    """
    layout = tables.layout
    expected = n_records * layout.marginals(theta)[1]
    smallest = tol * tables.mean_absolute_noise.mean()
    for k in range(1, max_iter + 1):
        shifted = theta + log_noise_gradient(tables, expected)
        proposal = n_records * layout.marginals(shifted)[1]
        change = 2 / (k + 1) * (proposal - expected)
        expected = expected + change
        if np.abs(change).mean() <= smallest:
            break
    return expected


def expected_tables_by_dual(tables, theta, n_records, shift, max_iter=50, tol=1e-3):
    """The E-step through its dual, smooth and convex with at most a box constraint.

    The most probable tables are N times the marginals at ``theta + shift``, where the
    shift minimises N A(theta + shift) - shift' y over the box |shift| <= 1 / scale
    for Laplace noise, and the same plus variance shift^2 / 2 for Gaussian noise. So
    ``theta + shift`` is at once the M-step's answer.

    Parameters
    ----------
    tables, theta, n_records
        See :func:`nonlinear_belief_propagation`.
    shift : ndarray of shape (n_parameters,)
        Start, for instance the previous step's.
    max_iter : int, default=50
        Most iterations.
    tol : float, default=1e-3
        Stop when expected marginals are as close to their optimum. Solving for more
        digits takes longer and does not make a better EM.

    Returns
    -------
    shift : ndarray of shape (n_parameters,)
    expected : ndarray of shape (n_parameters,)
        Most probable true tables.
    """
    layout, laplace = tables.layout, tables.kind == "laplace"
    scale = 1 / tables.mean_absolute_noise
    ridge = np.zeros_like(scale) if laplace else tables.variance * scale**2 / n_records
    wanted = tables.values / n_records

    def objective(unit):
        log_partition, model = layout.marginals(theta + scale * unit)
        value = log_partition - (scale * unit) @ wanted + 0.5 * ridge @ unit**2
        return value, scale * (model - wanted) + ridge * unit, model

    unit, model = _minimise_in_box(
        objective,
        shift / scale,
        # if cells were independent
        lambda model: scale**2 * np.maximum(model, 1e-12) + ridge,
        1.0 if laplace else np.inf,
        tol * scale.min(),
        max_iter,
    )
    return unit * scale, n_records * model


def _minimise_in_box(objective, x, curvature, bound, tol, max_iter):
    """Spectral projected gradient: minimise a convex function over |x| <= bound.

    `objective` gives value, gradient and something else, from which `curvature` makes
    a diagonal approximation of the Hessian at the start. L-BFGS-B of scipy spends
    most of its time on thousands of bounds, here for problems that a few steps solve.

    Returns the minimiser and the something else there.

    References
    ----------
    E. Birgin, J. Martinez, M. Raydan (2000). Nonmonotone spectral projected gradient
    methods on convex sets. SIAM Journal on Optimization.
    """
    x = np.clip(x, -bound, bound)
    value, gradient, extra = objective(x)
    metric = curvature(extra)
    recent, step = [value], 1.0
    for _ in range(max_iter):
        if np.abs(np.clip(x - gradient, -bound, bound) - x).max() <= tol:
            break
        direction = np.clip(x - step * gradient / metric, -bound, bound) - x
        slope, fraction = gradient @ direction, 1.0
        while True:
            move = fraction * direction
            value, new_gradient, extra = objective(x + move)
            if value <= max(recent[-5:]) + 1e-4 * fraction * slope or fraction < 1e-9:
                break
            fraction /= 2
        change = move @ (new_gradient - gradient)
        step = np.clip(metric @ move**2 / change, 1e-3, 1e3) if change > 0 else 1e3
        x, gradient = x + move, new_gradient
        recent.append(value)
    return x, extra


@single_threaded
def collective_em(
    tables,
    e_step="dual",
    discrepancy=0.7,
    max_iter=2000,
    tol=1e-6,
    progress=NO_PROGRESS,
):
    """Algorithm 2 of the paper, stopped before it learns the noise.

    Parameters
    ----------
    tables : NoisyTables
        What was released; with noise.
    e_step : {"dual", "nlbp"}, default="dual"
        How the E-step is solved.
    discrepancy : float, default=0.7
        Stop when the mean distance between noisy and expected tables is at most this
        fraction of the mean absolute noise, or no longer falls. Zero goes to the
        limit, which overfits.
    max_iter : int, default=2000
        Most EM iterations.
    tol : float, default=1e-6
        Stop when no potential changes by more.
    progress : Progress, default=NO_PROGRESS
        Told of every iteration.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    n_iter : int
    converged : bool
        False if the iterations ran out before a stopping rule was met.
    """
    layout, n_records = tables.layout, tables.n_records()
    theta = np.zeros(layout.n_parameters)
    shift = np.zeros_like(theta)
    best, best_iter = np.inf, 0
    for n_iter in range(1, max_iter + 1):
        with progress.step() as tell:
            if e_step == "dual":
                shift, expected = expected_tables_by_dual(
                    tables, theta, n_records, shift
                )
                new = theta + shift
            else:
                expected = nonlinear_belief_propagation(tables, theta, n_records)
                new, _ = maximise_likelihood(
                    layout, expected / n_records, 0.0, theta, max_iter=200, tol=1e-7
                )
            change, theta = np.abs(new - theta).max(), new
            residual = np.abs(tables.values - expected)
            distance = (residual / tables.mean_absolute_noise).mean()
            tell(distance=distance)
        if distance <= discrepancy or change <= tol:
            return theta, n_iter, True
        if distance < 0.999 * best:
            best, best_iter = distance, n_iter
        elif discrepancy > 0 and n_iter - best_iter >= _PATIENCE:
            return theta, n_iter, True
    return theta, n_iter, False
