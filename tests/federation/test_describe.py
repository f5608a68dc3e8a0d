"""Descriptions of rows of several parties: pandas', where they are told."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from skprivbn.exceptions import BudgetExceededError, PartitionError, PartyError
from skprivbn.federation import HostPolicy, InProcessFederation, _description
from skprivbn.federation._describe import QUANTILES
from skprivbn.federation._description import DescriptionTerms, description
from skprivbn.federation.site._file import SiteFile
from skprivbn.partition import HorizontalPartition, RowSource
from skprivbn.privacy import PrivacyAccountant
from tests.federation.hostile import HostileTerms
from tests.federation.site.loopback import connect, make_sites, open_sites

PARTIES = ("north", "south", "west")
WARDS, SEXES = ["surgery", "medicine"], ["f", "m"]


def make_frames(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    frames = {}
    for name in PARTIES:
        frame = pd.DataFrame(
            {
                "age": rng.normal(70, 9, n_rows),
                "days": rng.exponential(3, n_rows),
                "stays": rng.integers(1, 5, n_rows).astype(float),
                "ward": pd.Categorical(rng.choice(WARDS, n_rows), WARDS),
                "sex": pd.Categorical(rng.choice(SEXES, n_rows), SEXES),
            }
        )
        frame.loc[rng.random(n_rows) < 0.1, "age"] = np.nan
        frame.loc[rng.random(n_rows) < 0.1, "sex"] = None
        frames[name] = frame
    return frames


@pytest.fixture(scope="module")
def frames():
    return make_frames()


@pytest.fixture(scope="module")
def pooled(frames):
    return pd.concat(frames.values())


@pytest.fixture(scope="module")
def summary(frames):
    return HorizontalPartition(frames).describe([("ward", "sex")])


def ranks(values, quantiles):
    """Shares of values below, and up to, each quantile and its neighbourhood."""
    values = values.dropna()
    width = 2.0**-14 * (values.max() - values.min())
    return [
        (np.mean(values < q - width) - 1 / len(values), np.mean(values <= q + width))
        for q in quantiles
    ]


def test_counts_means_and_deviations_are_those_of_pandas(summary, pooled):
    frame, expected = summary.to_frame(), pooled.describe()
    for row in ("count", "mean", "std"):
        np.testing.assert_allclose(frame.loc[row], expected.loc[row], rtol=1e-9)
    np.testing.assert_array_equal(
        frame.loc["missing"], pooled[["age", "days", "stays"]].isna().sum()
    )
    assert summary.n_rows == len(pooled)
    assert summary["age"].counts is None


def test_quantiles_are_those_of_pandas_up_to_one_row(summary, pooled):
    for name in ("age", "days", "stays"):
        quantiles = summary[name].quantiles
        spread = ranks(pooled[name], quantiles.values())
        for level, (below, up_to) in zip(quantiles, spread):
            assert below <= level <= up_to + 1 / len(pooled)
        expected = pooled[name].quantile(list(quantiles))
        np.testing.assert_allclose(list(quantiles.values()), expected, atol=0.15)


def test_tables_are_those_of_pandas(summary, pooled):
    expected = pd.crosstab(pooled["ward"], pooled["sex"])
    np.testing.assert_array_equal(summary["ward", "sex"].to_frame(), expected)
    assert repr(summary["ward", "sex"]).startswith("ward \\ sex")
    assert "<table" in summary["ward", "sex"]._repr_html_()
    np.testing.assert_array_equal(
        summary["ward"].counts, pooled["ward"].value_counts()[WARDS]
    )
    assert summary["sex"].n_missing == pooled["sex"].isna().sum()


def test_it_can_be_read(summary):
    text, html = repr(summary), summary._repr_html_()
    for part in (text, html):
        assert "600 rows of 3 parties" in part and "surgery" in part and "95%" in part
    assert "<table>" in html


def test_a_quantile_of_zero_is_printed_as_zero():
    counts = np.arange(300) % 3 // 2 * 7.0
    rows = HorizontalPartition.from_rows(counts[:, None], list("abc") * 100, ["falls"])
    summary = rows.describe(quantiles=[0.5])
    assert 0 < summary["falls"].quantiles[0.5] < 0.001
    assert repr(summary).split()[-1] == "0"


def test_who_learns_what(summary):
    told = {(fact.who, fact.what) for fact in summary.ledger.facts()}
    sums = [what for who, what in told if who == "all parties"]
    assert len(sums) == 4 and ("coordinator", "the result") in told
    kinds = {fact.kind for fact in summary.ledger.facts() if fact.who == "coordinator"}
    assert kinds <= {"public", "masked"}
    assert summary.ledger.n_rounds < 12


def test_rows_in_blocks_are_described_alike():
    rng = np.random.default_rng(0)
    X = {name: rng.normal(size=(100, 2)) for name in PARTIES}
    sources = {
        name: RowSource(lambda rows=rows: iter(np.split(rows, 5)), 100, ["a", "b"])
        for name, rows in X.items()
    }
    found = HorizontalPartition(sources).describe().to_frame()
    expected = HorizontalPartition(X, ["a", "b"]).describe().to_frame()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_column_of_blocks_that_has_a_rare_value_is_left_out():
    rng, blocks = np.random.default_rng(0), {}
    for name in PARTIES:
        rows = np.column_stack([np.arange(100) == 0, rng.normal(size=(100, 2))])
        read = partial(iter, np.split(rows, 5))
        blocks[name] = {"X": RowSource(read, 100, list("abc"))}
    terms, policy = DescriptionTerms([None] * 3, [], []), HostPolicy(min_cell_count=5)
    session = InProcessFederation(blocks, description, terms, "masking", policy=policy)
    with session as federation:
        found = federation.run()
    assert np.isnan(found["mean"]).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("n_rare", "told"),
    [
        ((4, 0), [60, None, None, None]),  # too few together: the next one joins them
        ((4, 1), [60, 9, None, None]),
        ((3, 2), [60, 9, None, None]),
        ((5, 0), [60, 9, 5, 0]),
        ((4, 4), [60, 9, None, None]),
        ((5, 6), [60, 9, 5, 6]),
    ],
)
@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_rare_categories_are_told_together(n_rare, told, n_parties):
    labels = ["a"] * 60 + ["b"] * 9 + ["c"] * n_rare[0] + ["d"] * n_rare[1]
    frames = {
        f"p{k}": pd.DataFrame({"x": labels[k::n_parties]}) for k in range(n_parties)
    }
    partition = HorizontalPartition(frames)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = partition.describe(states={"x": [*"abcd"]}, min_cell_count=5)
    found = [None if np.isnan(n) else n for n in summary["x"].counts]
    assert found == told
    rest = len(labels) - sum(n or 0 for n in told)
    if None in told:
        rare = " or ".join(x for x, n in zip("abcd", told) if n is None)
        assert "a: 60" in repr(summary) and f"{rare}: {rest}" in repr(summary)
        assert rest >= 5


def test_few_rows_are_not_told(frames):
    few = {name: frame.copy() for name, frame in frames.items()}
    for frame in few.values():
        frame.loc[frame.index[2:], "days"] = np.nan
        frame.loc[frame["ward"] == "medicine", "sex"] = "f"
    few["north"].loc[0, ["ward", "sex"]] = ["medicine", "m"]
    partition = HorizontalPartition(few)
    tables = [("ward", "sex")]
    summary = partition.describe(tables, min_rows=20, min_cell_count=5)
    assert summary["days"].count is None and summary["days"].mean is None
    assert summary["days"].quantiles == {}
    assert summary["ward", "sex"].counts is None
    assert "not told" in repr(summary) and "not told" in summary._repr_html_()
    with pytest.raises(ValueError, match="is not told"):
        summary["ward", "sex"].to_frame()
    # with nothing to hide, all of it is there
    summary = partition.describe(tables)
    assert summary["days"].count == 6
    assert summary["ward", "sex"].counts[1, 1] == 1


def test_few_missing_values_are_not_told(frames):
    one = {name: frame.fillna({"age": 70.0}) for name, frame in frames.items()}
    one["north"].loc[0, "age"] = np.nan
    partition = HorizontalPartition(one)
    assert partition.describe()["age"].n_missing == 1
    assert partition.describe(min_cell_count=5)["age"].count is None


def around_the_row(edges, counts, fine_edges, fine_counts, level, least):
    """The twin: a quantile in the cells around the one that its row is in."""
    below, rank = np.append(0, np.cumsum(counts)), level * (counts.sum() - 1) + 0.5
    low = np.searchsorted(below[1:], rank)
    high = low + 1
    while below[high] - below[low] < least:
        low, high = low - 1, high + 1
    share = (rank - below[low]) / (below[high] - below[low])
    return edges[low] + share * (edges[high] - edges[low])


def test_attack_quantiles_next_to_the_largest_value(monkeypatch):
    rng = np.random.default_rng(5)
    values = np.append(rng.gamma(4, 9, 300), 75).round(3)
    partition = HorizontalPartition(
        {name: values[i::3, None] for i, name in enumerate(PARTIES)}, ["age"]
    )

    def middle_of_cells():
        """Two quantiles are a line, from the first of these cells to the last."""
        levels = [1 - 1e-3, 1 - 1e-4]
        summary = partition.describe(quantiles=levels, min_rows=20)
        found = list(summary["age"].quantiles.values())
        ranks = np.array(levels) * (len(values) - 1) + 0.5
        slope = np.diff(found)[0] / np.diff(ranks)[0]
        return found[1] + slope * (len(values) - ranks[1] - 20 / 2)

    assert middle_of_cells() < np.sort(values)[-15]
    monkeypatch.setattr(_description, "read_quantile", around_the_row)
    assert middle_of_cells() == pytest.approx(values.max(), abs=0.25)


def test_quantiles_of_groups_of_rows_are_near():
    rng = np.random.default_rng(0)
    values = rng.gamma(4, 9, 3000)
    X = {name: values[i::3, None] for i, name in enumerate(PARTIES)}
    for n_rows, error in ((3000, 0.3), (300, 2), (30, 8)):
        few = {name: rows[: n_rows // 3] for name, rows in X.items()}
        summary = HorizontalPartition(few, ["x"]).describe(min_rows=20)
        of_all = np.concatenate(list(few.values()))
        # the ends of few rows are not told
        inner = np.clip(QUANTILES, 20 / n_rows, max(1 - 20 / n_rows, 0.5))
        inner = inner if n_rows > 40 else np.full_like(inner, 0.5)
        found = list(summary["x"].quantiles.values())
        np.testing.assert_allclose(found, np.quantile(of_all, inner), atol=error)


def test_a_quantile_is_that_of_enough_rows():
    rng = np.random.default_rng(0)
    values = np.sort(rng.exponential(size=300))
    X = dict(zip(PARTIES, np.split(rng.permutation(values)[:, None], 3)))
    summary = HorizontalPartition(X, ["x"]).describe(quantiles=[0.95], min_rows=40)
    (quantile,) = summary["x"].quantiles.values()
    # nobody's value, and not near the one that it is without the limit
    assert np.abs(values - quantile).min() > 0
    assert 0.8 < np.mean(values <= quantile) < 1.0
    exact = HorizontalPartition(X, ["x"]).describe(quantiles=[0.95])
    (exact,) = exact["x"].quantiles.values()
    assert np.abs(np.quantile(values, 0.95) - exact) < 0.1


def test_a_table_with_more_cells_than_rows_is_not_told():
    states = {"a": list(range(10)), "b": list(range(10))}
    rng = np.random.default_rng(0)
    X = {name: rng.integers(0, 10, size=(20, 2)) for name in PARTIES}
    partition = HorizontalPartition(X, ["a", "b"])
    assert partition.describe([("a", "b")], states=states)["a", "b"].counts is None


def test_noise_is_charged_and_small(frames, pooled):
    accountant = PrivacyAccountant(3.0)
    bounds = [0, 0, 0, 0, 0], [120, 40, 8, 1, 1]
    partition = HorizontalPartition(frames)
    options = {"epsilon": 2.0, "bounds": bounds, "accountant": accountant}
    options["states"] = partition.categories
    noisy = partition.describe([("ward", "sex")], **options)
    assert accountant.spent().epsilon == noisy.privacy_spent.epsilon == 2.0
    assert noisy.n_rows == pytest.approx(600, abs=60)
    expected = pd.crosstab(pooled["ward"], pooled["sex"])
    assert np.abs(noisy["ward", "sex"].counts - expected).max().max() < 60
    assert noisy["age"].quantiles[0.5] == pytest.approx(70, abs=4)
    assert "about" in repr(noisy) and "epsilon = 2" in noisy._repr_html_()
    assert [e.operation for e in noisy.ledger.entries].count(
        "noisy histograms and tables"
    ) == 6
    with pytest.raises(BudgetExceededError):
        partition.describe(**options)
    with pytest.raises(BudgetExceededError):
        partition.describe(accountant=accountant)


def test_mistakes_are_explained(frames):
    partition = HorizontalPartition(frames)
    with pytest.raises(PartitionError, match="'age'.*have none: give states="):
        partition.describe([("ward", "age")])
    with pytest.raises(ValueError, match="between 0 and 1"):
        partition.describe(quantiles=[0.0])
    with pytest.raises(ValueError, match="epsilon needs public bounds"):
        partition.describe(epsilon=1.0)
    with pytest.raises(ValueError, match="two columns"):
        partition.describe([("ward", "ward")])


def test_text_that_is_no_category_is_refused():
    X = {name: np.array([["a"], ["b"]], dtype=object) for name in PARTIES}
    partition = HorizontalPartition(X, ["x"])
    assert partition.describe(states={"x": ["a", "b"]})["x"].counts.tolist() == [3, 3]
    with pytest.raises(PartitionError, match="'x' of party '.*' holds 'b', which is"):
        partition.describe(states={"x": ["a"]})
    with pytest.raises(PartitionError, match=r"hold text.*states={'x': \[...\]}"):
        partition.describe()
    with pytest.raises(
        PartitionError, match=r"states names \['z'\].*these are \['x'\]"
    ):
        partition.describe(states={"z": ["a", "b"]})
    # one party's text is enough, and numbers beside it are described
    two = {name: np.hstack([rows, [[1.0], [2.0]]]) for name, rows in X.items()}
    two["north"][0, 0], others = 5.0, HorizontalPartition(two, ["x", "y"])
    with pytest.warns(UserWarning, match=r"columns \['x'\] hold text.*left out"):
        summary = others.describe()
    assert list(summary.columns) == ["y"] and summary["y"].mean == 1.5


def test_parties_themselves_refuse_it_with_a_code(monkeypatch):
    X = {name: np.array([["a"], ["b"]], dtype=object) for name in PARTIES}
    partition = HorizontalPartition(X, ["x"])
    monkeypatch.setattr(HorizontalPartition, "_check_described", lambda *_: None)
    for states in ({"x": ["a"]}, None):
        with pytest.raises(PartyError) as caught:
            partition.describe(states=states)
        assert caught.value.code == "invalid-data"


def test_with_noise_nothing_is_refused_for_what_is_in_a_row():
    X = {name: np.array([["a", 1.0], ["b", "x"]], dtype=object) for name in PARTIES}
    partition = HorizontalPartition(X, ["x", "y"])
    options = {"states": {"x": ["a"]}, "epsilon": 50.0, "bounds": (0, 2)}
    noisy = partition.describe(**options)
    assert noisy["x"].n_missing == pytest.approx(3, abs=2)
    assert noisy["y"].n_missing == pytest.approx(3, abs=2)


SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]
[datasets.icu]
path = "stays.csv"
min_rows = 20
min_cell_count = 5
estimators = ["describe"]
max_exact_fits = 50
[datasets.icu.columns]
age = "float"
days = "float"
stays = "float"
ward = ["surgery", "medicine"]
sex = ["f", "m"]
"""


@pytest.fixture
def remote(tmp_path, frames):
    for name, frame in frames.items():
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "stays.csv", index=False)
    return connect(make_sites(tmp_path, dict.fromkeys(PARTIES, SITE_FILE)), "icu")


def test_remote_rows_are_described_with_the_labels_that_sites_declare(remote, summary):
    found = remote.rows().describe([("ward", "sex")])
    np.testing.assert_allclose(
        found.to_frame().iloc[:4], summary.to_frame().iloc[:4], rtol=1e-9
    )
    pd.testing.assert_frame_equal(
        found["ward", "sex"].to_frame(), summary["ward", "sex"].to_frame()
    )
    assert found.terms.min_rows == 20 and found.terms.min_cell_count == 5


def test_a_site_that_does_not_allow_it_refuses(tmp_path, frames):
    text = SITE_FILE.replace('"describe"', '"FederatedPCA"')
    for name, frame in frames.items():
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "stays.csv", index=False)
    remote = connect(make_sites(tmp_path, dict.fromkeys(PARTIES, text)), "icu")
    with pytest.raises(PartyError) as caught:
        remote.rows().describe()
    assert caught.value.code == "not-allowed"
    assert SiteFile.load(tmp_path / "north" / "site.toml")


def test_a_coordinator_cannot_lower_the_limits_of_a_site(remote):
    rows = remote.rows(["age", "days"])
    terms = HostileTerms(
        DescriptionTerms([None, None], [], [0.5]), min_rows=1, min_cell_count=0
    )
    with pytest.raises(PartyError) as caught:
        rows._described().federate(description, terms, "masking").__enter__()
    assert caught.value.code == "not-allowed"


def test_attack_a_category_that_is_named_twice(tmp_path, monkeypatch):
    # north alone knows who has the disease
    found = {"north": ["0"] * 40 + ["1"] * 20, "south": [""] * 60, "west": [""] * 60}
    tables = {
        name: [[i, x] for i, x in enumerate(mine)] for name, mine in found.items()
    }
    columns = {"number": '"int"', "disease": '["0", "1"]'}
    rows = open_sites(tmp_path, tables, columns, ["describe"]).rows(["disease"])

    def ask(terms):
        with rows._described().federate(description, terms, "masking") as federation:
            (counts,) = federation.run()["counts"]
        return counts if counts is None else counts.tolist()

    terms = DescriptionTerms([[0, 1]], [], [], min_rows=20, min_cell_count=5)
    assert ask(terms) is None
    with pytest.raises(PartyError) as caught:
        ask(HostileTerms(terms, states=[[0, 1, True]]))
    assert caught.value.code == "refused"
    # also without that check, gaps have a cell of their own
    monkeypatch.setattr(DescriptionTerms, "check", lambda self: None)
    assert ask(HostileTerms(terms, states=[[0, 1, True]])) is None
    # the twin: what is missing counts as True, and the others are north's
    honest = _description._cells_of

    def without_gaps(column, v, terms):
        return np.minimum(honest(column, v, terms), len(terms.states[v]) - 1)

    monkeypatch.setattr(_description, "_cells_of", without_gaps)
    assert ask(HostileTerms(terms, states=[[0, 1, True]])) == [40, 20, 120]
