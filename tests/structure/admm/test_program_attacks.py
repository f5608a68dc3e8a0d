"""What ADMM parties do not take from a coordinator, nor tell about few rows."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedDynotears, FederatedNotearsADMM
from skprivbn.structure.admm._program import admm
from tests.federation.fits import rounds_with_totals
from tests.federation.hostile import Changing, Relay, add_plaintext, with_vectors
from tests.federation.site.loopback import open_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)

PARTY = np.arange(30) % 3
#: stands out in the first column; the coordinator is after its second
NEEDLE = 7
ROWS = np.random.default_rng(0).normal(size=(30, 2))
ROWS[NEEDLE, 0] = 60.0
#: a network whose only unit is on for rows beyond 20 in the first column
MAPS, BIAS, OUTPUT = [0.0, 1.5, 0.0, 0.0], [0.0, -30.0], [0.0, 50.0]


def model_terms(method="mlp", **parameters):
    learner = FederatedNotearsADMM(method, random_state=0, **parameters)
    learner.n_features_in_ = 2
    return learner._model_terms(3)


def isolate_one_row():
    """Return the second column of the needle, about the mean of its holder's rows.

    What parties ask for in the first round is shifted, so that from the sum follows a
    network that looks at one row.
    """
    terms = model_terms(mlp_params={"n_hidden": 1}, max_iter=1)
    partition = HorizontalPartition.from_rows(ROWS, PARTY)

    def learn(relay):
        with partition.federate(admm, terms, "masking") as federation:
            with relay.carrying():
                return federation.run()

    watched = Relay()
    learn(watched)
    _, _, first, *_ = rounds_with_totals(watched)
    shift = 3 * np.concatenate([MAPS, BIAS, OUTPUT])

    def change(message):
        def shifted(hidden):
            return add_plaintext(MaskingBackend(), hidden, shift)

        return with_vectors(message, shifted)

    found = learn(Changing(change, first))
    height, level = terms.kept(found["parameters"])[[7, 9]]
    spread = 30 * found["variances"][1]
    squares = 30 * (found["noise"][1] + found["shift"][1] ** 2)
    # Sum (x - level - height [is the needle])^2, where all x add up to zero
    return (spread + 30 * level**2 + height**2 - squares) / (2 * height) + level


class TestOneRow:
    """A sum of the coordinator's making is a network of its choice."""

    def test_attack_is_refused(self):
        with pytest.raises(PartyError, match="not signed or sealed"):
            isolate_one_row()

    def test_attack_works_without_tags(self, no_tags):
        own = ROWS[PARTY[NEEDLE] == PARTY].mean(axis=0)
        assert isolate_one_row() + own[1] == pytest.approx(ROWS[NEEDLE, 1], abs=1e-3)


def test_weights_of_networks_are_drawn_from_a_seed():
    """A start of the coordinator's choice would be such a network, too."""
    terms = model_terms(mlp_params={"n_hidden": 2})
    assert "start" not in terms.to_payload()
    assert np.abs(terms.start()).max() <= 1 / np.sqrt(2)


def test_attack_series_in_which_hardly_any_row_has_a_past(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(60, 9, (3, 40, 2)).round(2)
    beds = np.tile(np.arange(40), (3, 1))
    # two patients of north come after another one in the same bed, and nobody else
    beds[0, [7, 9]], beds[0, [17, 29]] = 50, 51
    tables = {
        name: [[*row, bed] for row, bed in zip(mine.tolist(), numbers.tolist())]
        for name, mine, numbers in zip(("north", "south", "west"), rows, beds)
    }
    columns = {"age": '"float"', "stay": '"float"', "bed": '"int"'}
    sites = open_sites(tmp_path, tables, columns, ["FederatedDynotears"])
    model = FederatedDynotears(n_lags=1, max_iter=2)
    with pytest.raises(PartyError) as caught:
        model.fit(sites.rows(["age", "stay"]), series="bed")
    assert caught.value.code == "too-few-rows"
    # the twin: the mean of two patients, in every column
    monkeypatch.setattr(
        "skprivbn.federation.runner.check_rows",
        lambda total, n_values, *others: total[:n_values],
    )
    model.fit(sites.rows(["age", "stay"]), series="bed")
    assert model.n_samples_ == 2
    np.testing.assert_allclose(model.mean_, rows[0, [9, 29]].mean(axis=0), rtol=1e-12)
