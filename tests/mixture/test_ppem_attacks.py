"""What a coordinator or a relay may try to learn beyond what the ledger says."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend, PaillierBackend, PartyMaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._start_protocol import SMALL, start
from skprivbn.mixture._survey_protocol import survey, unanimous

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


def test_a_needle_on_one_row_gets_no_answer(three_blobs, monkeypatch):
    # One component describes row 7 and nothing else. The key holders see that, and
    # the coordinator cannot talk them into releasing the sums all the same.
    X, party = three_blobs
    rows = X.copy()
    rows[7] += 20
    seen = []

    def hostile(federation, progress):
        survey(federation)
        start(federation, federation.terms)
        total = federation.secure_sum("statistics")
        seen.append(unanimous(federation.call("update", {"total": total})))
        federation.call("finish")
        federation.call("outline")
        seen.append(federation.secure_sum("release"))

    monkeypatch.setattr("skprivbn.mixture._ppem.run_em", hostile)
    mixture = PPEMGaussianMixture(
        2,
        covariance_type="spherical",
        weights_init=[0.5, 0.5],
        means_init=[rows[7], rows.mean(axis=0)],
        precisions_init=[100.0, 0.01],
        backend=PaillierBackend(key_size=512, insecure_test_key=True),
    )
    with pytest.raises(PartyError, match="refuses"):
        mixture.fit(rows, party=party)
    assert seen == [SMALL]


@pytest.mark.parametrize("init_params", ["kmeans", "local_em", "random_from_data"])
def test_sealed_messages_of_the_start_do_not_show_who_has_what(
    three_blobs, init_params
):
    # One party has too few rows for more than one cluster; rows are chosen from some.
    X, party = three_blobs
    party = np.where(np.arange(len(X)) < 7, "tiny", party)
    mixture = PPEMGaussianMixture(
        3, init_params=init_params, max_iter=1, backend="masking", random_state=0
    ).fit(X, party=party)
    sizes = defaultdict(Counter)
    for entry in mixture.ledger_.entries:
        if entry.kind == "sealed":
            sizes[entry.sender, entry.receiver][entry.n_bytes] += 1
    first, *others = sizes.values()
    assert first and all(other == first for other in others)


@pytest.mark.parametrize("backend", ["masking", "party-masking"])
@pytest.mark.parametrize("is_late", [True, False])
def test_sums_of_an_iteration_come_back_when_they_are_due(
    three_blobs, monkeypatch, backend, is_late
):
    # Without the M-step that is due, or with one before its sums, nothing is told.
    X, party = three_blobs

    def hostile(federation, progress):
        survey(federation)
        start(federation, federation.terms)
        counts_first = backend == "masking"
        first = "component_sizes" if counts_first else "statistics"
        total = federation.secure_sum(first)
        if counts_first:
            total = federation.secure_sum("statistics", {"total": total})
        if not is_late:
            total = federation.secure_sum(first, {"total": total})
            federation.secure_sum("statistics", {"total": total})
        federation.secure_sum(first)

    monkeypatch.setattr("skprivbn.mixture._ppem.run_em", hostile)
    with pytest.raises(PartyError, match="refuses"):
        PPEMGaussianMixture(2, backend=backend, random_state=0).fit(X, party=party)


@pytest.mark.parametrize(
    "backend",
    [
        MaskingBackend(signed=True),
        MaskingBackend(recovery=True),
        PartyMaskingBackend(signed=True),
    ],
)
def test_sums_in_several_steps_tell_whether_to_go_on(three_blobs, backend):
    X, party = three_blobs
    one, other = (
        PPEMGaussianMixture(3, backend=how, random_state=0).fit(X, party=party)
        for how in ("masking", backend)
    )
    assert one.n_iter_ == other.n_iter_ > 1
    np.testing.assert_array_equal(one.means_, other.means_)
