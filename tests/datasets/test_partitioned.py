import numpy as np
import pytest
from scipy import sparse

from skprivbn.datasets import (
    make_partitioned_blobs,
    split_horizontal,
    split_vertical,
)


def sizes(party):
    return np.unique_counts(party).counts


def test_iid_parties_are_equal_and_random():
    party = split_horizontal(np.zeros((103, 2)), 10, random_state=0)
    assert sorted(sizes(party)) == [10] * 7 + [11] * 3
    again = split_horizontal(np.zeros((103, 2)), 10, random_state=0)
    other = split_horizontal(np.zeros((103, 2)), 10, random_state=1)
    np.testing.assert_array_equal(party, again)
    assert (party != other).any()


def test_names_sort_in_order():
    party = split_horizontal(np.zeros((64, 1)), 12, random_state=0)
    assert list(np.unique(party)) == [f"party_{k:02d}" for k in range(12)]


def test_dirichlet_with_classes_skews_the_classes():
    y = np.repeat(["a", "b", "c"], 400)
    spread = {}
    for alpha in (0.1, 100):
        party = split_horizontal(
            y[:, None], 4, kind="dirichlet", y=y, alpha=alpha, random_state=0
        )
        shares = [
            [np.mean(party[y == c] == p) for p in np.unique(party)] for c in "abc"
        ]
        spread[alpha] = np.std(shares)
    assert spread[0.1] > 5 * spread[100]


def test_dirichlet_without_classes_skews_the_sizes():
    X = np.zeros((1000, 1))
    uneven = split_horizontal(X, 5, kind="dirichlet", alpha=0.3, random_state=0)
    even = split_horizontal(X, 5, kind="dirichlet", alpha=1e4, random_state=0)
    assert sizes(uneven).std() > 10 * sizes(even).std()
    assert sizes(uneven).sum() == 1000


def test_dirichlet_gives_everybody_enough_or_says_so():
    X = np.zeros((100, 1))
    for seed in range(5):
        party = split_horizontal(
            X, 4, kind="dirichlet", alpha=0.5, min_rows=5, random_state=seed
        )
        assert sizes(party).min() >= 5
    with pytest.raises(ValueError, match="raise alpha=0.01"):
        split_horizontal(
            X, 10, kind="dirichlet", alpha=0.01, min_rows=9, random_state=0
        )


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, list])
def test_by_column_gives_consecutive_ranges(container):
    X = np.random.RandomState(0).normal(size=(90, 3))
    party = split_horizontal(container(X), 3, kind="by_column", column=1)
    assert list(sizes(party)) == [30, 30, 30]
    low, middle, high = (X[party == name, 1] for name in np.unique(party))
    assert low.max() < middle.min() and middle.max() < high.min()


def test_by_column_keeps_equal_values_together():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"site": list("aaaaaabbcc"), "x": range(10)})
    party = split_horizontal(frame, 2, kind="by_column", column="site")
    assert frame.groupby("site").apply(lambda g: len(set(party[g.index]))).eq(1).all()
    assert list(sizes(party)) == [6, 4]
    by_position = split_horizontal(frame, 2, kind="by_column", column=0)
    np.testing.assert_array_equal(party, by_position)


@pytest.mark.parametrize(
    "kwargs, match",
    [
        ({"n_parties": 11}, "10 rows are too few for 11 parties"),
        ({"n_parties": 2, "min_rows": 6}, "too few for 2 parties with at least 6"),
        ({"kind": "by_column"}, "needs column="),
        ({"kind": "by_column", "column": "age"}, "no dataframe with a column"),
        ({"kind": "by_column", "column": 0}, "too few different values"),
        ({"kind": "dirichlet", "y": [1, 2]}, "2 entries for 10 rows"),
        ({"kind": "sorted"}, "'kind' parameter"),
    ],
)
def test_split_horizontal_bad_arguments(kwargs, match):
    with pytest.raises(ValueError, match=match):
        split_horizontal(np.zeros((10, 2)), **kwargs)


@pytest.mark.parametrize("n_parties", [1, 2, 3, 7])
def test_split_vertical_deals_every_column_once(n_parties):
    columns = list("abcdefg")
    parties = split_vertical(columns, n_parties, random_state=0)
    assert len(parties) == n_parties
    dealt = [column for hand in parties.values() for column in hand]
    assert sorted(dealt) == columns
    assert all(hand == sorted(hand) for hand in parties.values())
    lengths = [len(hand) for hand in parties.values()]
    assert max(lengths) - min(lengths) <= 1


def test_split_vertical_takes_counts_and_frames():
    pd = pytest.importorskip("pandas")
    assert split_vertical(3, 2, shuffle=False) == {"party_0": [0, 1], "party_1": [2]}
    frame = pd.DataFrame(np.zeros((2, 3)), columns=["a", "b", "c"])
    assert split_vertical(frame, 3, shuffle=False)["party_2"] == ["c"]


def test_split_vertical_bad_arguments():
    with pytest.raises(ValueError, match="2 columns are too few for 3"):
        split_vertical(["a", "b"], 3)
    with pytest.raises(ValueError, match="repeat"):
        split_vertical(["a", "a"], 2)


def test_partitioned_blobs():
    centers = np.array([[0.0, 0.0], [50.0, 50.0]])
    X, y, party = make_partitioned_blobs(
        200, centers=centers, n_parties=4, kind="dirichlet", alpha=0.2, random_state=0
    )
    np.testing.assert_allclose(X, centers[y], atol=6)
    shares = [np.mean(y[party == name]) for name in np.unique(party)]
    assert len(shares) == 4 and np.std(shares) > 0.2
    _, y, party = make_partitioned_blobs(
        2000, centers=centers, n_parties=4, random_state=0
    )
    shares = [np.mean(y[party == name]) for name in np.unique(party)]
    np.testing.assert_allclose(shares, 0.5, atol=0.1)
