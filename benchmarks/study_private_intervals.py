"""Do 95 % intervals of private fits cover the truth in 95 % of the studies?

Run with ``python benchmarks/study_private_intervals.py moments`` (half a minute of one
core), ``weights``, ``tables``, ``mixed`` and ``mixture`` (minutes; ``--jobs 3`` does
the epsilons beside each other); all by default.
Every study draws new rows and new noise; the share of intervals that cover the known
truth is kept, for moments, for weights of a Gaussian network of the right graph, for
marginals of a chain, on a clique and across two, and for parameters of a mixture. Of
linear mixed models, errors of estimates are kept, too, beside those of fits without
noise.
"""

import argparse
import warnings

import numpy as np
from _record import record
from joblib import Parallel, delayed
from scipy.optimize import linear_sum_assignment

from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA
from skprivbn.structure import FederatedGaussianBayesianNetwork

BOX = {"delta": 1e-6, "bounds": (-8.0, 8.0)}
WEIGHTS = np.array([[0, 0.8, 0, 0.5], [0, 0, -0.6, 0], [0, 0, 0, 0.7], [0, 0, 0, 0]])
MEAN = np.array([1.0, 0.0, -0.5, 0.0])
TOTAL = np.linalg.inv(np.eye(4) - WEIGHTS)
COVARIANCE = TOTAL.T @ TOTAL
SHARES = np.array([0.3, 0.3, 0.4])
CENTRES = np.array([[-4.0, -4.0], [4.0, -2.0], [0.0, 5.0]])
SPREADS = np.array([[[1, 0.5], [0.5, 1]], [[1.5, 0], [0, 0.7]], [[1, -0.3], [-0.3, 1]]])


def covers(intervals, truth):
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def moments(rng, epsilon):
    """Means and covariances of 5,000 rows."""
    X = rng.multivariate_normal(MEAN, COVARIANCE, size=5_000)
    found = FederatedPCA(epsilon=epsilon, **BOX).fit(X).conf_int()
    upper = np.triu_indices(4)
    yield "means", covers(found["mean_"], MEAN)
    yield "covariances", covers(found["covariance_"], COVARIANCE)[upper]


def weights(rng, epsilon):
    """Weights of a Gaussian network of 40,000 rows, where its graph is right."""
    X = rng.multivariate_normal(np.zeros(4), COVARIANCE, size=40_000)
    learner = FederatedGaussianBayesianNetwork(
        "equal_variance", epsilon=epsilon, **BOX
    ).fit(X)
    if np.array_equal(learner.adjacency_matrix_, WEIGHTS != 0):
        found = learner.conf_int(n_bootstrap=40, random_state=rng.integers(2**31))
        yield "weights", covers(found["weights"], WEIGHTS)[WEIGHTS != 0]


def tables(rng, epsilon):
    """Marginals of a chain of three columns, of 3,000 rows."""
    columns = [rng.integers(3, size=3_000)]
    steps = [keep * np.eye(3) + (1 - keep) / 3 for keep in (0.6, 0.5)]
    for keep in (0.6, 0.5):
        stays = rng.random(3_000) < keep
        columns.append(np.where(stays, columns[-1], rng.integers(3, size=3_000)))
    learner = DPCGMLearner("chain", states=[3] * 3, epsilon=epsilon).fit(
        np.column_stack(columns)
    )
    options = {"n_bootstrap": 20, "random_state": int(rng.integers(2**31))}
    truth = {(0, 1): steps[0] / 3, (0, 2): steps[0] @ steps[1] / 3}
    for scope, name in (((0, 1), "marginals"), ((0, 2), "marginals of no clique")):
        yield name, covers(learner.conf_int(scope, **options), truth[scope])


def mixed(rng, epsilon):
    """Fixed effects of 10,000 rows of 20 clusters; errors of all parameters."""
    X, cluster = rng.normal(size=(10_000, 3)), rng.integers(20, size=10_000)
    truth, scale = np.array([1.0, 0.5, -0.3, 0.2]), 0.5
    y = truth[0] + X @ truth[1:] + rng.normal(size=10_000)
    y += scale * rng.normal(size=20)[cluster]
    bounds = [(-4.0, 4.0)] * 3 + [(-5.0, 7.0)]
    noise = {"epsilon": epsilon, "delta": 1e-6, "bounds": bounds}
    learner = PrivateGLMMRegressor(clusters=range(20), **noise)
    learner.fit(X, y, cluster=cluster)
    intervals = np.array(list(learner.summary().conf_int().values()))
    yield "intercept", covers(intervals, truth)[0]
    yield "coefficients", covers(intervals, truth)[1:]
    exact = PrivateGLMMRegressor().fit(X, y, cluster=cluster)
    for name, model in (("", learner), (" without noise", exact)):
        error = np.mean((model.coef_ - truth[1:]) ** 2)
        yield f"squared error of coefficients{name}", error
        error = (model.random_effect_scale_ - scale) ** 2
        yield f"squared error of the scale of effects{name}", error


def mixture(rng, epsilon):
    """Weights, means and covariances of three components of 10,000 rows."""
    component = rng.choice(3, 10_000, p=SHARES)
    roots = np.linalg.cholesky(SPREADS)[component]
    X = np.einsum("nij,nj->ni", roots, rng.normal(size=(10_000, 2)))
    X += CENTRES[component]
    learner = PPEMGaussianMixture(
        3, epsilon=epsilon, random_state=int(rng.integers(2**31)), **BOX
    ).fit(X)
    found = learner.conf_int(n_bootstrap=12, random_state=int(rng.integers(2**31)))
    gaps = ((CENTRES[:, np.newaxis] - learner.means_) ** 2).sum(axis=2)
    _, order = linear_sum_assignment(gaps)
    yield "weights", covers(found["weights_"][order], SHARES)
    yield "means", covers(found["means_"][order], CENTRES)
    inside = covers(found["covariances_"][order], SPREADS)
    yield "covariances", inside[:, *np.triu_indices(2)]


def repeat(study, epsilon, n_studies):
    """Return what each of some studies found, by name."""
    warnings.simplefilter("ignore")
    rng, found = np.random.default_rng(0), {}
    for _ in range(n_studies):
        for name, inside in study(rng, epsilon):
            found.setdefault(name, []).append(np.mean(inside))
    return found


def measure(study, n_studies, n_jobs):
    """Yield how often intervals cover the truth, or how large errors are."""
    epsilons = (0.5, 1.0, 5.0)
    found = Parallel(n_jobs, return_as="generator")(
        delayed(repeat)(study, epsilon, n_studies) for epsilon in epsilons
    )
    for epsilon, hits in zip(epsilons, found):
        for name, shares in hits.items():
            row = {"what": name, "epsilon": epsilon, "studies": len(shares)}
            kind, value = "coverage", np.mean(shares)
            if name.startswith("squared "):
                row["what"], kind = name.removeprefix("squared "), "error"
                value = value**0.5
            row[kind] = value
            print(row, flush=True)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    studies = ["moments", "weights", "tables", "mixed", "mixture"]
    parser.add_argument("names", nargs="*", choices=[*studies, []])
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.names or studies:
        rows = list(measure(globals()[name], arguments.studies, arguments.jobs))
        record(f"private_intervals_{name}", rows, level=0.95)


if __name__ == "__main__":
    main()
