"""Steps that all parties do alike are done once in a process, and nobody notices."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.structure import FederatedNotearsADMM
from skprivbn.structure.admm._steps import ConsensusProblem
from skprivbn.utils._memoise import memoise, memoise_steps


@dataclass(frozen=True)
class Point:
    place: np.ndarray
    name: str = "here"


@dataclass(frozen=True)
class OtherPoint(Point):
    pass


@pytest.fixture
def calls():
    return []


@pytest.fixture
def doubled(calls):
    @memoise
    def double(value, *, plus=0.0):
        """Double."""
        calls.append(value)
        if isinstance(value, Point):
            return Point(2 * value.place), plus
        return 2 * value, plus

    return double


def test_only_the_last_call_is_remembered(doubled, calls):
    for value in (1.0, 1.0, 2.0, 2.0, 1.0):
        assert doubled(value) == (2 * value, 0.0)
    assert calls == [1.0, 2.0, 1.0]
    assert doubled.__doc__ == "Double."


ROW = np.arange(6.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (1.0, np.nextafter(1.0, 2.0)),
        ("1", 1),
        (ROW, ROW.reshape(2, 3)),
        (ROW, ROW.astype(np.float32)),
        (ROW, ROW.view(np.int64)),
        (ROW, ROW[::-1]),
        (np.float32(1), np.int32(1)),
        (np.int64(1), np.int64(2)),
        (Point(ROW), Point(ROW, "there")),
        (Point(ROW), Point(ROW + 1e-12)),
        (Point(ROW), OtherPoint(ROW)),
        ((1, 2), ((1,), 2)),
        (None, "None"),
    ],
)
def test_values_that_differ_in_one_bit_or_in_their_type_are_computed_anew(one, other):
    seen = []
    remember = memoise(lambda value: seen.append(value) or len(seen))
    assert [remember(one), remember(other), remember(other)] == [1, 2, 2]


def test_arguments_by_name_count(doubled, calls):
    assert doubled(1.0) != doubled(1.0, plus=1.0)
    assert len(calls) == 2


def test_equal_arrays_need_not_be_the_same_object(doubled, calls):
    strided = np.arange(12.0)[::2]
    np.testing.assert_array_equal(doubled(strided)[0], doubled(strided.copy())[0])
    assert len(calls) == 1


def test_nobody_can_change_what_others_get(doubled, calls):
    argument = np.ones(3)
    for _ in range(3):
        result, _ = doubled(argument)
        np.testing.assert_array_equal(result, [2, 2, 2])
        result[:] = 7
    for _ in range(3):
        point, _ = doubled(Point(np.ones(3)))
        np.testing.assert_array_equal(point.place, [2, 2, 2])
        point.place[:] = 7
    assert len(calls) == 2


def test_a_changed_argument_is_another_one(doubled, calls):
    argument = np.ones(3)
    doubled(argument)
    argument[0] = 5
    assert doubled(argument)[0][0] == 10
    assert len(calls) == 2


def test_errors_are_not_kept(calls):
    @memoise
    def fail_at_first(value):
        calls.append(value)
        if len(calls) == 1:
            raise ValueError("no")
        return value

    with pytest.raises(ValueError, match="no"):
        fail_at_first(1)
    assert fail_at_first(1) == 1


@pytest.mark.parametrize("value", [np.array([object()]), {1}, object()])
def test_what_has_no_bytes_is_refused(doubled, value):
    with pytest.raises(TypeError, match="told apart|no bytes"):
        doubled(value)


def test_threads_get_their_own_results(doubled):
    def work(number):
        value = np.full(50, float(number % 5))
        return np.array_equal(doubled(value)[0], 2 * value)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(500)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_memory_of_its_own(doubled):
    doubled(np.ones(3))
    child = os.fork()
    if child == 0:
        right = doubled(np.full(3, 2.0))[0][0] == 4 and doubled(np.ones(3))[0][0] == 2
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert doubled(np.ones(3))[0][0] == 2


ROWS = np.cumsum(np.random.default_rng(0).normal(size=(120, 4)), axis=1)
PARTY = np.arange(120) % 4


def count_measures(monkeypatch):
    """Count how often the server's problem looks for cycles."""
    from skprivbn.structure.admm import _steps
    from skprivbn.structure.gaussian._notears import log_det

    n_calls = []

    def measured(squared):
        n_calls.append(1)
        return log_det(squared)

    monkeypatch.setitem(_steps.ACYCLICITY, "logdet", measured)
    return n_calls


@pytest.mark.filterwarnings("ignore:the sums of 6 rounds", "ignore:no consensus")
def test_admm_solves_the_servers_problem_once_for_all_parties(monkeypatch):
    estimator = FederatedNotearsADMM(max_iter=6, backend="masking")
    n_calls = count_measures(monkeypatch)
    once = estimator.fit(ROWS, party=PARTY).weights_.copy()
    n_once = len(n_calls)
    n_calls.clear()
    # the twin: every party for itself
    monkeypatch.setattr(ConsensusProblem, "step", ConsensusProblem.step.__wrapped__)
    np.testing.assert_array_equal(estimator.fit(ROWS, party=PARTY).weights_, once)
    # each of the four measures its start, too
    assert len(n_calls) - 4 == 4 * (n_once - 4) > 0


@pytest.mark.filterwarnings("ignore:the sums of 2 rounds", "ignore:no consensus")
@pytest.mark.parametrize("number", [np.float32, np.int64])
def test_parameters_may_be_numbers_of_numpy(number):
    estimator = FederatedNotearsADMM(lambda1=1, max_iter=2, backend="masking")
    weights = estimator.fit(ROWS, party=PARTY).weights_.copy()
    estimator.set_params(lambda1=number(1))
    np.testing.assert_array_equal(estimator.fit(ROWS, party=PARTY).weights_, weights)


def test_fitted_attributes_can_be_changed_without_harm():
    X = np.random.default_rng(0).normal(size=(90, 2)) + np.arange(90)[:, None] % 3 * 5
    mixture = PPEMGaussianMixture(3, max_iter=4, random_state=0, backend="masking")
    first = mixture.fit(X, party=PARTY[:90]).means_.copy()
    for name in ("means_", "covariances_", "precisions_cholesky_", "weights_"):
        getattr(mixture, name)[:] = 0
    np.testing.assert_array_equal(mixture.fit(X, party=PARTY[:90]).means_, first)


def test_steps_are_made_once_for_those_who_are_answered_the_same():
    made = []

    @memoise_steps
    def steps(start):
        while start < 100:
            made.append(start)
            start = start + (yield np.array([start]))
        return start

    one, other, third = steps(1), steps(1), steps(1)
    assert [next(one), next(other), next(third)] == [1, 1, 1]
    assert [one.send(5), other.send(5)] == [6, 6]
    assert made == [1, 6]
    # answered otherwise: steps of its own, from the first on
    assert third.send(7) == 8
    assert made == [1, 6, 1, 8]
    for generator, last in ((one, 106), (other, 106), (third, 108)):
        with pytest.raises(StopIteration) as stop:
            generator.send(100)
        assert stop.value.value == last


def test_steps_are_forgotten_when_all_have_ended():
    made = []

    @memoise_steps
    def steps():
        made.append(1)
        yield 1

    for _ in range(2):
        assert list(steps()) == [1]
    assert made == [1, 1]
