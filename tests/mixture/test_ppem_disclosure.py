"""What PPEMGaussianMixture tells, to whom, and what it refuses to tell."""

import pickle
import struct

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skprivbn.crypto import CKKSBackend
from skprivbn.exceptions import (
    BudgetExceededError,
    PrivacyLeakWarning,
    ProtocolError,
)
from skprivbn.federation import Coordinator, decode
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.privacy import PrivacyAccountant
from tests.federation.hostile import Relay
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
    with pytest.warns(PrivacyLeakWarning, match="two parties, '0' and '1', each"):
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
        pytest.warns(PrivacyLeakWarning, match="494 sums, and all .* 480 values"),
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


@pytest.fixture
def tap():
    """Stand where the coordinator is."""
    with Relay().carrying() as relay:
        yield relay


def floats_in(payload):
    """Yield every float of a payload; hidden vectors are bytes."""
    if isinstance(payload, dict):
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
@pytest.mark.parametrize("backend", ["ckks", "masking"])
def test_nothing_but_the_result_reaches_the_coordinator(three_blobs, tap, backend):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(3, backend=backend, random_state=0)
    mixture.fit(X, party=party)
    told = [
        payload
        for message in tap.replies
        if list(floats_in(payload := decode(message.body)["payload"]))
    ]
    assert len(told) == len(set(party))
    assert all(payload.keys() == {"result"} for payload in told)
    np.testing.assert_array_equal(told[0]["result"]["means"], mixture.means_)


@ignore_leaks
def test_results_do_not_depend_on_the_noise_of_ciphertexts(three_blobs):
    # What is told is a function of the inputs alone, so that it says nothing of a key.
    X, party = three_blobs
    one, again, masked_one = (
        PPEMGaussianMixture(3, backend=backend, random_state=0).fit(X, party=party)
        for backend in ("ckks", "ckks", "masking")
    )
    for name in ("weights_", "means_", "covariances_", "lower_bounds_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(one, name), getattr(masked_one, name))


@ignore_leaks
def test_keys_may_change_in_every_iteration(three_blobs, monkeypatch):
    X, party = three_blobs
    keys, make = [], CKKSBackend._make_key

    def watched(backend):
        keys.append(make(backend))
        return keys[-1]

    monkeypatch.setattr(CKKSBackend, "_make_key", watched)
    settings = {"backend": "ckks", "random_state": 0}
    one = PPEMGaussianMixture(3, **settings).fit(X, party=party)
    assert len(keys) == 1
    keys.clear()
    other = PPEMGaussianMixture(3, key_rotation="iteration", **settings)
    other.fit(X, party=party)
    assert len(set(keys)) == 1 + other.n_iter_
    np.testing.assert_array_equal(one.means_, other.means_)


@ignore_leaks
def test_no_partys_log_likelihood_leaves_it(three_blobs, tap):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(3, backend="ckks", random_state=0, max_iter=1, tol=1)
    mixture.fit(X, party=party)
    messages = b"".join(message.body for message in tap.replies)
    assert struct.pack("<d", mixture.lower_bound_) in messages
    start = PPEMGaussianMixture(3, backend="ckks", random_state=0, max_iter=0)
    start.fit(X, party=party)
    for name in set(party):
        own = start.score_samples(X[party == name])
        for value in (own.sum(), own.mean()):
            assert struct.pack("<d", value) not in messages


@ignore_leaks
@pytest.mark.parametrize("backend", ["ckks", "masking"])
def test_messages_have_sizes_that_do_not_depend_on_the_rows(three_blobs, backend):
    X, party = three_blobs
    start = start_of(X, 3, "full")
    settings = {**start, "max_iter": 3, "tol": 0, "backend": backend}
    sizes = []
    for rows in (X, X[::-1] * 0.5 + 1):
        mixture = PPEMGaussianMixture(3, **settings)
        with pytest.warns(ConvergenceWarning):
            mixture.fit(rows, party=party)
        sizes.append(
            [
                (e.operation, e.sender, e.receiver, e.n_bytes)
                for e in mixture.ledger_.entries
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
    assert not [what for who, what in clear if who == "coordinator"]
    told = {what for who, what, *_ in table if who == "coordinator"}
    assert "the result" in told
    assert any(what.startswith("centres and sizes") for who, what in clear)
    assert not any(row[3].startswith("rows of data") for row in table)


@ignore_leaks
def test_a_failed_fit_leaves_no_result_and_secrets_none(three_blobs, monkeypatch):
    X, party = three_blobs
    mixture = PPEMGaussianMixture(3, backend="ckks", random_state=0)

    def wrong_total(*asked):
        raise ProtocolError("the parties disagree")

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "_add", wrong_total)
        with pytest.raises(ProtocolError):
            mixture.fit(X, party=party)
    assert not hasattr(mixture, "means_")
    text = pickle.dumps(mixture.fit(X, party=party))
    assert b"tenseal" not in text and b"Runner" not in text


def test_exact_fits_are_refused_under_a_privacy_budget(three_blobs):
    X, party = three_blobs
    accountant = PrivacyAccountant(epsilon=1.0)
    with pytest.raises(BudgetExceededError):
        masked(accountant=accountant).fit(X, party=party)
