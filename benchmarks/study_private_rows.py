"""How many rows an estimator needs at an epsilon to be within 10 % of the exact fit.

Run with ``python benchmarks/study_private_rows.py`` (some CPU minutes), or with names
of estimators, which replaces their rows. For every
estimator with `epsilon`, by its defaults, the least number of rows of a coarse grid at
which four of five fits are within 10 %, and so at every larger number of the grid:

- of scaler, imputer and bins: means, medians and edges are off by at most a tenth of a
  standard deviation, standard deviations by at most 10 %;
- of PCA: the variances of the first two components are off by at most 10 %;
- of mixed models: coefficients, for columns with a standard deviation of one, and the
  standard deviation of effects are off by at most 0.1;
- of FCI: the F1 score of adjacencies is at least 0.9 times the exact fit's;
- of mixtures, networks and tables: of the log-likelihood of fresh rows that the exact
  fit gains over one Gaussian, or over independent columns, 90 % is kept.
"""

import argparse
import sys
import time
import warnings

import numpy as np
from _record import read, record
from sklearn.base import clone

from skprivbn.datasets import load_asia, make_linear_sem
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.metrics import skeleton_f1
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)

GRID = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
BUDGETS = [(e, d) for e in (5.0, 1.0, 0.5) for d in (1e-6, 0.0)]
SEEDS, ENOUGH, FRESH = 5, 4, 5_000
ACCOUNTANT = PrivacyAccountant(np.inf, 0.5)
BOX = {"bounds": (-5.0, 5.0)}
WIDE = {"bounds": (-8.0, 8.0)}


class MixedModel(PrivateGLMMRegressor):
    """A linear mixed model whose last two columns are the target and the cluster."""

    def fit(self, X):
        """Learn from columns that stand beside each other."""
        return super().fit(X[:, :-2], X[:, -2], cluster=X[:, -1].astype(int))


def clustered_rows(n_rows, seed):
    """Three columns, a target with noise of one, effects of 0.5 of twenty clusters."""
    rng = np.random.default_rng(seed)
    X, cluster = rng.normal(size=(n_rows, 3)), rng.integers(20, size=n_rows)
    y = 1 + X @ [0.5, -0.3, 0.2] + rng.normal(size=n_rows)
    y += 0.5 * rng.normal(size=20)[cluster]
    return np.column_stack([X, y, cluster]), None


def normal_rows(n_rows, seed):
    """Five columns of a linear network, each with a standard deviation of one."""
    X, weights = make_linear_sem(n_rows + FRESH, 5, random_state=seed)
    return X / X.std(axis=0), weights != 0


def blobs(n_rows, seed):
    """Three components in two dimensions, at least six standard deviations apart."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-4.0, -4.0], [4.0, -2.0], [0.0, 5.0]])
    centre = centres[rng.choice(3, n_rows + FRESH)]
    return centre + rng.normal(size=centre.shape), None


def labels(n_rows, seed):
    """The eight binary columns of the Asia network."""
    asia = load_asia()
    return asia.encode(asia.sample(n_rows + FRESH, random_state=seed)), None


def within(exact, private, fresh, truth):
    """Of transformers: attributes within a tenth of a standard deviation, or 10 %."""
    spread, gaps = fresh.std(axis=0), []
    for name in ("mean_", "scale_", "statistics_", "bin_edges_"):
        if hasattr(exact, name):
            pairs = zip(getattr(exact, name), getattr(private, name), spread)
            # the outer edges of bins are the bounds
            inner = slice(1, -1) if name == "bin_edges_" else slice(None)
            gaps += [
                np.max(np.abs(np.atleast_1d(a - b)[inner])) / s for a, b, s in pairs
            ]
    return max(gaps) <= 0.1


def same_effects(exact, private, fresh, truth):
    """Of mixed models: coefficients and the scale of effects are off by 0.1 at most."""
    gaps = np.append(private.coef_, private.random_effect_scale_)
    gaps -= np.append(exact.coef_, exact.random_effect_scale_)
    return np.max(np.abs(gaps)) <= 0.1


def same_variances(exact, private, fresh, truth):
    """Of PCA: the first two components have variances within 10 %."""
    ratio = private.explained_variance_[:2] / exact.explained_variance_[:2]
    return np.max(np.abs(ratio - 1)) <= 0.1


def same_skeleton(exact, private, fresh, truth):
    """Of FCI: columns are adjacent that are, and others are not."""
    found = [np.triu(model.pag_.marks != 0) for model in (exact, private)]
    best, reached = (skeleton_f1(truth, adjacent) for adjacent in found)
    return reached >= 0.9 * best


def keeps_likelihood(exact, private, fresh, truth):
    """Of models: 90 % of the gain over the simplest model is kept."""
    if len(np.unique(fresh)) <= 2:
        share = fresh.mean(axis=0)
        simplest = np.log(np.where(fresh, share, 1 - share)).sum(axis=1).mean()
    else:
        covariance = np.cov(fresh.T)
        if not hasattr(exact, "weights_") or np.ndim(exact.weights_) != 1:
            covariance = np.diag(np.diag(covariance))
        _, volume = np.linalg.slogdet(2 * np.pi * np.e * covariance)
        simplest = -volume / 2
    gain = exact.score(fresh) - simplest
    return private.score(fresh) - simplest >= 0.9 * gain


CODES = {"states": [[0, 1]] * 8}
COLUMNS = {"parties": {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}}
#: rows, settings of every fit, settings of the private one, and how it is judged
CASES = {
    FederatedStandardScaler: (normal_rows, {}, BOX, within),
    FederatedSimpleImputer: (normal_rows, {}, BOX, within),
    FederatedKBinsDiscretizer: (normal_rows, {}, BOX, within),
    FederatedPCA: (normal_rows, {}, BOX, same_variances),
    PPEMGaussianMixture: (
        blobs,
        {"n_components": 3, "random_state": 0},
        WIDE,
        keeps_likelihood,
    ),
    MixedModel: (
        clustered_rows,
        {"clusters": range(20)},
        {"bounds": [(-4.0, 4.0)] * 3 + [(-5.0, 7.0)]},
        same_effects,
    ),
    FederatedGaussianBayesianNetwork: (normal_rows, {}, BOX, keeps_likelihood),
    FederatedNotearsADMM: (normal_rows, {}, BOX, keeps_likelihood),
    FederatedFCI: (normal_rows, {}, BOX, same_skeleton),
    DPCGMLearner: (labels, CODES, {}, keeps_likelihood),
    FederatedBayesianNetwork: (labels, CODES, {}, keeps_likelihood),
    PrivateK2StructureLearner: (labels, CODES | COLUMNS, {}, keeps_likelihood),
}
#: of columns on shares, the time grows with the rows
MOST_ROWS = {PrivateK2StructureLearner: 10_000}


def is_close(estimator, n_rows, epsilon, delta):
    """Whether enough fits of so many rows are within 10 %."""
    draw, common, more, judge = CASES[estimator]
    bad = 0
    for seed in range(SEEDS):
        X, truth = draw(n_rows, seed)
        exact = estimator(**common)
        exact.set_params(epsilon=None, accountant=None).fit(X[:n_rows])
        private = clone(exact).set_params(
            epsilon=epsilon, delta=delta, accountant=ACCOUNTANT, **more
        )
        bad += not judge(exact, private.fit(X[:n_rows]), X[n_rows:], truth)
        if bad > SEEDS - ENOUGH:
            return False
    return True


def needed_rows(estimator):
    """Yield a row for each budget."""
    grid = [n for n in GRID if n <= MOST_ROWS.get(estimator, GRID[-1])]
    for epsilon, delta in BUDGETS:
        needed = None
        for n_rows in reversed(grid):
            if not is_close(estimator, n_rows, epsilon, delta):
                break
            needed = n_rows
        found = f"{needed:,}" if needed else f"> {grid[-1]:,}"
        row = {"estimator": name_of(estimator), "epsilon": epsilon}
        yield row | {"delta": delta, "rows needed": found}


def name_of(estimator):
    """Return the public name of a case."""
    return "PrivateGLMMRegressor" if estimator is MixedModel else estimator.__name__


def main():
    cases = {name_of(estimator): estimator for estimator in CASES}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*cases, []])
    names, sys.argv[1:] = parser.parse_args().names or list(cases), []
    warnings.simplefilter("ignore")
    known = {}
    for row in (read("private_rows") or {"rows": []})["rows"]:
        known.setdefault(row["estimator"], []).append(row)
    for name in names:
        begun = time.process_time()
        known[name] = list(needed_rows(cases[name]))
        print(*known[name], round(time.process_time() - begun, 1), sep="\n", flush=True)
        rows = [row for each in cases if each in known for row in known[each]]
        record("private_rows", rows, seeds=SEEDS)


if __name__ == "__main__":
    main()
