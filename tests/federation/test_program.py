"""Programs: all kinds of rounds, what parties get, and what ends a session."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    ALL_ROWS,
    COUNTS,
    CountsAt,
    Hear,
    HostPolicy,
    InProcessFederation,
    Noisy,
    Release,
    RowWeights,
    Runner,
    Sum,
    Tell,
    Terms,
    TooFewRows,
    converse,
    decode,
    encode,
    program,
)
from skprivbn.federation._terms import NoisyTerms
from skprivbn.privacy import CountMechanism

ROWS = np.random.default_rng(0).normal(size=(60, 2)) + 4
BACKENDS = [
    "masking",
    MaskingBackend(signed=True),
    MaskingBackend(recovery=True),
    MaskingBackend(max_colluders=None),
    "ckks",
    "paillier",
]


def blocks_of(rows=ROWS, n_parties=3):
    return {f"p{i}": {"X": rows[i::n_parties]} for i in range(n_parties)}


def run(one, terms=None, backend="masking", *, blocks=None, min_rows=1, **options):
    options = {"policy": HostPolicy(min_rows=min_rows), **options}
    with InProcessFederation(
        blocks or blocks_of(), one, terms or Terms(), backend, **options
    ) as federation:
        return federation.run(), federation


@program(Terms)
def variance(me):
    """Two sums."""
    X = me.numbers()
    first = np.append(len(X), X.sum(axis=0))
    n, *sums = yield Sum(first, "number of rows and sums", ALL_ROWS)
    mean = np.array(sums) / n
    squares = ((X - mean) ** 2).sum(axis=0)
    squares = yield Sum(squares, "squares about the mean", ALL_ROWS)
    return {"n": n, "variance": squares / n}


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_sums_are_numpys(backend):
    found, federation = run(variance, backend=backend)
    assert found["n"] == 60
    np.testing.assert_allclose(found["variance"], ROWS.var(axis=0), rtol=1e-13)
    facts = federation.ledger.facts()
    assert len({fact.what for fact in facts if fact.who == "all parties"}) == 2


def test_what_a_program_may_open_is_listed_without_running_it():
    kinds = [("Sum", "number of rows and sums"), ("Sum", "squares about the mean")]
    assert variance.rounds() == kinds


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_the_coordinator_cannot_open_what_it_adds(backend):
    """It relays a total that it cannot read as one, but for its tag."""
    totals = []

    class Curious(InProcessFederation):
        def _answer(self, answers, what="next"):
            totals.extend(a["total"] for a in answers.values() if "total" in a)
            super()._answer(answers, what)

    with Curious(blocks_of(), variance, Terms(), backend) as federation:
        federation.run()
    assert len(totals) == 6
    count = np.float64(60).tobytes()
    assert not any(count in b"".join(total[2:]) for total in totals)
    if backend == "masking":
        opened, _ = MaskingBackend().publish(HiddenVector.from_payload(totals[0]))
        assert np.abs(opened).min() > 1e6


def test_a_changed_total_is_refused():
    class Liar(InProcessFederation):
        def _exchange(self, requests, timeout):
            return super()._exchange(
                {name: self.change(message) for name, message in requests.items()},
                timeout,
            )

        @staticmethod
        def change(message):
            request = decode(message)
            total = request["payload"].get("total")
            if total is None:
                return message
            part = bytearray(total[2])
            part[3] ^= 1
            total[2] = bytes(part)
            return encode(request)

    with Liar(blocks_of(), variance, Terms(), "masking") as federation:
        with pytest.raises(PartyError) as caught:
            federation.run()
    assert caught.value.code == "not-authentic"


@program(Terms)
def ring(me):
    """Every party tells the next one a number; some have one more to say."""
    place = me.roster.index(me.name)
    after = me.roster[(place + 1) % len(me.roster)]
    told = yield Tell({after: {"place": place}}, "a place")
    heard = sorted(message["place"] for message in told.values())
    if place == 0:
        yield Tell({me.roster[1]: {"more": True}}, "more")
    if place == 1:
        told = yield Tell({}, "more")
        heard.append(9 if told[me.roster[0]]["more"] else 0)
    total = yield Sum([float(sum(heard))], "what was heard", ALL_ROWS)
    return float(total[0])


def test_sealed_talk_and_sums_interleave():
    found, _ = run(ring)
    assert found == 0 + 1 + 2 + 9


def add_up(me, number):
    """One side of a conversation: the sum of everybody's numbers, heard one by one."""
    waiting, messages = set(me.peers), dict.fromkeys(me.peers, number)
    while waiting:
        received = yield messages
        messages = {}
        waiting -= received.keys()
        number += sum(received.values())
    return number


@program(Terms)
def chosen(me):
    """A conversation about what the researcher chooses, after one about names."""
    places = yield from converse(
        add_up(me, me.roster.index(me.name)), "places", "public"
    )
    column = yield Hear(int, "which column")
    rows = yield from converse(add_up(me, column + me.n_rows), "rows and column")
    return [places, rows, me.session]


def test_conversations_are_rounds_of_a_program():
    turns = []

    @contextmanager
    def turn():
        turns.append(len(turns))
        yield

    with InProcessFederation(blocks_of(), chosen, Terms()) as federation:
        federation.ask(5, turn)
        places, rows, session = federation.run()
    assert (places, rows) == (0 + 1 + 2, 60 + 3 * 5)
    assert turns == [0, 1]
    assert session.startswith(federation.session)
    assert len(session) > len(federation.session)
    kinds = [("Tell", "places"), ("Hear", "which column"), ("Tell", "rows and column")]
    assert chosen.rounds() == kinds
    facts = {(fact.what, fact.kind) for fact in federation.ledger.facts()}
    assert {("places", "public"), ("rows and column", "share")} <= facts


def tell_apart():
    """Return what a coordinator gets that tells one party another choice."""

    class TwoTongues(InProcessFederation):
        def _answer(self, answers, what="next"):
            if "choice" in next(iter(answers.values())):
                answers = {n: {"choice": int(n == "p0")} for n in answers}
            super()._answer(answers, what)

    with TwoTongues(blocks_of(), chosen, Terms()) as federation:
        federation.ask(0)
        return federation.run()


def test_parties_that_hear_different_choices_cannot_talk(monkeypatch):
    with pytest.raises(PartyError) as caught:
        tell_apart()
    assert caught.value.code == "not-authentic"
    # the twin whose seals do not depend on what was heard
    hear = Runner._hear

    def forgetful(self, step):
        choice = yield from hear(self, step)
        self._heard = bytes(32)
        return choice

    monkeypatch.setattr(Runner, "_hear", forgetful)
    assert tell_apart()[1] == 60 + 1


@program(Terms)
def tables(me):
    """The researcher chooses columns, and gets counts of positive entries."""

    def check(column):
        if column is not None and column not in (0, 1):
            raise ValueError("no such column")
        return column

    while (column := (yield Hear(check, "which column next"))) is not None:
        positive = me.numbers()[:, column] > 4
        counts = np.array([positive.sum(), (~positive).sum()])
        try:
            yield Release(counts, "counts of a column", COUNTS)
        except TooFewRows:
            continue
    return "done"


def test_a_researcher_steers_by_choices_and_gets_releases():
    with InProcessFederation(blocks_of(), tables, Terms(), "masking") as federation:
        for column in (1, 0):
            (counts,) = federation.ask(column)
            n_positive = int((ROWS[:, column] > 4).sum())
            assert counts.tolist() == [n_positive, 60 - n_positive]
        assert federation.ask(None) == []
        assert federation.run() == "done"


def test_a_choice_that_fits_no_schema_ends_the_session():
    with InProcessFederation(blocks_of(), tables, Terms(), "masking") as federation:
        with pytest.raises(PartyError) as caught:
            federation.ask(7)
    assert caught.value.code == "refused"


def test_parties_that_hear_different_choices_cannot_be_summed():
    class TwoTongues(InProcessFederation):
        def _answer(self, answers, what="next"):
            if "choice" in next(iter(answers.values())):
                answers = {n: {"choice": int(n == "p0")} for n in answers}
            super()._answer(answers, what)

    with TwoTongues(blocks_of(), tables, Terms(), "masking") as federation:
        with pytest.raises((PartyError, ProtocolError)):
            federation.ask(0)


def test_without_binding_they_are_summed(monkeypatch):
    hear = Runner._hear

    def deaf(self, step):
        heard = self._heard
        choice = yield from hear(self, step)
        self._heard = heard
        return choice

    class TwoTongues(InProcessFederation):
        def _answer(self, answers, what="next"):
            if "choice" in next(iter(answers.values())):
                answers = {n: {"choice": int(n == "p0")} for n in answers}
            super()._answer(answers, what)

    monkeypatch.setattr(Runner, "_hear", deaf)
    with TwoTongues(blocks_of(), tables, Terms(), "masking") as federation:
        (counts,) = federation.ask(0)
    assert counts.sum() == 60


@pytest.mark.parametrize("least, told", [(7, True), (8, False)])
def test_a_release_of_small_counts_comes_to_nothing(least, told):
    rows = np.zeros((60, 2))
    rows[:7] = 9.0
    policy = HostPolicy(min_cell_count=least)
    with InProcessFederation(
        blocks_of(rows), tables, Terms(), "masking", policy=policy
    ) as federation:
        (counts,) = federation.ask(0)
    assert (counts is not None) is told


@dataclass(frozen=True)
class CountTerms(NoisyTerms):
    """Terms of a noisy count."""

    times: int = 1
    shared_by: int = 1

    def mechanism(self, n_features):
        """Return noise for counts that a row changes by one in all."""
        return CountMechanism.for_budget(self.epsilon, self.delta, self.shared_by, 1.0)


@program(CountTerms)
def noisy_count(me):
    noise = me.terms.noise(1, len(me.roster))
    totals = []
    for _ in range(me.terms.times):
        total = yield Noisy(np.array([me.n_rows]), noise, "number of rows, with noise")
        totals.append(int(total[0]))
    return totals


def test_noise_is_added_once_and_everybody_reads_it():
    found, federation = run(noisy_count, CountTerms(epsilon=50.0))
    assert abs(found[0] - 60) < 5
    assert federation.released[0].tolist() == found


def test_more_releases_than_were_paid_for_are_refused():
    with pytest.raises(PartyError) as caught:
        run(noisy_count, CountTerms(epsilon=50.0, times=2))
    assert caught.value.code == "refused"


def test_noise_that_nobody_paid_for_is_refused():
    @program(Terms)
    def uncharged(me):
        noise = CountTerms(epsilon=1.0).noise(1, len(me.roster))
        yield Noisy(np.array([me.n_rows]), noise, "rows")

    with pytest.raises(PartyError) as caught:
        run(uncharged)
    assert caught.value.code == "refused"


def test_an_exact_sum_beside_noise_is_refused():
    @program(CountTerms)
    def both(me):
        yield Sum([1.0], "exact", ALL_ROWS)

    with pytest.raises(PartyError) as caught:
        run(both, CountTerms(epsilon=1.0))
    assert caught.value.code == "refused"


def test_results_that_differ_are_no_result():
    @program(Terms)
    def own(me):
        yield Sum([1.0], "ones", ALL_ROWS)
        return float(me.numbers()[0, 0])

    with pytest.raises(ProtocolError, match="disagree"):
        run(own)


def test_parties_in_different_rounds_are_named():
    @program(Terms)
    def odd(me):
        words = "odd" if me.name == "p1" else "even"
        yield Sum([1.0], words, ALL_ROWS)

    with pytest.raises(PartyError, match="'p1'"):
        run(odd)


def test_waiting_for_messages_that_nobody_sends_is_an_error():
    @program(Terms)
    def patient(me):
        while True:
            yield Tell({}, "nothing")

    with pytest.raises(ProtocolError, match="nobody sends"):
        run(patient)


def test_only_rounds_may_be_yielded():
    @program(Terms)
    def other(me):
        yield {"rows": me.block["X"]}

    with pytest.raises(PartyError) as caught:
        run(other)
    assert caught.value.code == "failed"


def test_a_sum_says_its_weights():
    with pytest.raises(TypeError, match="weights"):
        Sum([1.0], "no weights")


def test_rounds_are_bounded_by_the_party():
    @program(Terms)
    def endless(me):
        while True:
            yield Sum([1.0], "again", ALL_ROWS)

    policy = HostPolicy(max_rounds=20)
    with InProcessFederation(
        blocks_of(), endless, Terms(), "masking", policy=policy
    ) as federation:
        with pytest.raises(PartyError) as caught:
            federation.run()
    assert caught.value.code == "too-many-rounds"


def test_weights_that_leave_one_row_stop_the_program_everywhere():
    stopped = []

    @program(Terms)
    def weighted(me):
        X = me.numbers()
        weights = np.exp(-200 * np.abs(X[:, 0] - ROWS[0, 0]))
        try:
            yield Sum(weights @ X, "weighted sums", RowWeights.of(weights))
        except TooFewRows as few:
            stopped.append(few.blocks.tolist())
            return "stepped back"
        return "told"

    assert run(weighted, min_rows=1)[0] == "told"
    assert run(weighted, min_rows=5)[0] == "stepped back"
    assert stopped == [[True]] * 3


@dataclass(frozen=True)
class LimitTerms(Terms):
    """Terms that say how few rows a sum may be about."""

    min_rows: int = 1


@program(LimitTerms)
def first_cell(me):
    """Count rows of one cell; the limit is that of the terms."""
    try:
        yield Sum(
            [np.sum(me.numbers()[:, 0] > 8)], "rows of a cell", CountsAt(slice(1))
        )
    except TooFewRows:
        return me.min_rows
    return 0


def test_terms_may_be_stricter_than_a_party_towards_others():
    rows = np.zeros((60, 2))
    rows[:7] = 9.0
    blocks, alone = blocks_of(rows), blocks_of(rows, n_parties=1)
    assert run(first_cell, LimitTerms(7), blocks=blocks)[0] == 0
    assert run(first_cell, LimitTerms(8), blocks=blocks)[0] == 8
    assert run(first_cell, LimitTerms(2), blocks=blocks, min_rows=8)[0] == 8
    # one party has nobody to protect itself from but the researcher
    assert run(first_cell, LimitTerms(8), blocks=alone)[0] == 0
    assert run(first_cell, LimitTerms(2), blocks=alone, min_rows=8)[0] == 8


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_a_sum_may_have_keys_of_its_own(backend, monkeypatch):
    made = []
    setup = Runner._exchange_keys

    def watched(runner, generator):
        made.append(runner.name)
        return setup(runner, generator)

    monkeypatch.setattr(Runner, "_exchange_keys", watched)

    def sums(new_keys):
        @program(Terms)
        def three(me):
            totals = []
            for _ in range(3):
                total = yield Sum([1.0], "ones", ALL_ROWS, new_keys)
                totals.append(float(total[0]))
            return totals

        made.clear()
        assert run(three, backend=backend)[0] == [3.0] * 3
        return made.count("p0")

    # beside the key of the group
    assert (sums(False), sums(True)) == (2, 4)


@pytest.mark.parametrize("kind, is_told", [("raw rows", False), ("share", True)])
def test_rows_are_shown_to_peers_where_the_party_allows_it(kind, is_told):
    @program(Terms)
    def shows(me):
        told = dict.fromkeys(me.peers, {"row": me.numbers()[0]})
        yield Tell(told, "a row", kind)

    assert run(shows, policy=HostPolicy(allow_rows=True))[0] is None
    if is_told:
        assert run(shows)[0] is None
        return
    with pytest.raises(PartyError) as caught:
        run(shows)
    assert caught.value.code == "refused"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_several_releases_that_share_a_budget_are_told(delta):
    @program(CountTerms)
    def shared(me):
        noise = me.terms.noise(1, len(me.roster)).split(3)
        for _ in range(me.terms.times):
            yield Noisy(np.array([me.n_rows]), noise, "number of rows, with noise")

    run(shared, CountTerms(epsilon=50.0, delta=delta, times=3, shared_by=3))
    with pytest.raises(PartyError) as caught:
        run(shared, CountTerms(epsilon=50.0, delta=delta, times=4, shared_by=3))
    assert caught.value.code == "refused"


def test_a_program_has_terms_and_rounds():
    with pytest.raises(TypeError, match=r"write @program\(Terms\)"):
        program(lambda me: None)
    with pytest.raises(TypeError, match="no_round has no yield"):

        @program(Terms)
        def no_round(me):
            return me.block["X"]


def test_rows_under_noise_are_clipped():
    @program(CountTerms)
    def unclipped(me):
        X = np.asarray(me.numbers()).round().astype(int)
        noise = me.terms.noise(1, len(me.roster))
        return (yield Noisy(X[:, 0].sum(), noise, "sum of rows"))

    with pytest.raises(PartyError) as caught:
        run(unclipped, CountTerms(epsilon=1.0))
    assert "epsilon needs clipped rows" in str(caught.value.__cause__)


def test_noise_of_integers_does_not_hide_fractions():
    @program(CountTerms)
    def fractions(me):
        noise = me.terms.noise(1, len(me.roster))
        return (yield Noisy(np.array([me.n_rows / 8]), noise, "eighths of rows"))

    with pytest.raises(PartyError, match="Noisy takes integers"):
        run(fractions, CountTerms(epsilon=1.0))
    # otherwise everybody would read the fraction
    share = CountTerms(epsilon=1.0).noise(1, 3).share((1,))
    assert (20 / 8 + share) % 1 == 0.5


def test_terms_that_are_no_dataclass_are_named():
    with pytest.raises(TypeError, match=r"write @dataclass\(frozen=True\) above class"):

        @program(type("Undecorated", (Terms,), {"__annotations__": {"k": "int"}}))
        def never(me):
            yield


def test_what_cannot_be_sent_is_the_mistake_of_the_program():
    @program(Terms)
    def returns_a_set(me):
        yield Sum([1], "ones", COUNTS)
        return {1, 2}

    with pytest.raises(PartyError, match="a set cannot be sent") as caught:
        run(returns_a_set)
    assert caught.value.code == "failed"


def test_a_target_that_does_not_reach_a_program_is_explained():
    @program(Terms)
    def adds_outcomes(me):
        yield Sum([me.block["y"].sum()], "outcomes", COUNTS)

    with pytest.raises(PartyError) as caught:
        run(adds_outcomes)
    assert "derive the estimator from ClassifierMixin" in str(caught.value.__cause__)
