"""Partitions lose no row and no column, or say what is wrong with the argument."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator

from skprivbn.exceptions import PartitionError
from skprivbn.partition import HorizontalPartition, VerticalPartition, check_vertical
from tests.fuzz.profiles import fuzzed

tables = hnp.arrays(
    st.sampled_from([np.float64, np.int64, bool]),
    st.tuples(st.integers(1, 9), st.integers(1, 5)),
)
labels = st.one_of(
    st.integers(-3, 3), st.text(max_size=3), st.booleans(), st.floats(), st.none()
)


@fuzzed(4)
@given(tables, st.data())
def test_rows_of_parties(X, data):
    text = st.text("ab", min_size=1, max_size=3)
    kind = data.draw(st.sampled_from([st.integers(-3, 3), text]))
    party = data.draw(st.lists(kind, min_size=len(X), max_size=len(X)))
    partition = HorizontalPartition.from_rows(X, party, order=np.arange(len(X)))
    blocks = partition._blocks
    assert set(partition.names) == {str(label) for label in party}
    assert partition.n_parties == len(set(party))
    order = np.concatenate([block["order"] for block in blocks.values()])
    assert sorted(order) == list(range(len(X)))
    np.testing.assert_array_equal(
        np.vstack([block["X"] for block in blocks.values()]), X[order]
    )
    for name, block in blocks.items():
        assert {str(party[i]) for i in block["order"]} == {name}


@fuzzed(4)
@given(tables, st.data(), st.booleans())
def test_any_labels_split_the_rows_or_are_refused(X, data, as_objects):
    n_labels = data.draw(st.sampled_from([len(X), 0, 3]))
    party = data.draw(st.lists(labels, min_size=n_labels, max_size=n_labels))
    if as_objects:
        party = np.array(party, dtype=object)
    try:
        partition = HorizontalPartition.from_rows(X, party)
    except (ValueError, TypeError) as error:
        assert "party" in str(error)
        return
    assert sum(len(block["X"]) for block in partition._blocks.values()) == len(X)


@fuzzed(4)
@given(tables, st.data())
def test_columns_of_parties(X, data):
    owners = data.draw(
        st.lists(st.sampled_from("abc"), min_size=X.shape[1], max_size=X.shape[1])
    )
    held = {
        owner: [i for i, name in enumerate(owners) if name == owner]
        for owner in dict.fromkeys(owners)
    }
    partition = check_vertical(
        BaseEstimator(), X.astype(float), held, ensure_all_finite=False
    )
    assert isinstance(partition, VerticalPartition)
    assert partition.n_features == X.shape[1]
    for name, index in held.items():
        block = partition._blocks[name]["X"]
        np.testing.assert_array_equal(block, X[:, index].astype(float))


columns = st.one_of(
    st.lists(st.integers(-6, 6), max_size=4),
    st.lists(st.text("x01", max_size=2), max_size=3),
    st.slices(5),
    st.integers(-6, 6),
    st.none(),
)


@fuzzed(4)
@given(st.dictionaries(st.text("ab", max_size=2), columns, max_size=3))
def test_any_owners_are_accepted_or_refused(parties):
    X = np.arange(15.0).reshape(3, 5)
    try:
        partition = check_vertical(BaseEstimator(), X, parties)
    except PartitionError as error:
        assert "parties" in str(error) or "column" in str(error)
        return
    held = [column for names in partition.columns.values() for column in names]
    assert sorted(held) == [f"x{i}" for i in range(5)]


@pytest.mark.parametrize("kind", [HorizontalPartition, VerticalPartition])
def test_no_partition_becomes_an_array(kind):
    @fuzzed(0.4)
    @given(hnp.arrays(float, (4, 2)))
    def check(X):
        with pytest.raises(PartitionError, match="does not become an array"):
            np.asarray(kind({"a": X, "b": X}))

    check()
