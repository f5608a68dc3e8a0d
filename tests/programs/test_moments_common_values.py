"""Products of columns that are zero in most rows: those of the rows that have both."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import HostPolicy, InProcessFederation
from skprivbn.federation._rows import RowSource
from skprivbn.federation.gate import common_values
from skprivbn.programs import _moments
from skprivbn.programs._moments import MomentsTerms, moments, read_moments

LIMITS = HostPolicy(min_rows=20, min_cell_count=5)


def costs(n_both, zero=0.0):
    """Return two costs that few of 1,200 patients have, and so many of them both."""
    rng, rows = np.random.default_rng(0), np.full((1200, 2), zero)
    rows[:90, 0] += rng.gamma(20, 1, 90)
    rows[90 - n_both : 180 - n_both, 1] += rng.gamma(20, 1, 90)
    return rng.permutation(rows)


def sum_of_products(rows, n_parties=3):
    blocks = {f"site {i}": {"X": x} for i, x in enumerate(np.split(rows, n_parties))}
    terms = MomentsTerms("full")
    with InProcessFederation(blocks, moments, terms, policy=LIMITS) as federation:
        found = read_moments(federation.run(), terms, n_parties)
    return found.n_rows * (found.covariance[0, 1] + np.prod(found.mean))


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize(("n_both", "told"), [(0, True), (1, False), (4, False)])
@pytest.mark.parametrize("zero", [0.0, 10.0])
def test_few_rows_that_have_both(n_both, told, n_parties, zero):
    if told:
        sum_of_products(costs(n_both, zero), n_parties)
    else:
        with pytest.raises(PartyError, match="min_cell_count"):
            sum_of_products(costs(n_both, zero), n_parties)


def test_enough_rows_that_have_both():
    rows = costs(7)
    assert sum_of_products(rows) == pytest.approx(np.prod(rows, axis=1).sum())


def test_attack_the_product_of_one_patient(monkeypatch):
    """The twin: without common values, the sum is what this patient has."""
    rows = costs(1)
    with pytest.raises(PartyError):
        sum_of_products(rows)
    monkeypatch.setattr(
        _moments,
        "centres_of_pairs",
        lambda rows, mean: (mean, np.zeros(2, dtype=bool)),
    )
    patient = rows[(rows > 0).all(axis=1)][0]
    assert sum_of_products(rows) == pytest.approx(patient.prod(), rel=1e-9)


def test_values_that_most_rows_have():
    rows = np.array([[1, 0, 5, np.nan], [1, 0, 5, np.nan], [1, 2, 6, np.nan]])
    rows = np.vstack([rows, [[7.0, 3.0, 6.0, np.nan], [8.0, 0.0, np.nan, np.nan]]])
    expected = [1, 0, np.nan, np.nan]
    np.testing.assert_array_equal(common_values(rows), expected)
    blocks = RowSource(lambda: iter([rows[3:], rows[:3]]), 5, list("abcd"))
    np.testing.assert_array_equal(common_values(blocks), expected)
