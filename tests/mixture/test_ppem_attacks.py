"""What a coordinator or a relay may try to learn beyond what the ledger says."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend, PaillierBackend
from skprivbn.mixture import PPEMGaussianMixture

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_a_needle_on_one_row_gets_no_answer(three_blobs, monkeypatch, is_looked_at):
    # One component describes row 7 and nothing else, which the key holders see.
    X, party = three_blobs
    rows = X.copy()
    rows[7] += 20
    mixture = PPEMGaussianMixture(
        2,
        covariance_type="spherical",
        weights_init=[0.5, 0.5],
        means_init=[rows[7] + 0.01, rows.mean(axis=0)],
        precisions_init=[100.0, 0.01],
        max_iter=1,
        backend=PaillierBackend(key_size=512, insecure_test_key=True),
    )
    if is_looked_at:
        with pytest.raises(ValueError, match="fewer than min_rows=5"):
            mixture.fit(rows, party=party)
        return
    monkeypatch.setattr(
        "skprivbn.federation.runner.check_rows", lambda total, n, *words: total[:n]
    )
    mixture.fit(rows, party=party)
    np.testing.assert_allclose(mixture.means_[0], rows[7], atol=1e-6)


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


@pytest.mark.parametrize(
    "backend",
    [
        MaskingBackend(signed=True),
        MaskingBackend(recovery=True),
        MaskingBackend(max_colluders=None),
        "ckks",
    ],
    ids=str,
)
def test_all_backends_add_the_same_numbers(three_blobs, backend):
    X, party = three_blobs
    one, other = (
        PPEMGaussianMixture(3, backend=how, random_state=0).fit(X, party=party)
        for how in ("masking", backend)
    )
    assert one.n_iter_ == other.n_iter_ > 1
    np.testing.assert_array_equal(one.means_, other.means_)
