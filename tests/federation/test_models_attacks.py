"""Steps of a coordinator's making before exact questions: attacks on real sites."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from tests.federation.site.loopback import open_sites
from tests.federation.site.test_block import projected, public_model, take_any_steps

NAMES = ("north", "south", "west")
N_ROWS = 200
TRANSFORMERS = [
    "FederatedKBinsDiscretizer",
    "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
    "describe",
]

pytestmark = pytest.mark.filterwarnings(
    "ignore:the columns of X have names",
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
)


@pytest.fixture
def stays(tmp_path):
    """Three sites, and their ages and days."""
    rng = np.random.default_rng(0)
    table = rng.normal([60, 9], [12, 2], (len(NAMES), N_ROWS, 2)).round(3)
    columns = {"age": '"float"', "days": '"float"'}
    tables = dict(zip(NAMES, table.tolist()))
    return open_sites(tmp_path, tables, columns, TRANSFORMERS), np.concatenate(table)


def code_of(ask, *arguments):
    with pytest.raises(PartyError) as caught:
        ask(*arguments)
    return caught.value.code


def cut_twice(rows, low, high):
    """Make two copies of a column, in bins that are alike but for one edge."""
    edges = [np.array([-np.inf, 50.0, 55.0, edge, np.inf]) for edge in (low, high)]
    bins = {"edges": edges, "encode": "ordinal"}
    bins = public_model(FederatedKBinsDiscretizer, bins, 2)
    return bins.transform(projected(rows, [0.0, 0.0], [[1.0, 0.0]] * 2))


def count_by_means(rows):
    scaler = FederatedStandardScaler().fit(rows)
    return (scaler.mean_[0] - scaler.mean_[1]) * scaler.n_samples_


def count_by_tables(rows):
    states = dict.fromkeys(rows.feature_names, [0.0, 1.0, 2.0, 3.0])
    summary = rows.describe(states=states, quantiles=[])
    one, other = (summary[name].counts for name in states)
    return (one - other)[-1]


@pytest.mark.parametrize("count", [count_by_means, count_by_tables])
def test_attack_copies_of_a_column_in_bins(stays, monkeypatch, count):
    sites, table = stays
    age = np.sort(table[:, 0])[400]
    rows = cut_twice(sites.rows(), age - 1e-7, age + 1e-7)
    assert code_of(count, rows) == "unknown-step"
    # the twin: one patient is so old
    take_any_steps(monkeypatch)
    assert count(rows) == pytest.approx(1)


def row_in_the_middle(rows):
    """Find quantiles along two axes that are nearly the same: coordinates of a row."""
    axes = projected(rows, [0.0, 0.0], [[1.0, 0.0], [1.0, 1e-3]])
    bins = FederatedKBinsDiscretizer(2, bounds=(58, 61)).fit(axes)
    one, other = (edges[1] for edges in bins.bin_edges_)
    return one, (other - one) / 1e-3


def test_attack_quantiles_along_axes(stays, monkeypatch):
    sites, table = stays
    assert code_of(row_in_the_middle, sites.rows()) == "unknown-step"
    copy = projected(sites.rows(), [0.0, 0.0], [[1.0, 0.0]])
    assert code_of(copy.describe) == "unknown-step"
    median = FederatedSimpleImputer(strategy="median")
    assert code_of(median.fit, copy) == "unknown-step"
    # the twin: age and days of one patient
    take_any_steps(monkeypatch)
    row = table[np.argsort(table[:, 0])[299]]
    np.testing.assert_allclose(row_in_the_middle(sites.rows()), row, atol=0.1)


LARGE = 2.0**51


def mean_of_bins(rows, offset, large=LARGE):
    """Have sites round a column beside a large number, and take that off again."""
    for mean in (-large - offset, large):
        model = {"mean": np.array([mean, 0.0]), "scale": np.ones(2)}
        rows = public_model(FederatedStandardScaler, model, 2).transform(rows)
    return FederatedStandardScaler().fit(rows).mean_[0]


def test_attack_bins_by_rounding(stays, monkeypatch):
    sites, table = stays
    assert code_of(mean_of_bins, sites.rows(), 0.0) == "unknown-step"
    # the twin: means of bins of half a year, which begin where the coordinator likes
    take_any_steps(monkeypatch)
    for offset in (0.0, 1.0):
        binned = (table[:, 0] + (LARGE + offset)) - LARGE
        assert mean_of_bins(sites.rows(), offset) == pytest.approx(binned.mean())
        assert len(np.unique(binned)) < len(np.unique(table[:, 0])) / 2


def test_steps_as_they_should_be_are_taken(stays):
    sites, table = stays
    rows = sites.rows()
    scaler = FederatedStandardScaler().fit(rows)
    pca = FederatedPCA().fit(scaler.transform(rows))
    found = FederatedStandardScaler().fit(pca.transform(scaler.transform(rows)))
    np.testing.assert_allclose(found.var_, pca.explained_variance_, rtol=0.01)
    bins = FederatedKBinsDiscretizer(2, min_rows=20).fit(scaler.transform(rows))
    binned = bins.transform(scaler.transform(rows))
    np.testing.assert_allclose(FederatedStandardScaler().fit(binned).mean_, 0.5)
