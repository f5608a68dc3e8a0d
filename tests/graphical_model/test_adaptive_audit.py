"""Attacks on tables that are chosen in rounds: rows, persons, several holders.

Every question may be the attacker's: it asks for as many tables and distances as it
can, all of which the person changes by as much as it can. It knows all other rows.
"""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import beta, norm

from skprivbn.exceptions import PartyError
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.graphical_model._adaptive import AdaptiveSearch
from skprivbn.graphical_model._tables import Contribution, count_tables
from skprivbn.privacy import CountMechanism, DistributedNoise, distribute
from skprivbn.utils._memoise import ask
from tests.graphical_model.test_release_audit import (
    EPSILON,
    log_ratio,
    shares_of,
)
from tests.privacy.toys import prove_epsilon, suspect_epsilon

N_SESSIONS = 2000
#: of fits, whose every message goes through four parties
N_REAL_SESSIONS = 400
N_COLUMNS, SIZES = 3, [2, 2, 2]
PERSONS = {
    "record": Contribution(),
    "normalize": Contribution("normalize"),
    "clip": Contribution("clip", max_records=2),
}


def rows_with_and_without(contribution):
    """Thirty rows of zeros, and perhaps a person whose rows are ones."""
    several = contribution.kind != "record"
    n_own = max(3, contribution.max_records) if several else 1
    own = np.ones((n_own, N_COLUMNS), dtype=int)
    codes = np.r_[np.zeros((30, N_COLUMNS), dtype=int), own]
    person = np.r_[np.arange(30), np.full(len(own), 99)] if several else None
    others = codes[:30], person[:30] if several else None, None
    return (codes, person, None), others


def questions(budget):
    """Ask all that one session allows: a model expects zeros, the person is a one."""
    pairs, singles = [(0, 1), (0, 2), (1, 2)], [(0,), (1,), (2,)]
    answers = [(yield budget.one_way(singles))]
    for number in range(budget.n_rounds):
        asked = pairs * (budget.n_pairs(number) // 3)
        asked += [(0, 1, 2)] * budget.n_triples(number)
        expected = [np.zeros([2] * len(clique), dtype=np.int64) for clique in asked]
        for table in expected:
            table.flat[0] = 2**20
        answers.append((yield budget.distances(asked, expected, number)))
        answers.append((yield budget.chosen(pairs)))
    return np.concatenate(answers)


def exact_answer(question, rows, contribution):
    """What a holder of rows counts."""
    codes, persons, weight = rows

    def count(layout):
        return count_tables(codes, layout, contribution, persons, weight)

    return question.answer(count, SIZES)


def attack(one, other, noise, draw):
    """What an attacker makes of sessions with and without the person."""
    for answers in (one, other):
        told = draw(np.tile(answers[one != other], (N_SESSIONS, 1)))
        yield log_ratio(told, one[one != other], other[one != other], noise)


def standard_errors_apart(one, other):
    """How clearly the attack tells both worlds apart, on average: eight or more.

    Spread over many answers, the person is harder to see than epsilon allows, and an
    estimate of epsilon is hardly above zero.
    """
    variance = (np.var(one) + np.var(other)) / N_SESSIONS
    return (np.mean(one) - np.mean(other)) / np.sqrt(variance)


def exact_answers(budget, contribution):
    """Answers without noise, with and without the person."""
    return [
        ask(questions(budget), lambda q, rows=rows: exact_answer(q, rows, contribution))
        for rows in rows_with_and_without(contribution)
    ]


def test_the_attack_is_the_strongest():
    """The person changes answers by all of the sensitivity that noise is made for."""
    for contribution in PERSONS.values():
        for delta, order in ((0.0, 1), (1e-3, 2)):
            budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS, contribution.per_clique)
            one, other = exact_answers(budget, contribution)
            change = np.linalg.norm(one - other, order)
            # a third of a record, three times, is a little less than one
            assert 0.99 < change / budget.noise.sensitivity <= 1 + 1e-9


def attack_one_holder(budget, contribution, noise):
    one, other = exact_answers(budget, contribution)
    return list(attack(one, other, noise, noise.release))


@pytest.mark.parametrize(
    "name",
    [
        "record",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("normalize", "clip")),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_one_holder(name, delta):
    contribution = PERSONS[name]
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS, contribution.per_clique)
    seen = attack_one_holder(budget, contribution, budget.noise)
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    assert standard_errors_apart(*seen) > 4


def test_tables_that_are_paid_for_once_are_caught():
    budget = AdaptiveSearch(EPSILON, 0.0, N_COLUMNS)
    n_answers = budget.n_rounds * budget.n_tables
    share = int(budget.noise.sensitivity) // n_answers
    broken = CountMechanism.for_budget(EPSILON, 0.0, share)
    assert suspect_epsilon(*attack_one_holder(budget, Contribution(), broken)) > EPSILON


def test_persons_that_are_paid_for_as_rows_are_caught():
    contribution = Contribution("clip", max_records=8)
    budget = AdaptiveSearch(EPSILON, 0.0, N_COLUMNS)
    seen = attack_one_holder(budget, contribution, budget.noise)
    assert suspect_epsilon(*seen) > EPSILON


def claimed_separation(epsilon, delta):
    """Distance of two unit normals that are told apart as well as the claim allows."""

    def excess(mu):
        above, below = norm.cdf(-epsilon / mu + np.array([mu, -mu]) / 2)
        return above - np.exp(epsilon) * below - delta

    return brentq(excess, 1e-3, 20)


def prove_separation(one, other):
    """Lower bound on that distance, of guesses by the sign of the log-ratio.

    Few guesses prove hardly any epsilon of Gaussian noise, which is a matter of its
    tails; that two normals are further apart than the claim shows in their middles. A
    sound mechanism is blamed once in a billion.
    """
    right = [np.sum(np.asarray(one) > 0), np.sum(np.asarray(other) <= 0)]
    wrong = len(one) - right[0], len(other) - right[1]
    return sum(
        norm.ppf(beta.ppf(5e-10, hits, misses + 1))
        for hits, misses in zip(right, wrong)
    )


SEPARATION = claimed_separation(EPSILON, 1e-3)


@pytest.mark.parametrize("part", [1, 3])
@pytest.mark.parametrize(
    "name",
    ["record", *(pytest.param(n, marks=pytest.mark.slow) for n in list(PERSONS)[1:])],
)
def test_a_third_of_the_gaussian_noise_is_caught(name, part):
    contribution = PERSONS[name]
    budget = AdaptiveSearch(EPSILON, 1e-3, N_COLUMNS, contribution.per_clique)
    noise = replace(budget.noise, scale=budget.noise.scale / part)
    seen = attack_one_holder(budget, contribution, noise)
    assert (prove_separation(*seen) > SEPARATION) == (part == 3)


def test_persons_that_are_paid_for_as_rows_are_caught_under_gaussian_noise():
    contribution = Contribution("clip", max_records=8)
    budget = AdaptiveSearch(EPSILON, 1e-3, N_COLUMNS)
    seen = attack_one_holder(budget, contribution, budget.noise)
    assert prove_separation(*seen) > SEPARATION


@pytest.mark.parametrize("n_trusted", [1, 8])
def test_seven_of_eight_holders_collude_under_gaussian_noise(n_trusted):
    """If one was trusted, the claim holds; if all were, that is caught."""
    budget = AdaptiveSearch(EPSILON, 1e-3, N_COLUMNS)
    noise = distribute(budget.noise, n_parties=8, min_honest=n_trusted)
    one, other = exact_answers(budget, Contribution())
    seen = list(attack(one, other, noise, shares_of(noise, 1)))
    assert (prove_separation(*seen) > SEPARATION) == (n_trusted == 8)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_several_holders_after_colluders_took_their_noise_away(delta):
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS)
    noise = distribute(budget.noise, n_parties=4, min_honest=2)
    one, other = exact_answers(budget, Contribution())
    seen = list(attack(one, other, noise, shares_of(noise, 2)))
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    assert standard_errors_apart(*seen) > 4


@pytest.mark.parametrize("delta", [0.0, pytest.param(1e-3, marks=pytest.mark.slow)])
def test_shares_for_all_parties_do_not_survive_colluders(delta):
    """The twin: all forty were trusted, and thirty-nine take their noise away."""
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS)
    noise = distribute(budget.noise, n_parties=40, min_honest=40)
    one, other = exact_answers(budget, Contribution())
    seen = list(attack(one, other, noise, shares_of(noise, 1)))
    assert prove_epsilon(*seen, delta=delta) > EPSILON


class Interrogated(Exception):
    """Ends a fit once the attacker has what it wants."""


@pytest.fixture
def ask_honest_parties(monkeypatch):
    """Sessions of four parties, the last two of which add no noise.

    Colluders would take theirs away again. The search that all parties run asks the
    worst questions that its budget allows, whatever it was told before.
    """
    share, turns = DistributedNoise.share, itertools.cycle([True, True, False, False])

    def drawn(self, shape):
        # in one process, parties answer one after the other
        return share(self, shape) if next(turns) else np.zeros(shape, dtype=np.int64)

    def search(budget, sizes, noise, n_holders):
        raise Interrogated((yield from questions(budget)))

    monkeypatch.setattr(DistributedNoise, "share", drawn)
    monkeypatch.setattr(AdaptiveSearch, "asking", search)

    def ask(rows, contribution, delta):
        codes, person, _ = rows
        whose = np.r_[np.arange(30), np.full(len(codes) - 30, 100)]
        learner = DPCGMLearner(
            cliques="aim",
            epsilon=EPSILON,
            delta=delta,
            states={name: [0, 1] for name in "abc"},
            contribution={
                "kind": None if person is None else contribution.kind,
                "max_records": contribution.max_records,
            },
            min_honest=2,
        )
        frame = pd.DataFrame(codes, columns=list("abc"))
        with pytest.raises(PartyError, match="raised an error") as told:
            learner.fit(frame, party=whose % 4, individual=person)
        assert isinstance(told.value.__cause__, Interrogated)
        return told.value.__cause__.args[0]

    return ask


@pytest.mark.parametrize("name", PERSONS)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_attack_reaches_the_parties(ask_honest_parties, monkeypatch, name, delta):
    """Without any noise, they answer what one holder of all rows would."""
    monkeypatch.setattr(
        DistributedNoise, "share", lambda self, shape: np.zeros(shape, dtype=np.int64)
    )
    contribution = PERSONS[name]
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS, contribution.per_clique)
    exact = exact_answers(budget, contribution)
    for rows, expected in zip(rows_with_and_without(contribution), exact, strict=True):
        told = ask_honest_parties(rows, contribution, delta)
        np.testing.assert_array_equal(told, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONS)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_what_honest_parties_answer(ask_honest_parties, name, delta):
    """The same through the parties themselves, message by message."""
    contribution = PERSONS[name]
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS, contribution.per_clique)
    noise = distribute(budget.noise, n_parties=4, min_honest=2)
    exact = exact_answers(budget, contribution)
    seen = []
    for rows in rows_with_and_without(contribution):
        sessions = range(N_REAL_SESSIONS)
        told = np.stack(
            [ask_honest_parties(rows, contribution, delta) for _ in sessions]
        )
        seen.append(log_ratio(told, *exact, noise))
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    # the noise of two shares is there: its spread is that of the whole
    spread = np.std(told - exact[1]) / np.sqrt(2 * noise.share_variance)
    assert 0.9 < spread < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_whole_of_an_adaptive_fit(delta):
    """The attacker replays the questions of each fit in both worlds."""
    budget = AdaptiveSearch(EPSILON, delta, N_COLUMNS, max_model_cells=100)
    noise, worlds = budget.noise, rows_with_and_without(Contribution())

    def ratio_of_one_fit(rows):
        tape = []

        def answer(question):
            told = noise.release(exact_answer(question, rows, Contribution()))
            tape.append((question, told))
            return told

        ask(budget.asking(SIZES, noise), answer)
        answers = np.concatenate([told for _, told in tape])
        one, other = (
            np.concatenate([exact_answer(q, w, Contribution()) for q, _ in tape])
            for w in worlds
        )
        return log_ratio(answers[None], one, other, noise)[0]

    seen = [[ratio_of_one_fit(rows) for _ in range(200)] for rows in worlds]
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    # what a person tells is there to be found
    assert np.mean(seen[0]) > np.mean(seen[1])
