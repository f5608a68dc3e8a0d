"""A coordinator that is after one row of a real site, by a mixture of its choice."""

from types import SimpleNamespace

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.crypto._numbers import add_limbs
from skprivbn.exceptions import PartyError
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._em_protocol import EMParty
from skprivbn.mixture._gaussian_steps import frame_of, local_statistics, maximise
from skprivbn.mixture._start_protocol import SMALL
from skprivbn.mixture._survey_protocol import unanimous
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.hostile import as_integers, forge, other_total
from tests.federation.site.loopback import connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

X, WARD, PARTY, PEOPLE = make_rows()
TARGET = X[17]
BROAD = {
    "weights_init": [0.5, 0.5],
    "means_init": [[0.0, 0.0], [5.0, 4.0]],
    "precisions_init": [0.1, 0.1],
}
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


def play(rows, monkeypatch, hostile, start):
    """Fit at the sites with a coordinator of one's own."""

    def stop(federation, progress):
        hostile(federation)
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivbn.mixture._ppem.run_em", stop)
    mixture = PPEMGaussianMixture(
        2, covariance_type="spherical", backend="masking", **start
    )
    with pytest.raises(KeyboardInterrupt):
        mixture.fit(rows)


class Shadow(EMParty):
    """What the coordinator makes of the sums it reads: a party without rows."""

    def __init__(self, federation):
        context = SimpleNamespace(name="shadow", roster=federation.roster)
        super().__init__({"X": np.zeros((1, 2))}, federation.terms, context)

    def hide(self, vector):
        return None

    def reveal(self, total):
        return np.array(total)


def follow_to_the_first_sums(federation):
    """Run the survey and begin; return a shadow that knows what parties know."""
    shadow = Shadow(federation)
    total = federation.secure_sum("magnitudes")
    for name in ("centre", "distances", "spread"):
        getattr(shadow, name)(total)
        total = federation.secure_sum(name, {"total": total})
    shadow.settle(total)
    federation.call("settle", {"total": total})
    federation.call("begin_given")
    shadow.begin_given()
    return shadow


def sums_of(federation, add=0):
    """Ask for the sums of an iteration, after sizes of the coordinator's making."""
    sizes = HiddenVector.from_payload(federation.secure_sum("component_sizes"))

    def change(limbs):
        add_limbs(limbs[:, :2], as_integers(np.full(2, float(add))))

    forged = forge(sizes, change).to_payload()
    total = federation.secure_sum("statistics", {"total": forged})
    assert unanimous(federation.replies) != SMALL
    return total


def read_mean(shadow, total, frame):
    """Return the mean of the first component, as the sums tell it."""
    values = np.array(total)[:-1] / shadow.unit
    return maximise(values, frame, 0.0)[1][0] + shadow.middle


def find_row_by_a_forged_total(federation):
    shadow = follow_to_the_first_sums(federation)
    total = sums_of(federation)
    # sums of rows that nobody has: many near the target, many elsewhere
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2)) * np.repeat([1e-3, 3.0], 100)[:, None]
    rows[:100] += TARGET + 1e-4 - shadow.middle
    shares = np.repeat(np.eye(2), 100, axis=0)
    shadow.frame = shadow._survey_frame()
    wanted = local_statistics(rows, shares, shadow.frame) * shadow.unit
    forged = other_total(total, np.append(wanted, total[-1]))
    federation.call("update", {"total": forged})
    values = limbs_to_values(forged, len(total))
    shadow.run.summed = True
    shadow.update(values)
    return read_mean(shadow, sums_of(federation, add=10), frame_of(shadow.run.mixture))


def limbs_to_values(payload, length):
    """Return the values that parties read in a forged sum."""
    return MaskingBackend().open(HiddenVector.from_payload(payload))[:length]


def find_row_by_a_start(federation):
    shadow = follow_to_the_first_sums(federation)
    return read_mean(shadow, sums_of(federation), shadow._survey_frame())


def test_attack_a_forged_total_is_refused(rows, monkeypatch):
    def hostile(federation):
        with pytest.raises(PartyError, match="not signed or sealed"):
            find_row_by_a_forged_total(federation)

    play(rows, monkeypatch, hostile, BROAD)


def test_without_tags_the_row_is_found(rows, monkeypatch, no_tags):
    def hostile(federation):
        np.testing.assert_allclose(
            find_row_by_a_forged_total(federation), TARGET, atol=1e-6
        )

    play(rows, monkeypatch, hostile, BROAD)


def test_attack_a_needle_among_the_terms_is_not_answered(rows, monkeypatch):
    """The parties count first, among themselves: nothing was hidden by then."""

    def hostile(federation):
        follow_to_the_first_sums(federation)
        sizes = federation.secure_sum("component_sizes")
        told = federation.secure_sum("statistics", {"total": sizes})
        assert unanimous(federation.replies) == SMALL
        np.testing.assert_array_equal(told, [0.0])
        with pytest.raises(PartyError, match="refuses"):
            federation.secure_sum("statistics", {"total": sizes})

    play(rows, monkeypatch, hostile, NEEDLE)


def test_without_counting_first_the_row_is_found(rows, monkeypatch):
    monkeypatch.setattr(EMParty, "_too_small", lambda self, counts: False)

    def hostile(federation):
        np.testing.assert_allclose(find_row_by_a_start(federation), TARGET, atol=1e-6)

    play(rows, monkeypatch, hostile, NEEDLE)
