"""What PPEMGaussianMixture tells, to whom, and what it refuses to tell."""

import pickle
import struct

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skprivbn.exceptions import (
    BudgetExceededError,
    PartyError,
    PrivacyLeakWarning,
    ProtocolError,
)
from skprivbn.federation import InProcessFederation, decode
from skprivbn.mixture import PPEMGaussianMixture, _em_protocol
from skprivbn.partition import HorizontalPartition
from skprivbn.privacy import PrivacyAccountant
from tests.mixture.conftest import start_of

ignore_leaks = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def masked(n_components=3, **parameters):
    settings = {"backend": "masking", "random_state": 0, **parameters}
    return PPEMGaussianMixture(n_components, **settings)


def test_few_parties_few_rows_and_plain_sums_are_said(three_blobs):
    X, party = three_blobs
    quiet = {"covariance_type": "spherical", "max_iter": 5, "tol": 1.0}
    masked(**quiet).fit(X, party=party)
    with pytest.warns(PrivacyLeakWarning, match="two parties"):
        masked(**quiet).fit(X, party=np.arange(len(X)) % 2)
    with pytest.warns(PrivacyLeakWarning, match="one party"):
        masked(**quiet).fit(X)
    with pytest.warns(PrivacyLeakWarning, match="plaintext"):
        masked(**quiet, backend="plaintext").fit(X, party=party)
    lonely = np.where(np.arange(len(X)) == 7, "tiny", party)
    with pytest.warns(PrivacyLeakWarning, match=r"\['tiny'\].*min_rows=5"):
        masked(**quiet).fit(X, party=lonely)
    for start in ("k-means++", "random_from_data"):
        with pytest.warns(PrivacyLeakWarning, match="shows 3 rows"):
            masked(**quiet, init_params=start).fit(X, party=party)


def test_as_many_sums_as_values_are_said(three_blobs):
    X, party = three_blobs
    # 3 * (1 + 2 + 3) + 1 values per iteration and start, 480 values in all rows
    mixture = masked(init_params="random", tol=1e-9, max_iter=24)
    with pytest.warns(ConvergenceWarning):
        mixture.fit(X, party=party)
    with (
        pytest.warns(ConvergenceWarning),
        pytest.warns(PrivacyLeakWarning, match="494 numbers about 480 values"),
    ):
        mixture.set_params(max_iter=25).fit(X, party=party)


@ignore_leaks
def test_a_row_in_every_party(three_blobs):
    X = three_blobs[0][::12]
    party = np.arange(len(X))
    with pytest.raises(ValueError, match="min_rows=5"):
        masked(2).fit(X, party=party)
    start = start_of(X, 2, "diag")
    settings = {"covariance_type": "diag", **start}
    mixture = masked(2, min_rows=2, **settings).fit(X, party=party)
    expected = GaussianMixture(2, **settings).fit(X)
    np.testing.assert_allclose(mixture.means_, expected.means_, atol=1e-9)


@ignore_leaks
class TestSmallComponents:
    """A component on a handful of rows is a needle pointed at them."""

    @pytest.fixture
    def outlier(self, three_blobs):
        X, party = three_blobs
        X = np.vstack([X, [[60.0, 60.0], [60.5, 60.0]]])
        return X, np.append(party, ["0", "1"])

    def test_a_needle_is_refused_at_once(self, outlier):
        X, party = outlier
        start = {
            "weights_init": [0.5, 0.5],
            "means_init": [[1.0, 1.0], [60.0, 60.0]],
            "precisions_init": np.tile(np.eye(2), (2, 1, 1)),
        }
        with pytest.raises(ValueError, match="fewer than min_rows=5"):
            masked(2, **start).fit(X, party=party)
        masked(2, min_rows=1, **start).fit(X, party=party)

    def test_k_means_does_not_single_out_rows(self, outlier):
        X, party = outlier
        alone = masked(4, max_iter=0).fit(X)
        assert np.isclose(alone.weights_.min() * len(X), 2)
        with pytest.raises(ValueError, match="fewer than min_rows=5"):
            masked(4, max_iter=0).fit(X, party=party)

    def test_em_steps_back_before_a_component_gets_too_small(self, outlier):
        X, party = outlier
        start = {
            "weights_init": [0.5, 0.5],
            "means_init": [[1.0, 1.0], [5.0, 5.0]],
            "precisions_init": np.tile(0.2 * np.eye(2), (2, 1, 1)),
        }
        free = masked(2, min_rows=1, tol=1e-8, **start).fit(X, party=party)
        assert free.weights_.min() * len(X) < 5
        guarded = masked(2, tol=1e-8, **start)
        with pytest.warns(ConvergenceWarning, match="before a component describes"):
            guarded.fit(X, party=party)
        n_iter = guarded.n_iter_
        assert 0 < n_iter < free.n_iter_ and not guarded.converged_
        assert guarded.weights_.min() * len(X) >= 5
        stopped = GaussianMixture(2, max_iter=n_iter, tol=0, **start)
        with pytest.warns(ConvergenceWarning):
            stopped.fit(X)
        np.testing.assert_allclose(guarded.means_, stopped.means_, atol=1e-9)
        np.testing.assert_allclose(guarded.lower_bounds_, stopped.lower_bounds_)


class Tap(InProcessFederation):
    """A federation that keeps what the coordinator receives."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.received = []

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        for name, message in requests.items():
            operation = decode(message)["operation"]
            self.received.append((operation, name, replies[name]))
        return replies


@pytest.fixture
def tapped(monkeypatch):
    """Return the tap of the next federation."""
    taps = []

    def federate(
        self, party_class, terms, backend="plaintext", *, min_rows=1, **options
    ):
        taps.append(Tap(self._blocks, party_class, terms, backend, **options))
        return taps[-1]

    monkeypatch.setattr(HorizontalPartition, "federate", federate)
    return taps


def floats_in(payload):
    """Yield every float of a payload, hidden vectors aside."""
    if isinstance(payload, dict):
        if "hidden" not in payload:
            for value in payload.values():
                yield from floats_in(value)
    elif isinstance(payload, list):
        for value in payload:
            yield from floats_in(value)
    elif isinstance(payload, float):
        yield payload
    elif isinstance(payload, np.ndarray) and payload.dtype.kind == "f":
        yield from payload.ravel()


@ignore_leaks
@pytest.mark.parametrize("key_rotation", ["fit", "iteration"])
def test_no_decryption_reaches_the_coordinator(three_blobs, tapped, key_rotation):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(
        3, backend="ckks", random_state=0, key_rotation=key_rotation
    )
    mixture.fit(X, party=party)
    [tap] = tapped
    told = [
        payload
        for *_, message in tap.received
        if list(floats_in(payload := decode(message)["payload"]))
    ]
    # the coarse outline of the result is all that is told in numbers
    outline, *others = told
    assert [answer.keys() for answer in others] == [outline.keys()] * 4
    steps = outline["reference"] / outline["scale"] * 16
    np.testing.assert_array_equal(steps, np.rint(steps))
    rotations = sum(operation == "session.rotate" for operation, *_ in tap.received)
    expected = mixture.n_iter_ * 5 if key_rotation == "iteration" else 0
    assert rotations == expected


@ignore_leaks
def test_no_partys_log_likelihood_leaves_it(three_blobs, tapped):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(3, backend="ckks", random_state=0, verbose=2)
    mixture.fit(X, party=party)
    [tap] = tapped
    messages = b"".join(message for *_, message in tap.received)
    rows_of = HorizontalPartition.from_rows(X, party)._blocks
    for name, host in tap._hosts.items():
        own = mixture.score_samples(rows_of[name]["X"]).sum()
        assert struct.pack("<d", own) not in messages
        assert host._party is None
    # the total is a result, and adds up
    assert len(mixture.lower_bounds_) == mixture.n_iter_


@ignore_leaks
@pytest.mark.parametrize("backend", ["ckks", "masking", "party-masking"])
def test_messages_have_sizes_that_do_not_depend_on_the_rows(three_blobs, backend):
    X, party = three_blobs
    start = start_of(X, 3, "full")
    settings = {**start, "max_iter": 3, "tol": 0, "backend": backend}
    sizes = []
    for rows in (X, X[::-1] * 0.5 + 1):
        mixture = PPEMGaussianMixture(3, **settings)
        with pytest.warns(ConvergenceWarning):
            mixture.fit(rows, party=party)
        entries = mixture.ledger_.entries
        # Totals that the coordinator reads come back in as many bytes as the largest
        # of them needs, which says nothing that they do not.
        sizes.append(
            [
                (e.operation, e.sender, e.receiver, e.n_bytes)
                for e in entries
                if backend != "masking" or e.sender != "coordinator"
            ]
        )
    assert sizes[0] == sizes[1]


def test_the_ledger_tells_who_learns_what(three_blobs):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(
        3, covariance_type="spherical", random_state=0, tol=1.0
    ).fit(X, party=party)
    table = list(mixture.ledger_.who_learns_what())
    clear = {
        (who, what)
        for who, what, _, seen_as, *_ in table
        if seen_as == "sums over rows, in the clear"
    }
    by_coordinator = [what for who, what in clear if who == "coordinator"]
    assert len(by_coordinator) == 1 and "best start's last" in by_coordinator[0]
    assert any(what.startswith("centres and sizes") for who, what in clear)
    assert not any(row[3].startswith("rows of data") for row in table)


@ignore_leaks
def test_parties_accept_nothing_out_of_turn(three_blobs, monkeypatch):
    X, party = three_blobs

    def greedy(federation, progress):
        federation.secure_sum("statistics")

    monkeypatch.setattr("skprivbn.mixture._ppem.run_em", greedy)
    with pytest.raises(PartyError, match="refuses"):
        masked().fit(X, party=party)


@ignore_leaks
@pytest.mark.parametrize("backend", ["masking", "party-masking"])
def test_parties_sum_nothing_after_the_last_iteration(
    three_blobs, monkeypatch, backend
):
    X, party = three_blobs

    def greedy(federation, progress):
        _em_protocol.survey(federation)
        _em_protocol.start(federation, federation.terms)
        total, _ = _em_protocol._sums(federation, None)
        _em_protocol._first_sums(federation, total)

    monkeypatch.setattr("skprivbn.mixture._ppem.run_em", greedy)
    with pytest.raises(PartyError, match="refuses"):
        masked(backend=backend, max_iter=1).fit(X, party=party)
    # there is an iteration to go: the same question is due
    with pytest.raises(AttributeError, match="'NoneType'"):
        masked(backend=backend, max_iter=2).fit(X, party=party)


@ignore_leaks
def test_a_failed_fit_leaves_no_result_and_secrets_none(three_blobs, monkeypatch):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(3, backend="ckks", random_state=0)

    def wrong_total(*asked):
        raise ProtocolError("the parties disagree on how to go on")

    with monkeypatch.context() as patched:
        patched.setattr(_em_protocol, "sum_and_status", wrong_total)
        with pytest.raises(ProtocolError):
            mixture.fit(X, party=party)
    assert not hasattr(mixture, "means_")
    text = pickle.dumps(mixture.fit(X, party=party))
    assert b"tenseal" not in text and b"PartyHost" not in text


def test_exact_fits_are_refused_under_a_privacy_budget(three_blobs):
    X, party = three_blobs
    accountant = PrivacyAccountant(epsilon=1.0)
    with pytest.raises(BudgetExceededError):
        masked(accountant=accountant).fit(X, party=party)
