"""Rows that are read in blocks, whenever they are used."""

import tracemalloc

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import _rows
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixture import PPEMGaussianMixture, _seeding
from skprivbn.partition import HorizontalPartition, RowSource
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.structure import FederatedGaussianBayesianNetwork

# fits to few rows leak this or that, and converge or do not
pytestmark = pytest.mark.filterwarnings("ignore")

PARTIES = ("north", "south", "west")
NAMES = ["x0", "x1", "x2", "x3"]
EDGES = np.linspace(-5, 8, 9).tolist()


def normal_source(n_rows, n_columns=4, n_per_block=1000, seed=0):
    """Rows that are made up when they are read, the same each time."""

    def read():
        rng = np.random.default_rng(seed)
        for start in range(0, n_rows, n_per_block):
            n = min(n_per_block, n_rows - start)
            yield rng.normal(size=(n, n_columns)) + np.arange(n_columns)

    return RowSource(read, n_rows, [f"x{i}" for i in range(n_columns)])


def make_partitions(n_rows):
    """The same rows, to be read in blocks and in memory."""
    sources = {
        name: normal_source(n_rows, seed=seed) for seed, name in enumerate(PARTIES)
    }
    arrays = {name: np.asarray(source) for name, source in sources.items()}
    return HorizontalPartition(sources), HorizontalPartition(arrays, NAMES)


LEARNERS = {
    "scaler": (FederatedStandardScaler(), ["mean_", "scale_"]),
    "pca": (FederatedPCA(), ["mean_", "covariance_"]),
    "network": (FederatedGaussianBayesianNetwork("bic"), ["weights_"]),
    "notears": (FederatedGaussianBayesianNetwork("notears"), ["weights_"]),
    "party means": (
        FederatedGaussianBayesianNetwork("bic", site_effects="levels"),
        ["weights_"],
    ),
    "basis": (
        FederatedGaussianBayesianNetwork("bic", basis="sigmoid"),
        ["adjacency_matrix_"],
    ),
    "bins": (FederatedKBinsDiscretizer(4), ["bin_edges_"]),
    "mixture": (
        PPEMGaussianMixture(2, backend="masking", random_state=0, max_iter=5),
        ["means_", "covariances_", "weights_"],
    ),
    "local mixtures": (
        PPEMGaussianMixture(
            2, backend="masking", init_params="local_em", random_state=0, max_iter=2
        ),
        ["means_"],
    ),
    "mixture from rows": (
        PPEMGaussianMixture(
            2, backend="masking", init_params="k-means++", random_state=0, max_iter=2
        ),
        ["means_"],
    ),
}


@pytest.mark.parametrize(("model", "attributes"), LEARNERS.values(), ids=LEARNERS)
def test_a_fit_in_blocks_is_the_fit_in_memory(model, attributes):
    sources, arrays = make_partitions(2500)
    streamed = model.fit(sources)
    found = [np.copy(getattr(streamed, name)) for name in attributes]
    expected = model.fit(arrays)
    for name, value in zip(attributes, found):
        # one array, or one for each column
        for one, other in zip(value, getattr(expected, name)):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def no_noise(self, shape):
    return np.zeros(shape, dtype=np.int64)


@pytest.mark.parametrize(
    "model",
    [
        FederatedPCA(epsilon=1.0, bounds=(-5, 8)),
        FederatedKBinsDiscretizer(4, epsilon=1.0, bounds=(-5, 8)),
        FederatedGaussianBayesianNetwork("bic", epsilon=10.0, bounds=(-5, 8)),
        PPEMGaussianMixture(
            2, backend="masking", epsilon=5.0, delta=1e-5, bounds=(-5, 8), max_iter=3
        ),
        DPCGMLearner("chain", epsilon=1.0, bins=dict.fromkeys(NAMES, EDGES)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_noise_is_added_to_is_the_same_in_blocks(model, monkeypatch):
    """Sums of integers, equal to the last one."""
    monkeypatch.setattr(DistributedNoise, "share", no_noise)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    results = []
    for partition in make_partitions(2500):
        fitted = model.fit(partition)
        results.append(
            {
                name: value
                for name, value in vars(fitted).items()
                if isinstance(value, np.ndarray) and value.dtype.kind == "f"
            }
            | dict(getattr(fitted, "noisy_tables_", {}))
            | dict(enumerate(getattr(fitted, "bin_edges_", [])))
        )
    assert results[0].keys() == results[1].keys() and results[0]
    for name, value in results[0].items():
        np.testing.assert_array_equal(value, results[1][name])


SLOW_MIXTURE = pytest.param("mixture", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["pca", "network", "bins", SLOW_MIXTURE])
def test_memory_does_not_grow_with_the_rows(name, monkeypatch):
    model, _ = LEARNERS[name]
    peaks = []
    # what a party makes clusters of to start from
    monkeypatch.setattr(_seeding, "MAX_START_ROWS", 1_000)
    for n_rows in (2_000, 12_000):
        partition = HorizontalPartition(
            {party: normal_source(n_rows) for party in PARTIES}
        )
        tracemalloc.start()
        model.fit(partition)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # all rows are 1.2 MB, and responsibilities 0.6 MB
    assert peaks[1] < peaks[0] + 300_000


def test_columns_are_found_by_name():
    source = normal_source(10)
    other = source.map(lambda rows: rows[:, ::-1], source.columns[::-1])
    partition = HorizontalPartition({"north": source, "south": other})
    scaler = FederatedStandardScaler().fit(
        HorizontalPartition({"north": source, "south": source, "west": other})
    )
    np.testing.assert_allclose(scaler.mean_, np.asarray(source).mean(axis=0))
    assert "10 rows, south: 10 rows; 4 features" in repr(partition)


def test_missing_values_are_named_when_they_are_met():
    source = normal_source(10).map(lambda rows: np.where(rows > 3.5, np.nan, rows))
    partition = HorizontalPartition(dict.fromkeys(PARTIES, source))
    with pytest.raises(PartyError, match="party 'north'") as caught:
        FederatedPCA().fit(partition)
    assert "NaN in column 'x3' of party 'north'" in str(caught.value.__cause__)


def test_rows_that_change_between_passes_are_noticed():
    lengths = iter([10, 9])

    def read():
        yield np.zeros((next(lengths), 1))

    source = RowSource(read, 10, ["x"])
    assert len(np.asarray(source)) == 10
    with pytest.raises(ValueError, match="9 rows were read, and there were 10"):
        np.asarray(source)


def test_a_parquet_file_in_process(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr(_rows, "BLOCK_SIZE", 8)
    path = tmp_path / "stays.parquet"
    parquet.write_table(pa.table({"a": [1, None, 3, 4, 5], "b": [0.5] * 5}), path)
    rows = RowSource.from_parquet(path)
    assert rows.columns == ["a", "b"] and len(list(rows.blocks())) == 2
    np.testing.assert_array_equal(np.asarray(rows)[:, 0], [1, np.nan, 3, 4, 5])
    only = RowSource.from_parquet(path, ["b"])
    np.testing.assert_array_equal(only, np.full((5, 1), 0.5))
