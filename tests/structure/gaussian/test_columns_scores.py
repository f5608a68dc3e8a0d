"""Gaussian scores of records whose columns several parties hold."""

from copy import copy

import numpy as np
import pytest

from skprivbn.bayesian_network import GaussianBayesianNetwork
from skprivbn.datasets import make_linear_sem
from skprivbn.exceptions import PartitionError, PartyError, PrivacyLeakWarning
from skprivbn.partition import VerticalPartition
from skprivbn.programs import _columns as _scores
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian._columns import SCORE_FRACTION_BITS

X, _ = make_linear_sem(500, 5, random_state=0)
X = X * [1, 100, 0.01, 1, 1] + [0, 5, 7, -3, 1000]
TWO = {"a": [0, 2], "b": [1, 3, 4]}


def split(table, parties=TWO, **options):
    return VerticalPartition(
        {name: table[:, held] for name, held in parties.items()},
        {name: [f"x{j}" for j in held] for name, held in parties.items()},
        order=[f"x{j}" for j in range(table.shape[1])],
        **options,
    )


@pytest.fixture(scope="module")
def learner():
    learner = FederatedGaussianBayesianNetwork("bic").fit(split(X))
    owner = {f"x{j}": name for name, held in TWO.items() for j in held}
    crossing = [owner[u] != owner[v] for u, v in learner.network_.edges]
    assert any(crossing), "no node has parents at another party"
    return learner


def tolerance(learner, table):
    """Bound the error: every part is rounded by half a unit at most."""
    network = learner.network_
    rest = (table - network.mean) @ (np.eye(5) - network.weights)
    rest = np.abs(rest) / np.sqrt(network.variances)
    rounding = 3 * 2.0 ** (-SCORE_FRACTION_BITS - 1)
    return np.mean(np.sum(rest * rounding + rounding**2, axis=1))


@pytest.mark.parametrize(
    "parties",
    [TWO, {"a": [4], "b": [1, 0], "c": [3, 2]}, {"a": [0, 1, 2, 3, 4]}],
    ids=["two", "three", "one"],
)
def test_the_score_is_that_of_the_joined_records(learner, parties):
    new = X[::-2] + 0.5 * X.std(axis=0)
    expected = learner.network_.log_likelihood(new).mean()
    score = learner.score(split(new, parties))
    assert score == pytest.approx(expected, abs=tolerance(learner, new))
    assert tolerance(learner, new) < 1e-3


def test_records_are_aligned_by_keys(learner):
    order = np.random.default_rng(0).permutation(len(X))[:100]
    keys = np.array([f"k{i}" for i in range(len(X))])
    partition = VerticalPartition(
        {"a": X[:, :2], "b": X[order, 2:]},
        {"a": ["x0", "x1"], "b": ["x2", "x3", "x4"]},
        keys={"a": keys, "b": keys[order]},
        reveal_membership=True,
    )
    expected = learner.network_.log_likelihood(X[order]).mean()
    assert learner.score(partition) == pytest.approx(
        expected, abs=tolerance(learner, X[order])
    )


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
    learner.score(split(X[:50]))
    told = {
        (entry.operation, entry.kind)
        for entry in learner.ledger_.entries[before:]
        if entry.receiver == "coordinator" and entry.tells
    }
    assert told == {("the result", "public")}
    assert [len(shares) for shares in opened] == [2, 2]


def shares_of_two_scores(monkeypatch):
    """What each party adds to the opened sum, in two scores of the same records."""
    model = FederatedGaussianBayesianNetwork("bic").fit(split(X))
    # without an edge, nobody's part of a residual meets another's
    model.network_ = GaussianBayesianNetwork(model.network_.nodes, np.zeros((5, 5)))
    table = split(X / 1000.0)
    added = watch_openings(monkeypatch)
    assert model.score(table) == model.score(table)
    return added[:2], added[2:]


def test_shares_are_fresh_even_of_what_a_party_computes_alone(monkeypatch):
    first, second = shares_of_two_scores(monkeypatch)
    assert not any((a == b).any() for a, b in zip(first, second, strict=True))


def test_shares_that_are_not_refreshed_are_the_same_again(monkeypatch):
    def as_they_are(talk, roster, parts):
        return parts
        yield

    monkeypatch.setattr(_scores, "refresh_numbers", as_they_are)
    first, second = shares_of_two_scores(monkeypatch)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_what_does_not_fit_is_said(learner):
    with pytest.raises(ValueError, match="not .*, which it was fitted to"):
        learner.score(split(X[:, ::-1][:, :4], {"a": [0, 2], "b": [1, 3]}))
    with pytest.raises(PartitionError, match="have the same weight"):
        learner.score(split(X), sample_weight=np.ones(len(X)))
    for wrong in (np.nan, np.inf):
        table = X.copy()
        table[3, 1] = wrong
        with pytest.raises(ValueError, match="of party 'b'"):
            learner.score(split(table))
    table = X.copy()
    table[3, 1] = 1e9
    with pytest.raises(PartyError, match="'b'.*too large"):
        learner.score(split(table))


@pytest.mark.parametrize("variance", [1.0, 0.5 / np.pi], ids=["constant", "squares"])
def test_a_sum_that_the_ring_cannot_hold_is_refused(learner, monkeypatch, variance):
    model = copy(learner)
    model.network_ = GaussianBayesianNetwork(
        learner.network_.nodes, np.zeros((5, 5)), variances=np.full(5, variance)
    )
    # with the second variance, the logarithms of normalisation are zero
    table = (X - X.mean(axis=0)) / X.std(axis=0) * (1e-3 if variance == 1.0 else 1.0)
    constant = 3 * len(X) * abs(np.log(2.0 * np.pi * variance))
    squares = 2 * np.sum(table[:, TWO["b"]] ** 2) / variance
    # two parties, of whom the second holds more; half a unit each
    largest = 2 * max(constant, squares) * 4.0**SCORE_FRACTION_BITS
    module = "skprivbn.structure.gaussian._columns"
    monkeypatch.setattr(f"{module}.MAX_SUM", 1.01 * largest)
    expected = model.network_.log_likelihood(table).mean()
    assert model.score(split(table)) == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr(f"{module}.MAX_SUM", 0.99 * largest)
    with pytest.raises(PartyError, match="'b'.*too large"):
        model.score(split(table))


def test_an_exact_score_is_no_part_of_a_privacy_budget():
    model = FederatedGaussianBayesianNetwork("bic").fit(split(X))
    model.epsilon = 1.0
    with pytest.warns(PrivacyLeakWarning, match="budget of the fit does not cover"):
        model.score(split(X))
