"""Secure quantiles against numpy on the pooled rows, and attacks on the search."""

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    InProcessFederation,
    Runner,
    decode,
    encode,
)
from skprivbn.partition import HorizontalPartition, RowSource
from skprivbn.programs import QuantileTerms, quantiles
from skprivbn.programs._quantiles import MAX_LEVELS
from tests.crypto.micro_federation import read_without_keys
from tests.crypto.test_masking_signed import shift_with_a_fitting_tag
from tests.federation.hostile import HostileTerms, changed

ROWS = np.random.default_rng(0).gamma(2.0, size=(60, 2))


def split(rows, n_parties=3):
    return {f"p{i}": {"X": rows[i::n_parties]} for i in range(n_parties)}


def run(blocks, *, transport=InProcessFederation, backend="masking", **parameters):
    terms = QuantileTerms(**parameters)
    with transport(blocks, quantiles, terms, backend) as federation:
        return federation.run()["quantiles"]


@pytest.mark.parametrize("n_parties", [1, 3, 5])
@pytest.mark.parametrize("bounds", [None, np.array([[0.0, 0.0], [16.0, 16.0]])])
@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_exact_quantiles(n_parties, bounds, factor):
    rows = factor * ROWS
    if bounds is not None:
        bounds = np.sort(factor * bounds, axis=0)
    found = run(split(rows, n_parties), n_levels=5, bounds=bounds)
    levels = np.linspace(0, 1, 5)
    expected = np.quantile(rows, levels, axis=0, method="inverted_cdf").T
    np.testing.assert_allclose(found, expected, atol=32 / 2**16)


def test_medians_are_over_the_rows_that_have_a_value():
    rows = np.column_stack([ROWS, np.full(60, np.nan)])
    rows[::7, 0] = np.nan
    found = run(split(rows), n_levels=1)[:, 0]
    expected = np.nanmedian(rows[:, :2], axis=0)
    np.testing.assert_allclose(found[:2], expected, rtol=2**-15)
    assert np.isnan(found[2])


def test_rows_in_blocks_have_the_same_quantiles():
    rows = {
        name: RowSource(lambda X=block["X"]: iter(np.split(X, 4)), 20, ["a", "b"])
        for name, block in split(ROWS).items()
    }
    partition = HorizontalPartition(rows)
    with partition.federate(quantiles, QuantileTerms(7), "masking") as federation:
        found = federation.run()["quantiles"]
    np.testing.assert_array_equal(found, run(split(ROWS), n_levels=7))


@pytest.mark.parametrize("backend", ["ckks", "paillier"])
def test_quantiles_are_the_same_whatever_the_backend(backend):
    blocks = split(ROWS[:, :1])
    found = run(blocks, n_levels=3, backend=backend)
    np.testing.assert_array_equal(found, run(blocks, n_levels=3))


def test_noisy_quantiles_are_near_the_clipped_ones():
    rows = np.random.default_rng(2).normal(size=(30_000, 1))
    bounds = np.array([[-2.0], [2.0]])
    found = run(split(rows), n_levels=5, bounds=bounds, epsilon=1.0)
    expected = np.quantile(np.clip(rows, -2, 2), np.linspace(0, 1, 5), axis=0).T
    np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.parametrize("min_rows", [1, 3, 8])
def test_quantiles_have_rows_between_them(min_rows):
    rng = np.random.default_rng(0)
    rows = np.append(rng.normal(size=29), 1000.0)[:, None]
    (found,) = run(split(rows), n_levels=11, min_rows=min_rows)
    edges = np.unique(found)
    assert len(edges) > 2
    # the outlier is an edge only if one row may be
    assert (edges[-1] > 900) == (min_rows == 1)
    inner = [-np.inf, *edges[1:-1], np.inf]
    assert np.histogram(rows, inner)[0].min() >= min_rows


def values_found(min_rows):
    """Return how many of 30 values are found by asking for 257 quantiles of them."""
    rows = np.random.default_rng(0).normal(size=(30, 1))
    (found,) = run(split(rows), n_levels=MAX_LEVELS, min_rows=min_rows)
    return sum(np.abs(found - value).min() < 1e-3 for value in rows.ravel())


def test_attack_more_quantiles_than_rows():
    """The twin: without rows between them, they are the column."""
    assert values_found(min_rows=5) <= 30 / 5
    assert values_found(min_rows=1) == 30


@pytest.mark.parametrize("n_values, told", [(5, 7.0), (4, None), (0, np.nan)])
def test_few_values_of_a_feature_have_no_median(n_values, told):
    """The limit is on the values of all parties together."""
    rows = np.column_stack([ROWS[:, 0], np.full(60, np.nan)])
    rows[:n_values, 1] = 7.0
    partition = HorizontalPartition({n: b["X"] for n, b in split(rows).items()})
    terms = QuantileTerms(1)
    with partition.federate(quantiles, terms, "masking", min_rows=5) as federation:
        if told is None:
            with pytest.raises(PartyError) as caught:
                federation.run()
            assert caught.value.code == "too-few-rows"
        else:
            found = federation.run()["quantiles"][1]
            np.testing.assert_allclose(found, told, rtol=2**-8)


def test_few_rows_have_no_quantiles():
    run(split(ROWS[:5]), min_rows=5)
    with pytest.raises(PartyError) as caught:
        run(split(ROWS[:4]), min_rows=5)
    assert caught.value.code == "too-few-rows"


class Choosing(InProcessFederation):
    """Answers a round with thresholds that it would like."""

    def _answer(self, answers, what="next"):
        thresholds = np.zeros((2, 515))
        for name, answer in answers.items():
            if "total" in answer:
                answers[name] = {**answer, "thresholds": thresholds}
        super()._answer(answers, what)


def test_attack_thresholds_of_the_coordinators_choice():
    with pytest.raises(PartyError):
        run(split(ROWS), transport=Choosing)
    bounds = np.array([[-5.0, -5.0], [5.0, 5.0]])
    terms = QuantileTerms(2, bounds)
    many = HostileTerms(terms, n_levels=MAX_LEVELS + 1)
    with pytest.raises(PartyError, match="refuses"):
        InProcessFederation(split(ROWS), quantiles, many, "masking").__enter__()


class Reading(InProcessFederation):
    """Tries to read the totals that it relays."""

    def _answer(self, answers, what="next"):
        for answer in answers.values():
            if "total" in answer:
                total = HiddenVector.from_payload(answer["total"])
                seen = read_without_keys(total)
                in_range = np.count_nonzero((seen >= 0) & (seen <= 60))
                self.n_counts = getattr(self, "n_counts", 0) + in_range
        super()._answer(answers, what)


def test_counts_below_thresholds_are_for_the_parties():
    """Of cells that hold single rows, the coordinator is not told."""
    with Reading(split(ROWS), quantiles, QuantileTerms(), "masking") as federation:
        federation.run()
        assert federation.n_counts <= 1


class Lying(InProcessFederation):
    """A party makes the result up."""

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        payload = decode(replies["p0"])["payload"] if "p0" in replies else {}
        if "result" in payload:
            payload["result"]["quantiles"] = payload["result"]["quantiles"] + 1
            replies["p0"] = encode({"ok": True, "payload": payload})
        return replies


def test_attack_one_party_makes_the_result_up(monkeypatch):
    with pytest.raises(ProtocolError, match="disagree"):
        run(split(ROWS), transport=Lying)
    # the twin: nobody compares
    monkeypatch.setattr(
        "skprivbn.federation.coordinator.check_same",
        lambda replies, what, rtol: next(iter(replies.values())),
    )
    found = run(split(ROWS), transport=Lying)
    np.testing.assert_allclose(found[:, 0], ROWS.min(axis=0) + 1, atol=1e-3)


class Helped(InProcessFederation):
    """With the keys of one party, tells another one that no value is below anything."""

    def _answer(self, answers, what="next"):
        total = answers["p0"].get("total")
        if total is not None:
            self.n_totals = getattr(self, "n_totals", 0) + 1
        if total is not None and self.n_totals == 3:
            hidden = HiddenVector.from_payload(total)
            shift = np.zeros(hidden.length, dtype=int)
            shift[:-2] = -60
            sums = self._runners["p2"]._sums["parties"]
            part = shift_with_a_fitting_tag(sums, hidden.parts[0], shift)
            answers["p0"] = {"total": changed(total, parts=[part])}
        super()._answer(answers, what)


def test_attack_the_last_total_is_another_one_for_one_party(monkeypatch):
    """An accomplice can make it up; the parties compare before they tell a result."""
    with pytest.raises(PartyError) as caught:
        run(split(ROWS), transport=Helped)
    assert caught.value.code == "not-authentic"
    # the twin: they do not, and that party tells what it made of it
    monkeypatch.setattr(Runner, "_compare", lambda self: iter(()))
    told = []

    def first(replies, what, rtol):
        told.extend(reply["result"]["quantiles"] for reply in replies.values())
        return next(iter(replies.values()))

    monkeypatch.setattr("skprivbn.federation.coordinator.check_same", first)
    run(split(ROWS), transport=Helped)
    assert not np.array_equal(told[0], told[1])
    np.testing.assert_array_equal(told[1], told[2])


def test_attack_bounds_for_every_row():
    # all rows but the first would be clipped to a constant
    bounds = np.zeros((2, 20, 1))
    bounds[:, 0, 0] = -9, 9
    with pytest.raises(PartyError) as caught:
        run(split(ROWS[:, :1]), bounds=bounds)
    assert caught.value.code == "refused"


def test_attack_bounds_without_a_width():
    # half of their distance is no number above zero: rows at the lower one are 0 / 0
    bounds = np.array([[0.0], [5e-324]])
    terms = QuantileTerms(2, bounds, epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="apart"):
        terms.noise(1, 3)
