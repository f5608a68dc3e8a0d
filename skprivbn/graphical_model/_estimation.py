"""Potentials from noisy tables: likelihood, empirical Bayes, collective EM.

Post-processing of what was released, which sees no row.

In expectation maximisation for collective graphical models, the true contingency tables
n are hidden, the noisy ones y are seen. The E-step finds the most probable n given y
and the current potentials, the M-step the potentials whose marginals are n / N.

References
----------
G. Bernstein, R. McKenna, T. Sun, D. Sheldon, M. Hay, G. Miklau (2017). Differentially
private learning of undirected graphical models using collective graphical models.
ICML.
"""

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from skprivbn.graphical_model._elimination import EliminationPlan
from skprivbn.graphical_model._random_field import MarkovRandomField
from skprivbn.graphical_model._tables import project_to_simplex
from skprivbn.utils import warn_user
from skprivbn.utils._linalg import single_threaded
from skprivbn.utils._progress import NO_PROGRESS

#: penalty that keeps the maximum likelihood of exact tables finite
_EXACT_PENALTY = 1e-9
#: a distance between learnt and released marginals that is worth a warning
_FAR = 0.02
#: log-potentials of the naive estimator stay within this bound: its optimum may be
#: at infinity
_BOUND = 30.0
#: the mode shrinks more than is good for the Kullback-Leibler divergence: in
#: simulations (five kinds of potentials) a wider prior in the last fit was better
_LOOSEN = 1.5
#: updates of weights and prior variance, and standard errors that are no signal
_N_UPDATES, _MIN_SIGNAL = 5, 2.0
#: EM iterations without getting closer after which it stops: a field cannot follow the
#: negative noise of empty cells, so that sparse tables may stay further away
_PATIENCE = 10


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
    tables = layout.split(np.where(layout.support, theta, -np.inf))
    potentials = {
        tuple(nodes[i] for i in clique): tables[number]
        for clique, number in zip(layout.cliques, layout.ties)
    }
    exact = isinstance(layout.inference, EliminationPlan)
    return MarkovRandomField(nodes, states, potentials, "exact" if exact else "loopy")


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


def projected_marginals(tables):
    """Marginals from noisy counts, each table projected onto its simplex."""
    layout = tables.layout
    scaled = tables.values / tables.n_records()
    projected = np.zeros(layout.n_parameters)
    for start, size, total in zip(layout.starts, layout.n_cells, layout.multiplicity):
        cells = start + np.flatnonzero(layout.support[start : start + size])
        projected[cells] = project_to_simplex(scaled[cells], float(total))
    return projected


@single_threaded
def maximise_likelihood(
    layout, marginals, penalty, theta=None, max_iter=1000, tol=1e-9, bound=_BOUND
):
    """Maximise marginals' theta - A(theta) - penalty' theta^2 over |theta| <= bound.

    Parameters
    ----------
    layout : TableLayout
        The field.
    marginals : ndarray of shape (n_parameters,)
        Wanted marginals; they need not be consistent.
    penalty : float or ndarray of shape (n_parameters,)
        Ridge penalty.
    theta : ndarray, default=None
        Start, zero by default.
    max_iter : int, default=1000
        Iterations of L-BFGS.
    tol : float, default=1e-9
        Stop when no component of the gradient exceeds it.
    bound : float or None, default=30
        Bound on the absolute value of parameters.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    n_iter : int
    """

    def objective(theta):
        log_partition, model = layout.marginals(theta)
        value = log_partition - theta @ marginals + np.sum(penalty * theta * theta)
        return value, model - marginals + 2 * penalty * theta

    start = np.zeros(layout.n_parameters) if theta is None else theta
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=None if bound is None else [(-bound, bound)] * start.size,
        options={
            "maxiter": max_iter,
            "maxfun": 5 * max_iter,
            "ftol": 1e-13,
            "gtol": tol,
            "maxcor": 20,
        },
    )
    return result.x, result.nit


@single_threaded
def naive_mle(tables, penalty, max_iter=1000, progress=NO_PROGRESS, projection=True):
    """Maximum likelihood as if the noisy tables were the truth.

    The penalty is lowered to its value in steps of ten, each fit starting from the
    one before.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    penalty : float
        Ridge penalty lambda.
    max_iter : int, default=1000
        Iterations for each penalty.
    progress : Progress, default=NO_PROGRESS
        Told of every penalty.
    projection : bool, default=True
        Whether tables are projected first; else negative counts stay.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    n_iter : int
        Total over penalties.
    converged : bool
        False if the iterations for the last penalty ran out.
    """
    marginals = tables.values / tables.n_records()
    if projection:
        marginals = projected_marginals(tables)
    n_steps = max(int(np.ceil(np.log10(1e-2 / penalty) - 1e-9)), 0)
    path = penalty * 10.0 ** np.arange(n_steps, -1, -1)
    theta, n_iter = None, 0
    for value in path:
        with progress.step() as tell:
            theta, n = maximise_likelihood(
                tables.layout, marginals, value, theta, max_iter
            )
            tell(penalty=value)
        n_iter += n
    return theta, n_iter, n < max_iter


def signal_strength(tables):
    """How far the tables are from those of a uniform field, in standard errors."""
    layout = tables.layout
    support = layout.support
    share = support / layout.spread(np.add.reduceat(support, layout.starts))
    expected = tables.n_records() * layout.spread(layout.multiplicity) * share
    squares = (tables.values - expected) ** 2 / (tables.variance + expected + 1e-12)
    excess = squares.sum() - tables.n_cells
    return excess / np.sqrt(tables.fourth_moment_excess * tables.n_cells)


@single_threaded
def empirical_bayes(tables, progress=NO_PROGRESS):
    """Regularised estimate whose strength of regularisation comes from the tables.

    Noisy counts are taken as Gaussian around the model's expected counts, with the
    variance of the privacy noise plus that of sampling, and log-potentials as
    Gaussian around zero. The prior variance is the one for which the fit leaves as
    much misfit as the known noise should: MacKay's fixed point, prior variance =
    squared norm of the potentials / effective number of parameters, where the
    latter is the number of cells minus the weighted sum of squared residuals.

    If the tables are fewer than two standard errors away from those of a uniform field,
    the estimate is the uniform field. Above, potentials are multiplied by 1 -
    (2 / signal)^2: noise may look like a signal of some standard errors, and the prior
    variance fitted to it would be far too large.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    progress : Progress, default=NO_PROGRESS
        Told of every update, the start included.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    """
    with progress.step() as tell:
        signal = signal_strength(tables)
        tell(signal=signal)
        if signal <= _MIN_SIGNAL:
            return np.zeros(tables.layout.n_parameters)
        theta = _ridge_start(tables)
    # From above: starting below the fixed point can collapse to a uniform field.
    prior_variance = 1.0
    for _ in range(_N_UPDATES):
        with progress.step() as tell:
            theta, prior_variance, misfit = refine(tables, theta, prior_variance)
            tell(misfit=misfit)
    with progress.step() as tell:
        theta, misfit = _weighted_least_squares(
            tables, _LOOSEN * prior_variance, theta, 40, 1e-4
        )
        tell(misfit=misfit)
    return theta * (1 - (_MIN_SIGNAL / signal) ** 2)


@single_threaded
def refine(tables, theta, prior_variance, n_steps=10):
    """One update of :func:`empirical_bayes`, from where it is.

    Parameters
    ----------
    tables : NoisyTables
        What was released.
    theta : ndarray of shape (n_parameters,)
        Potentials to start from.
    prior_variance : float
        Of potentials.
    n_steps : int, default=10
        Most iterations of L-BFGS.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
    prior_variance : float
        For the next update.
    misfit : float
        Weighted sum of squared residuals.
    """
    theta, misfit = _weighted_least_squares(tables, prior_variance, theta, n_steps)
    update = theta @ theta / max(tables.n_cells - misfit, 1.0)
    update = np.clip(update, prior_variance / 4, prior_variance * 2)
    return theta, min(update, 10.0), misfit


def _ridge_start(tables):
    """Ridge estimate with a penalty that grows with the noise per cell."""
    layout, n_records = tables.layout, tables.n_records()
    cells = layout.spread(layout.n_cells)
    relative_noise = np.sqrt(tables.variance + n_records / cells) * cells / n_records
    penalty = 2 / cells * relative_noise**1.5
    marginals = tables.values / n_records
    # the penalty bounds the potentials
    return maximise_likelihood(
        layout, marginals, penalty, max_iter=60, tol=1e-4, bound=None
    )[0]


def _weighted_least_squares(tables, prior_variance, theta, n_steps, tol=1e-3):
    """Fit expected counts to the tables, with a Gaussian prior on potentials.

    Weights are those of the potentials to start from. Ends where a step improves on the
    objective by less than a share `tol`: going on changes potentials that the tables
    hardly know about. Returns the potentials and the weighted sum of squared residuals.
    """
    layout, n_records = tables.layout, tables.n_records()
    start = layout.marginals(theta)[1]
    # the one keeps empty cells of exact tables from having infinite weight
    variance = tables.variance + n_records * start + 1.0
    # Curvature if cells were independent; without this scaling convergence is slow.
    curvature = (n_records * start) ** 2 / variance + 1 / prior_variance
    scale = 1 / np.sqrt(curvature)

    def objective(scaled):
        theta = scaled * scale
        marginals = layout.marginals(theta)[1]
        residual = tables.values - n_records * marginals
        weighted = residual / variance
        misfit = residual @ weighted
        # The covariance of the cells times `weighted`, as a directional derivative.
        step = 1e-5 / max(np.abs(weighted).max(), 1e-300)
        shifted = layout.marginals(theta + step * weighted)[1]
        gradient = theta / prior_variance - n_records * (shifted - marginals) / step
        value = 0.5 * (misfit + theta @ theta / prior_variance)
        return value, scale * gradient

    result = minimize(
        objective,
        theta / scale,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": n_steps, "maxcor": 20, "ftol": tol, "gtol": 1e-8},
    )
    found = result.x * scale
    return found, 2 * result.fun - found @ found / prior_variance


def log_noise_gradient(tables, expected):
    """Gradient of log p(y | n) with respect to n."""
    residual = tables.values - expected
    if tables.kind == "laplace":
        return np.sign(residual) / tables.mean_absolute_noise
    return residual / tables.variance


def nonlinear_belief_propagation(
    tables, theta, n_records, max_iter=100, tol=1e-4, damping=None
):
    """Algorithm 1 of the paper: the E-step as repeated belief propagation.

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
    damping : float, default=None
        Weight of the tables before in every iteration, 1 - alpha of the paper. With a
        constant one the iterates keep jumping around the kinks of the Laplace
        likelihood. None gives 1 - 2 / (k + 1) in iteration k, with which they do not.

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
        alpha = 2 / (k + 1) if damping is None else 1 - damping
        change = alpha * (proposal - expected)
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
    damping=None,
):
    """Algorithm 2 of the paper, stopped before it learns the noise.

    Where the paper writes n for the hidden tables and y for the released ones, these
    are `expected` and ``tables.values``; N is `n_records`.

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
    damping : float, default=None
        Of "nlbp", see :func:`nonlinear_belief_propagation`.

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
            if e_step == "dual":  # whose shift is the M-step's answer as well
                shift, expected = expected_tables_by_dual(
                    tables, theta, n_records, shift
                )
                new = theta + shift
            else:
                # E-step: most probable tables; M-step: potentials that expect these
                expected = nonlinear_belief_propagation(
                    tables, theta, n_records, damping=damping
                )
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
