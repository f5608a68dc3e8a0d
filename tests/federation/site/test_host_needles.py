"""A researcher who is after one row of a real site, by a mixture of their choice."""

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector
from skprivbn.crypto._numbers import add_limbs
from skprivbn.exceptions import PartyError
from skprivbn.federation import decode, encode
from skprivbn.mixture import PPEMGaussianMixture
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.hostile import Relay, as_integers, forge
from tests.federation.site.loopback import connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

X, WARD, PARTY, PEOPLE = make_rows()
TARGET = X[17]
#: one component on the target and nothing else, known to a fraction of its distance
#: from all other rows
NEEDLE = {
    "weights_init": [0.5, 0.5],
    "means_init": [TARGET + 1e-4, [5.0, 4.0]],
    "precisions_init": [1e6, 0.01],
}


@pytest.fixture
def rows(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    return connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b"])


def fit_a_needle(rows, backend):
    """Return the means of a mixture that begins with a needle on one row."""
    mixture = PPEMGaussianMixture(
        2, covariance_type="spherical", backend=backend, max_iter=1, **NEEDLE
    )
    return mixture.fit(rows).means_


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_attack_a_fit_that_begins_at_one_row(rows, backend):
    with pytest.raises(ValueError, match="fewer than min_rows=5"):
        fit_a_needle(rows, backend)


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_without_a_look_at_sizes_its_mean_is_the_row(rows, backend, monkeypatch):
    monkeypatch.setattr(
        "skprivbn.federation.runner.check_rows", lambda total, n, *words: total[:n]
    )
    np.testing.assert_allclose(fit_a_needle(rows, backend)[0], TARGET, atol=1e-6)


class PretendRows(Relay):
    """Adds rows to those that the sum of an iteration is about, on its way back.

    Nobody but the parties reads the total; its last numbers are how much rows count,
    once and squared, in each of two components.
    """

    def to_party(self, message):
        request = decode(message.body)
        if "total" not in request.get("payload", {}):
            return message.body
        total = HiddenVector.from_payload(request["payload"]["total"])
        # counts, means, mean squares, the log-likelihood, and what was said above
        if total.length != 2 + 4 + 2 + 1 + 4:
            return message.body

        def change(limbs):
            add_limbs(limbs[:, -4:], as_integers(np.full(4, 100 / 2.0**14)))

        forged = forge(total, change)
        request["payload"]["total"] = forged.to_payload()
        return encode(request)


def test_attack_a_forged_total_is_refused(rows):
    with PretendRows().at_sites():
        with pytest.raises(PartyError, match="not signed or sealed"):
            fit_a_needle(rows, "masking")


def test_without_tags_the_row_is_found(rows, no_tags):
    with PretendRows().at_sites():
        np.testing.assert_allclose(fit_a_needle(rows, "masking")[0], TARGET, atol=1e-6)
