"""Rare labels at sites: they are merged as all sites found, and not as one makes up."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.preprocessing import FederatedOneHotEncoder, FederatedStandardScaler
from skprivbn.preprocessing._encoders import CategoryEncoder
from tests.federation.site.loopback import open_sites


@pytest.fixture
def rows(tmp_path):
    """Return rows of three sites; three of them have the label z, one at each."""
    labels = {name: [["x"]] * 40 + [["y"]] * 10 for name in ("north", "south", "west")}
    tables = {name: [*rows, ["z"]] for name, rows in labels.items()}
    estimators = ["FederatedOneHotEncoder", "FederatedStandardScaler"]
    columns = {"grade": '["x", "y", "z"]'}
    return open_sites(tmp_path, tables, columns, estimators).rows()


def count_rows(encoder, rows):
    """Return how many rows have each level, as a scaler tells it."""
    scaler = FederatedStandardScaler().fit(encoder.transform(rows))
    return dict(zip(encoder.get_feature_names_out(), scaler.mean_ * 153))


def test_labels_below_the_smallest_count_are_merged(rows):
    encoder = FederatedOneHotEncoder(min_frequency=1).fit(rows)
    # three are too few to be told alone, so the next larger label joins them
    assert encoder.infrequent_categories_[0].tolist() == [1, 2]
    assert encoder.get_feature_names_out().tolist() == [
        "grade_x",
        "grade_infrequent_sklearn",
    ]


def test_attack_labels_merged_in_another_way(rows, monkeypatch):
    """Of y and z together, and y alone, the difference is the count of z."""

    def count_z():
        encoder = FederatedOneHotEncoder(min_frequency=1).fit(rows)
        both = count_rows(encoder, rows)["grade_infrequent_sklearn"]
        encoder._rare = [np.array([True, False, True])]
        return both - count_rows(encoder, rows)["grade_y"]

    with pytest.raises(PartyError):
        count_z()
    # the twin: sites apply whatever they are told
    monkeypatch.setattr(CategoryEncoder, "_was_found", lambda self, found: True)
    assert count_z() == pytest.approx(3)
