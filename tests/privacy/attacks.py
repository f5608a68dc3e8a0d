"""Attacks on every path with epsilon, each with neighbours that it hides worst.

Every path has a twin without one of its defences, in which the attack works. Audits
that need many fits are slow tests, and ``benchmarks/study_audits.py`` keeps their
results.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from unittest import mock

import numpy as np
from sklearn.base import BaseEstimator

from skprivbn.graphical_model import DPCGMLearner, _plans, _psgd, _release
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.privacy import (
    CountMechanism,
    DistributedNoise,
    PrivateSearchCV,
    _search,
    add_discrete_gaussian,
)
from skprivbn.privacy._distributed import ChoiceNoise
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)
from skprivbn.structure.k2._shared_search import SharedK2
from tests.privacy.toys import mixed_model
from tests.privacy.watching import Attack, Fits

BOUNDS = {"bounds": (-1.0, 1.0)}
#: of a person's rows, where they are many
N_OWN = 40


@dataclass(frozen=True)
class Audit:
    """A path, neighbours and the claim; and the path without one of its defences.

    Parameters
    ----------
    make : callable
        Returns something with ``run(n_trials, delta, confidence)``.
    claim : float
    twin : str
        What is missing in the twin.
    break_it : callable
        Returns a context in which the defence is gone; or, if `make_twin` is given,
        does nothing.
    make_twin : callable, default=None
        As `make`, if the twin is another attack.
    delta : float, default=0.0
    """

    make: Callable
    claim: float
    twin: str
    break_it: Callable[[], AbstractContextManager] = nullcontext
    make_twin: Callable | None = None
    delta: float = 0.0

    def attack_twin(self, n_trials, confidence):
        """Return what is found of the twin."""
        with self.break_it():
            return (self.make_twin or self.make)().run(n_trials, self.delta, confidence)


def one_more(rows, own, n_own=1, persons=False, n_parties=None):
    """Return two worlds: rows, and the same with somebody's own rows beside them."""
    rows = np.asarray(rows)
    worlds = []
    for n in (0, n_own):
        X, beside = np.append(rows, np.tile(own, (n, 1)), axis=0), {}
        if persons:
            beside["individual"] = np.append(np.arange(len(rows)), np.full(n, -7))
        if n_parties is not None:
            # the person is with the last party, which does not collude
            beside["party"] = np.append(
                np.arange(len(rows)) % n_parties, np.full(n, n_parties - 1)
            )
        worlds.append((X, beside))
    return worlds


def less_noise(times):
    """The twin: noise that is smaller than claimed."""
    share, release = DistributedNoise.share, CountMechanism.release

    def small_share(noise, shape):
        return np.rint(share(noise, shape) / times).astype(np.int64)

    def small_release(noise, counts):
        noisy = release(noise, counts)
        return counts + np.rint((noisy - counts) / times).astype(np.int64)

    def small_gaussian(counts, sensitivity, sigma):
        return add_discrete_gaussian(counts, sensitivity, sigma / times)

    patches = ExitStack()
    for owner, name, small in (
        (DistributedNoise, "share", small_share),
        (CountMechanism, "release", small_release),
        (_psgd, "add_discrete_gaussian", small_gaussian),
    ):
        patches.enter_context(mock.patch.object(owner, name, small))
    return patches


ZEROS, PAIRS = np.zeros((30, 1)), np.zeros((30, 2))
FEW = "a fifth of the noise"
TWO = {"a": [0], "b": [1]}


def numbers(estimator, claim=1.0, width=1, adaptive=False, delta=0.0, **options):
    """Attack an estimator of numbers between bounds, by a row at the far end."""
    estimator.set_params(epsilon=claim, delta=delta, **BOUNDS, **options)
    worlds = one_more(np.zeros((30, width)), np.ones(width))
    return Audit(
        lambda: Attack(estimator, worlds, adaptive=adaptive),
        claim,
        FEW,
        lambda: less_noise(5),
        delta=delta,
    )


def persons(estimator, claim=1.0, width=1, adaptive=False):
    """Attack by a person with many rows; the twin takes them for as many persons."""
    estimator.set_params(epsilon=claim, **BOUNDS)
    rows, own = np.zeros((30, width)), np.ones(width)
    return Audit(
        lambda: Attack(estimator, one_more(rows, own, N_OWN, True), adaptive=adaptive),
        claim,
        "rows of a person count one by one",
        make_twin=lambda: Attack(
            estimator, one_more(rows, own, N_OWN), adaptive=adaptive
        ),
    )


def field(cliques="chain", width=1, **options):
    options = {
        "states": [2] * width,
        "method": "naive",
        "method_params": {"max_iter": 1},
    } | options
    return DPCGMLearner(cliques, **options)


def tables(
    estimator, claim=1.0, width=1, adaptive=False, delta=0.0, own=1, n_own=1, who=False
):
    """Attack an estimator of labels by a row of other labels than all others."""
    estimator.set_params(epsilon=claim, delta=delta)
    worlds = one_more(np.zeros((30, width)), np.full(width, own), n_own, who)
    return Audit(
        lambda: Attack(estimator, worlds, adaptive=adaptive),
        claim,
        FEW,
        lambda: less_noise(5),
        delta=delta,
    )


def colluders(estimator, rows, own, n_colluders, min_honest, claim=1.0):
    """Attack with the noise of some of three parties known; the twin trusts all."""
    estimator.set_params(epsilon=claim, min_honest=min_honest)
    worlds = one_more(rows, own, n_parties=3)

    def trusting():
        broken = type(estimator)(**estimator.get_params(deep=False))
        return Attack(broken.set_params(min_honest=3), worlds, 3, 2)

    return Audit(
        lambda: Attack(estimator, worlds, 3, n_colluders),
        claim,
        "noise for three honest parties, two of whom collude",
        make_twin=trusting,
    )


class Description(BaseEstimator):
    """``describe()`` with the words of an estimator."""

    def __init__(self, epsilon=1.0, states=None):
        self.epsilon, self.states = epsilon, states

    def fit(self, X, individual=None):
        rows = HorizontalPartition.from_rows(X, individual=individual)
        states = {"x0": [0, 1]} if self.states is None else self.states
        summary = rows.describe(states=states, epsilon=self.epsilon, **BOUNDS)
        self.columns_, self.n_rows_ = summary.columns, summary.n_rows
        self.ledger_, self.privacy_spent_ = summary.ledger, summary.privacy_spent
        return self


class Marked:
    """Folds that every row says itself, in its last column: those with 1 are scored."""

    def split(self, X, y=None, groups=None):
        scored = np.asarray(X)[:, -1] == 1
        yield np.flatnonzero(~scored), np.flatnonzero(scored)

    def get_n_splits(self, X=None, y=None, groups=None):
        return 1


def ones(model, X, y):
    """The best score for every row."""
    return np.ones(len(X))


def search(learner, scoring=ones, **options):
    options = {"epsilon": 1.0, "cv": Marked(), "refit": False} | options
    grid = penalties(learner, 1e-4)
    return PrivateSearchCV(learner, grid, (-1.0, 1.0), scoring=scoring, **options)


def penalties(learner, *values):
    """Return a grid of penalties of a naive learner, all else as it is."""
    known = learner.method_params
    return {"method_params": [known | {"regularization": value} for value in values]}


def unbounded(weights, persons, max_weight):
    """The twin: a person's rows weigh what they weigh."""
    return weights


SCORED = np.repeat([[0.0, 0.0], [0.0, 1.0]], 15, axis=0)
PERSONS_OF_FIELD = {"contribution": "normalize", "epsilon": 0.01}


def search_of_persons(**options):
    learner = field(width=2, **PERSONS_OF_FIELD)
    return search(learner, **options), one_more(SCORED, [1, 1], N_OWN, True)


def unbounded_search():
    return mock.patch.object(_search, "bounded_weights", unbounded)


def mean_score(model):
    return [model.best_score_]


def search_with_a_strange_row():
    """A label that is no state, in a row that is learnt from."""
    return Fits(
        search(field(width=2, epsilon=0.01)), one_more(SCORED, [7.0, 0]), mean_score
    )


def failing_fits():
    """The twin: a strange label raises, and its fold gets the lowest score."""
    fit_and_sum, check_rows = _search._fit_and_sum, _release.check_rows

    def lowest_if_it_fails(estimator, data, split, bounds, scoring):
        try:
            return fit_and_sum(estimator, data, split, bounds, scoring)
        except ValueError:
            weights = data[2][split[1]]
            lowest = np.full(len(weights), bounds[0])
            return _search.clipped_sum(lowest, bounds, weights), (0.01, 0.0)

    def check_strictly(*args, **options):
        return check_rows(*args, **options | {"strict": True})

    patches = ExitStack()
    for owner, name, broken in (
        (_search, "_fit_and_sum", lowest_if_it_fails),
        (_plans, "check_rows", check_strictly),
    ):
        patches.enter_context(mock.patch.object(owner, name, broken))
    return patches


def one_of_two(model, X, y):
    """The person's rows are for the first candidate, and against the second."""
    sign = 1 if model.method_params["regularization"] == 1e-4 else -1
    return sign * np.asarray(X)[:, 0]


def choice_of_persons():
    """Only the winner is told; all others' rows are for neither."""
    estimator, worlds = search_of_persons(method="report_noisy_max", scoring=one_of_two)
    estimator.set_params(param_grid=penalties(estimator.estimator, 1e-4, 1e-3))
    return Fits(estimator, worlds, lambda model: [model.best_index_])


def random_trials_of_persons():
    """The best of a secret number of trials, which costs twice what one costs."""
    estimator, worlds = search_of_persons(
        method="random_trials", scoring=one_of_two, epsilon=0.5, cv=0.9
    )
    estimator.set_params(param_grid=penalties(estimator.estimator, 1e-4, 1e-3))
    few = [
        (X[len(SCORED) - 3 :], _from(beside, len(SCORED) - 3)) for X, beside in worlds
    ]
    return Fits(estimator, few, lambda model: [model.best_score_, model.best_index_])


def _from(beside, start):
    return {name: values[start:] for name, values in beside.items()}


class K2Fits(Fits):
    """Fits of private K2 whose tables the attacker sees as they are opened."""

    def __init__(self, parties=None, n_less=0, **options):
        # one record has another value, and so the columns depend on each other less:
        # with four that differ before, K2 finds an edge no more
        X = np.repeat([[1, 1], [0, 0]], 6, axis=0)
        X[:n_less, 1] = 0
        neighbour = X.copy()
        neighbour[n_less] = (0, 1) if n_less == 0 else (1, 0)
        options = {"epsilon": 2.0, "states": [2, 2], "max_parents": 1} | options
        super().__init__(
            PrivateK2StructureLearner(parties, **options),
            [(X, {}), (neighbour, {})],
            self._look,
        )

    def run(self, n_trials, delta, confidence):
        open_counts = SharedK2.open_counts

        def watched(search, transform=None, noise=None):
            self.tables = yield from open_counts(search, transform, noise)
            return self.tables

        with mock.patch.object(SharedK2, "open_counts", watched):
            return super().run(n_trials, delta, confidence)

    def _look(self, model):
        """How much likelier the tables are in the second world; and the parents."""
        ratio = 0.0
        for node, told in self.tables.items():
            family = [node, 1 - node][: told.ndim]
            exact = [_table(X, family) for X, _ in self.worlds]
            ratio += np.abs(told - exact[0]).sum() - np.abs(told - exact[1]).sum()
        return [ratio, float(model.adjacency_matrix_.sum())]


def _table(X, family):
    table = np.zeros([2] * len(family), dtype=int)
    np.add.at(table, tuple(X[:, family].T), 1)
    return table


def exact_structure():
    """The twin: noise on the tables only."""
    patches = ExitStack()
    for name, broken in (
        ("share", lambda noise, scales: 0 * scales),
        ("handicap", lambda noise, scale, n: 0),
    ):
        patches.enter_context(mock.patch.object(ChoiceNoise, name, broken))
    return patches


class Colluding:
    """An attack while the first of two parties tells its noise, of tables as well."""

    def __init__(self, fits):
        self.fits = fits

    def run(self, n_trials, delta, confidence):
        """Return the epsilon that is exceeded for sure."""
        patches = ExitStack()
        for owner in (ChoiceNoise, DistributedNoise):
            patches.enter_context(
                mock.patch.object(owner, "share", _every_other(owner))
            )
        with patches:
            return self.fits.run(n_trials, delta, confidence)


def _every_other(owner):
    share, calls = owner.share, [0]

    def honest_share(noise, shape):
        calls[0] += 1
        drawn = share(noise, shape)
        return drawn if calls[0] % 2 else 0 * drawn

    return honest_share


def states_of_the_rows():
    """The twin: which labels there are is read off the rows."""
    return Fits(
        field(states=None, epsilon=1.0),
        one_more(ZEROS, [5]),
        lambda model: [len(model.network_.states["x0"])],
    )


def network(width=2, **options):
    return FederatedBayesianNetwork(states=[2] * width, max_parents=1, **options)


def exact_network():
    """The twin: tables without noise."""
    return Fits(
        network(),
        one_more(PAIRS, [1, 1]),
        lambda model: [
            model.n_samples_,
            *model.network_.predict_proba([[None] * 2])[0][0],
        ],
    )


def mixture(n_components=1, max_iter=1, **options):
    options = {"init_params": "random", "backend": "masking"} | options
    return PPEMGaussianMixture(
        n_components, max_iter=max_iter, random_state=0, **options
    )


THREE_ONES = {"rows": np.zeros((30, 1)), "own": [1.0]}

AUDITS = {
    "scaler": numbers(FederatedStandardScaler()),
    "scaler, Gaussian noise": numbers(FederatedStandardScaler(), delta=1e-3),
    "PCA": numbers(FederatedPCA()),
    "bins": numbers(FederatedKBinsDiscretizer(2)),
    "imputer, means": numbers(FederatedSimpleImputer()),
    "imputer, medians": numbers(FederatedSimpleImputer(strategy="median")),
    "imputer, labels": tables(
        FederatedSimpleImputer(strategy="most_frequent", categories=[[0, 1]])
    ),
    "mixture, one step": numbers(mixture()),
    "mixture, three releases": numbers(
        mixture(2, 2, init_params="kmeans"), 6.0, adaptive=True
    ),
    "mixture, gaps": numbers(mixture(missing="em"), width=1),
    "Gaussian network": numbers(FederatedGaussianBayesianNetwork(), 3.0, 2),
    "ADMM": numbers(FederatedNotearsADMM(max_iter=1), 3.0, 2),
    "mixed model": numbers(mixed_model(), 3.0, 2),
    "mixed model, Gaussian noise": numbers(mixed_model(), 3.0, 2, delta=1e-3),
    "mixed model, persons": persons(mixed_model(), 3.0, 2),
    "scaler, persons": persons(FederatedStandardScaler()),
    "PCA, persons": persons(FederatedPCA()),
    "bins, persons": persons(FederatedKBinsDiscretizer(2)),
    "imputer, persons": persons(FederatedSimpleImputer()),
    "mixture, persons": persons(mixture()),
    "Gaussian network, persons": persons(FederatedGaussianBayesianNetwork(), 3.0, 2),
    "field, naive": tables(field()),
    "field, cgm": tables(field(method="cgm")),
    "field, auto": tables(field(method="auto")),
    "field, skip": tables(field(missing="skip")),
    "field, mst": tables(field("mst", 2), 3.0, 2, adaptive=True),
    "field, aim": tables(field("aim", 2), 3.0, 2, adaptive=True),
    "field, aim, Gaussian noise": tables(
        field("aim", 2), 3.0, 2, adaptive=True, delta=1e-3
    ),
    "field, psgd": tables(
        field(
            method="psgd",
            # all rows in the batch, and a gradient that is clipped
            method_params={"sampling_rate": 1.0, "n_steps": 1, "clip": 0.5},
        ),
        3.0,
        delta=1e-3,
    ),
    "field, psgd, stationary": tables(
        field(
            width=3,
            method="psgd",
            clique_params={"stationary": True},
            method_params={"sampling_rate": 1.0, "n_steps": 1, "clip": 0.5},
        ),
        3.0,
        3,
        delta=1e-3,
    ),
    "field, persons normalised": tables(
        field(contribution="normalize"), n_own=N_OWN, who=True
    ),
    "field, persons clipped": tables(
        field(contribution={"kind": "clip", "max_records": 4}),
        n_own=N_OWN,
        who=True,
    ),
    "field, strange row": Audit(
        lambda: Attack(field(epsilon=1.0), one_more(ZEROS, [7])),
        1.0,
        "states read off the rows",
        make_twin=states_of_the_rows,
    ),
    "network from rows": Audit(
        lambda: Attack(network(epsilon=1.0), one_more(PAIRS, [1, 1])),
        1.0,
        "tables without noise",
        make_twin=exact_network,
    ),
    "network from rows, K2": tables(network(method="k2"), width=2),
    "network from rows, persons": tables(network(), width=2, n_own=N_OWN, who=True),
    "description": Audit(
        lambda: Attack(Description(), one_more(ZEROS, [1])),
        1.0,
        FEW,
        lambda: less_noise(5),
    ),
    "scaler, 1 of 3 colludes": colluders(
        FederatedStandardScaler(**BOUNDS), **THREE_ONES, n_colluders=1, min_honest=2
    ),
    "scaler, 2 of 3 collude": colluders(
        FederatedStandardScaler(**BOUNDS), **THREE_ONES, n_colluders=2, min_honest=1
    ),
    "bins, 2 of 3 collude": colluders(
        FederatedKBinsDiscretizer(2, **BOUNDS),
        **THREE_ONES,
        n_colluders=2,
        min_honest=1,
    ),
    "field, 1 of 3 colludes": colluders(
        field(), **THREE_ONES, n_colluders=1, min_honest=2
    ),
    "field, 2 of 3 collude": colluders(
        field(), **THREE_ONES, n_colluders=2, min_honest=1
    ),
    "network from rows, 2 of 3 collude": colluders(
        network(), PAIRS, [1, 1], n_colluders=2, min_honest=1
    ),
    "search, persons": Audit(
        lambda: Attack(*search_of_persons()),
        1.01,
        "a person's rows all weigh in the scores",
        unbounded_search,
    ),
    "search, the winner only": Audit(
        choice_of_persons,
        1.02,
        "a person's rows all weigh in the scores",
        unbounded_search,
    ),
    "search, random trials": Audit(
        random_trials_of_persons,
        1.0,
        "a person's rows all weigh in the scores",
        unbounded_search,
    ),
    "search, a row that fails": Audit(
        search_with_a_strange_row,
        1.01,
        "its fold gets the lowest score",
        failing_fits,
    ),
    "private K2": Audit(
        K2Fits, 2.0, "a twentieth of the noise of tables", lambda: less_noise(20)
    ),
    "private K2, structure": Audit(
        lambda: K2Fits(n_less=4, epsilon=1.0),
        1.0,
        "exact structure, noisy tables",
        exact_structure,
    ),
    "private K2, total variation": Audit(
        lambda: K2Fits(criterion="total_variation"),
        2.0,
        "a twentieth of the noise of tables",
        lambda: less_noise(20),
    ),
    "private K2, 1 of 2 colludes": Audit(
        lambda: Colluding(K2Fits(TWO)),
        2.0,
        "a twentieth of the noise of tables",
        lambda: less_noise(20),
    ),
}
#: answers that are drawn without a fit, whole fits, and those that take longer
N_ANSWERS, N_FITS, N_COSTLY = 5000, 2000, 300
COSTLY = {
    "mixture, three releases",
    "field, aim",
    "field, aim, Gaussian noise",
    "private K2, 1 of 2 colludes",
}


def n_trials(name, attack):
    """Return how often an attack is made."""
    if isinstance(attack, Attack) and not attack.adaptive:
        return N_ANSWERS
    return N_COSTLY if name in COSTLY else N_FITS
