"""Scores of records whose columns several parties hold."""

import numpy as np
import pytest

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_asia
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.partition import VerticalPartition
from skprivbn.programs import _columns as _scores
from skprivbn.structure import CollectiveBayesianNetwork, PrivateK2StructureLearner

ASIA = load_asia()
X = ASIA.encode(ASIA.sample(200, random_state=0))
NAMES = [f"v{i}" for i in range(8)]


def split(table, groups, **options):
    return VerticalPartition(
        {f"p{i}": table[:, group] for i, group in enumerate(groups)},
        {f"p{i}": [NAMES[v] for v in group] for i, group in enumerate(groups)},
        **options,
    )


HALVES, THIRDS = [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.fixture(scope="module")
def learner():
    learner = PrivateK2StructureLearner(max_parents=2, states=[2] * 8)
    learner.fit(split(X, HALVES))
    crossing = [(u, v) for u, v in learner.network_.edges if (u < "v4") != (v < "v4")]
    assert crossing, "no node has parents at another party"
    return learner


@pytest.mark.parametrize("groups", [HALVES, THIRDS, [[3, 0, 6, 2], [5, 1, 7, 4]]])
def test_the_score_is_that_of_the_joined_records(learner, groups):
    new = ASIA.encode(ASIA.sample(150, random_state=1))
    partition = split(new, groups, order=NAMES)
    # logarithms are rounded to 2**-24, one for each of eight nodes
    expected = learner.network_.log_likelihood(new).mean()
    assert learner.score(partition) == pytest.approx(expected, abs=8 * 2.0**-24)


def test_collective_networks_too():
    partition = split(X[:, :4], [[0, 1], [2, 3]])
    model = CollectiveBayesianNetwork(random_state=0).fit(partition)
    expected = model.network_.log_likelihood(X[:, :4]).mean()
    assert model.score(partition) == pytest.approx(expected, abs=4 * 2.0**-24)


def watch_openings(monkeypatch):
    """Return a list of the shares that parties open, in the order of their rounds."""
    opened, open_numbers = [], _scores.open_numbers

    def watched(talk, roster, shares):
        opened.append(shares)
        return open_numbers(talk, roster, shares)

    monkeypatch.setattr(_scores, "open_numbers", watched)
    return opened


def test_only_the_sum_and_the_number_of_records_become_known(learner, monkeypatch):
    opened = watch_openings(monkeypatch)
    before = len(learner.ledger_.entries)
    learner.score(split(X, HALVES))
    told = {
        (entry.operation, entry.kind)
        for entry in learner.ledger_.entries[before:]
        if entry.receiver == "coordinator" and entry.tells
    }
    assert told == {("the result", "public")}
    assert [len(shares) for shares in opened] == [2, 2]


def test_shares_of_columns_of_one_party_alone_are_random_too(monkeypatch):
    opened = watch_openings(monkeypatch)
    model = PrivateK2StructureLearner(max_parents=0).fit(split(X, HALVES))
    assert model.score(split(X, HALVES)) == model.score(split(X, HALVES))
    first, second = opened[:2], opened[2:]
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_records_are_aligned_by_keys(learner):
    keys = np.array([f"k{i}" for i in range(len(X))])
    shuffled = np.random.default_rng(0).permutation(len(X))[:120]
    partition = VerticalPartition(
        {"p0": X[:, :4], "p1": X[shuffled, 4:]},
        {"p0": NAMES[:4], "p1": NAMES[4:]},
        keys={"p0": keys, "p1": keys[shuffled]},
        reveal_membership=True,
    )
    expected = learner.network_.log_likelihood(X[shuffled]).mean()
    assert learner.score(partition) == pytest.approx(expected, abs=8 * 2.0**-24)


def test_an_impossible_record_makes_the_score_minus_infinity():
    learner = PrivateK2StructureLearner(max_parents=1).fit(split(X, HALVES))
    network = learner.network_
    tables = dict(network.cpts)
    node = next(v for v in NAMES if network.parents[v])
    table = np.array(tables[node])
    table[0] = [1.0, 0.0]
    learner.network_ = BayesianNetwork(
        NAMES, network.states, network.parents, tables | {node: table}
    )
    impossible = np.isneginf(learner.network_.log_likelihood(X))
    assert 0 < impossible.sum() < len(X)
    assert learner.score(split(X, HALVES)) == -np.inf
    possible = split(X[~impossible], HALVES)
    expected = learner.network_.log_likelihood(X[~impossible]).mean()
    assert learner.score(possible) == pytest.approx(expected, abs=8 * 2.0**-24)


def test_what_does_not_fit_is_said(learner):
    others = VerticalPartition({"p0": X[:, :4], "p1": X[:, 4:]})
    with pytest.raises(ValueError, match="was fitted to"):
        learner.score(others)
    with pytest.raises(PartitionError, match="have the same weight"):
        learner.score(split(X, HALVES), sample_weight=np.ones(len(X)))
    unknown = X.copy()
    unknown[0, 0] = 7
    with pytest.raises(PartyError, match="'p0'.*do not fit"):
        learner.score(split(unknown, HALVES))
