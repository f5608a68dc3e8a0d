"""Clusters of which a site has few rows are merged before anybody hears of them.

Of others, what is opened is no count of few rows.
"""

from contextlib import suppress

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import runner
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
    _linear,
    _survey,
)
from skprivbn.mixed_model._checks import cluster_keys
from skprivbn.mixed_model._clusters import merge_few, merged_label
from tests.federation.site.loopback import audit, open_sites

NAMES = ("north", "south", "west")
FEW = 5

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


def count(labels):
    return dict(zip(*np.unique(labels, return_counts=True)))


@pytest.mark.parametrize(
    "sizes, merged",
    [
        ([9, 8, 7], []),
        ([9, 1, 3, 2], [1, 2, 3]),
        # those that are merged are few themselves: the next larger one joins them
        ([9, 8, 1], [1, 2]),
        ([9, 5, 5, 4], [1, 3]),
        # fewer rows than that are one cluster, which a site then refuses to name
        ([2, 1], [0, 1]),
    ],
)
def test_those_of_few_rows_are_one_of_enough(sizes, merged):
    labels = [f"w{i}" for i, size in enumerate(sizes) for _ in range(size)]
    expected = ["all" if int(label[1]) in merged else label for label in labels]
    assert merge_few(labels, FEW, "all") == expected
    # whatever the order of the rows
    assert merge_few(labels[::-1], FEW, "all") == expected[::-1]


#: rows of each ward at each site: wards 0 and 1 are everywhere, others at one site
WARDS = {
    "north": [30, 25, 12, 22, 4, 3, 1, 1],
    "south": [28, 30, 26, 1],
    "west": [40, 20, 25],
}


def make_tables(rng):
    """Return rows of ward, sex, age, sick and stay, and categories of wards."""
    tables = {}
    for name, sizes in WARDS.items():
        wards = [i if i < 2 else f"{name}-{i}" for i in range(len(sizes))]
        ward = np.repeat(wards, sizes)
        effects = np.repeat(rng.normal(size=len(sizes)), sizes)
        sex, age = rng.integers(0, 2, len(ward)), rng.normal(60, 9, len(ward)).round(1)
        eta = effects + 0.05 * (age - 60)
        sick = rng.random(len(ward)) < 1 / (1 + np.exp(-eta))
        stay = (6 + eta + rng.normal(size=len(ward))).round(2)
        tables[name] = list(zip(ward, sex, age, sick.astype(int), stay))
    return tables


def quote(labels):
    return str([str(label) for label in labels]).replace("'", '"')


def open_wards(folder, tables, min_rows=FEW):
    wards = sorted({row[0] for rows in tables.values() for row in rows})
    columns = {"ward": quote(wards), "sex": '["0", "1"]', "age": '"float"'}
    columns |= {"sick": '"int"', "stay": '"float"'}
    estimators = ["PrivateGLMMClassifier", "PrivateGLMMRegressor"]
    return open_sites(folder, tables, columns, estimators, min_rows=min_rows).rows(
        ["age"]
    )


def merge_by_hand(tables):
    """Return all rows as they would be pooled by somebody who knows the site file."""
    small = {"north": ["north-4", "north-5", "north-6", "north-7"]}
    # the only small ward of south is one row, and the next larger one joins it
    small["south"] = ["south-3", "south-2"]
    rows = [
        (f"(other at {name})" if row[0] in small.get(name, []) else row[0], *row[1:])
        for name in NAMES
        for row in tables[name]
    ]
    party = np.repeat(NAMES, [len(tables[name]) for name in NAMES])
    return [np.array(column) for column in zip(*rows)], party


@pytest.mark.parametrize("y", ["sick", "stay"])
def test_sites_fit_what_is_fitted_to_rows_that_were_merged_by_hand(tmp_path, y):
    tables = make_tables(np.random.default_rng(0))
    model = (PrivateGLMMClassifier if y == "sick" else PrivateGLMMRegressor)(
        small_clusters="pool", release_effects="shared", min_rows=20
    )
    fitted = model.fit(open_wards(tmp_path, tables), y=y, cluster="ward")
    (ward, _, age, sick, stay), party = merge_by_hand(tables)
    pooled = type(model)(release_effects="shared", min_rows=20)
    target = {"sick": sick, "stay": stay}[y]
    pooled.fit(age[:, None], target, cluster=ward, party=party)
    assert fitted.clusters_.tolist() == pooled.clusters_.tolist()
    for name in ("coef_", "intercept_", "random_effect_scale_", "log_likelihood_"):
        ours, hand = getattr(fitted, name), getattr(pooled, name)
        np.testing.assert_allclose(ours, hand, rtol=1e-7, err_msg=name)
    np.testing.assert_allclose(
        fitted.random_effects_, pooled.random_effects_, atol=1e-7
    )
    (note,) = [n for n in fitted.ledger_.notes if "did not name" in n]
    assert note.startswith("north, south did not") and "'(other at north)'" in note
    # people at the site read it, too
    said = str(audit(tmp_path, "north")[-1])
    assert "labels of its classes and clusters" in said and "north-4" not in said


def test_wards_of_fewer_rows_than_sites_allow_are_one(tmp_path):
    tables = make_tables(np.random.default_rng(0))
    model = PrivateGLMMRegressor(small_clusters="pool", release_effects="shared")
    rows = open_wards(tmp_path, tables, min_rows=20)
    model.fit(rows, y="stay", cluster="ward")
    # north has 12 rows of one ward and 9 of small ones, nobody is told that
    left = ["(other at south)", "0", "1", "north-3", "west-2", "(other)"]
    assert model.clusters_.tolist() == left
    with pytest.raises(PartyError) as caught:
        model.set_params(small_clusters="refuse").fit(rows, y="stay", cluster="ward")
    assert caught.value.code == "too-detailed"


def test_wards_that_lose_a_holder_are_pooled(tmp_path):
    # at every site another ward of all three joins a small one
    rng, rows = np.random.default_rng(0), {}
    for name, joined in zip(NAMES, "ABC"):
        sizes = {"A": 30, "B": 30, "C": 30, "D": 40, "E": 40, f"{name}-small": 2}
        wards = [ward for ward, n in (sizes | {joined: 6}).items() for _ in range(n)]
        numbers = rng.normal(size=(len(wards), 3)).round(2)
        rows[name] = [
            (ward, 0, age, int(sick > 0), stay)
            for ward, (age, sick, stay) in zip(wards, numbers)
        ]
    model = PrivateGLMMRegressor(
        small_clusters="pool", release_effects="shared", min_parties=3
    )
    model.fit(open_wards(tmp_path, rows), y="stay", cluster="ward")
    alone = [merged_label(name) for name in NAMES]
    assert model.clusters_.tolist() == [*alone, "E", "(other)"]


def overhear(rows, cluster, **options):
    """Return all that parties hear of clusters: names, rows and holders."""
    heard, read = [], _survey.Survey.counted

    def listen(*told):
        survey = read(*told)
        heard.append(survey.census)
        return survey

    model = PrivateGLMMRegressor(
        small_clusters="pool", release_effects="shared", **options
    )
    with pytest.MonkeyPatch.context() as patched, suppress(ValueError):
        patched.setattr(_survey.Survey, "counted", listen)
        model.fit(rows, y="stay", cluster=cluster)
    census = heard[0]
    return [
        dict(zip(labels, n_rows.tolist()))
        for labels, n_rows in zip(census.labels, census.n_rows)
    ]


def tell_anything(monkeypatch):
    """The twin of what stands behind it: nobody counts how many rows have a label."""
    monkeypatch.setattr(_survey, "check_labels", lambda *arguments: None)
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


def test_attack_names_of_wards_of_one_row(tmp_path, monkeypatch):
    tables = make_tables(np.random.default_rng(0))
    rows = open_wards(tmp_path, tables)
    (heard,) = overhear(rows, "ward")
    small = {"north-4", "north-5", "north-6", "north-7", "south-3"}
    assert not small & set(heard) and min(heard.values()) >= FEW
    assert heard[merged_label("north")] == 9
    # the twin: sites name what they have
    tell_anything(monkeypatch)
    monkeypatch.setattr(_survey, "merge_few", lambda labels, *options: labels)
    (heard,) = overhear(rows, "ward")
    assert small < set(heard) and heard["north-7"] == 1


def test_attack_a_merged_cluster_of_one_row(tmp_path, monkeypatch):
    tables = make_tables(np.random.default_rng(0))
    rows = open_wards(tmp_path, tables)
    (heard,) = overhear(rows, "ward")
    assert heard[merged_label("south")] == 26 + 1
    # the twin merges what is small and nothing else
    tell_anything(monkeypatch)
    monkeypatch.setattr(_survey, "merge_few", merge_small_only)
    (heard,) = overhear(rows, "ward")
    assert heard[merged_label("south")] == 1


def merge_small_only(labels, enough, other):
    sizes = count(labels)
    return [other if sizes[label] < enough else label for label in labels]


def merge_cells(me):
    """Merge small wards of each sex anew: what is merged depends on other columns."""
    keys = cluster_keys(me.terms.n_factors)
    columns = [np.asarray(me.block[key]).tolist() for key in keys]
    other = merged_label(me.name)
    if len(columns) == 1:
        return [merge_few(columns[0], FEW, other)]
    outer, ward = columns
    inner = np.array(ward, dtype=object)
    for label in set(outer):
        inside = np.array(outer) == label
        inner[inside] = merge_few(inner[inside].tolist(), FEW, other)
    return [outer, list(zip(outer, inner.tolist()))]


def test_attack_differences_of_fits_with_other_columns(tmp_path, monkeypatch):
    # a man and seven women in two small wards of north, next to a large one
    rng = np.random.default_rng(0)
    sizes = {("A", 0): 20, ("A", 1): 20, ("B", 0): 4, ("B", 1): 1, ("C", 0): 3}
    other = {("D", 0): 30, ("D", 1): 30}
    tables = {}
    for name in NAMES:
        cells = sizes if name == "north" else other
        wards, sexes = zip(*(cell for cell, n in cells.items() for _ in range(n)))
        numbers = rng.normal(size=(len(wards), 3)).round(2)
        wards = [f"{name}-{ward}" for ward in wards]
        tables[name] = [
            (ward, sex, age, int(sick > 0), stay)
            for ward, sex, (age, sick, stay) in zip(wards, sexes, numbers)
        ]
    rows = open_wards(tmp_path, tables)
    (alone,) = overhear(rows, "ward")
    # whatever stands beside the column of wards, these are the same
    assert overhear(rows, "ward", slopes=["age"])[0] == alone
    # wards of each sex are the same wards: a man among the merged ones ends the fit
    with pytest.raises(PartyError) as caught:
        overhear(rows, ["sex", "ward"])
    assert caught.value.code == "too-detailed"
    # the twin merges wards of each sex anew, and all are large enough by themselves
    monkeypatch.setattr(_survey, "own_labels", merge_cells)
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])
    _, cells = overhear(rows, ["sex", "ward"])
    assert min(cells.values()) >= FEW
    # men of the small wards: men who are merged, less those of the large ward, who are
    # its patients, less the women
    women = cells["0", "north-A"]
    men_of_large_ward = overhear(rows, "ward")[0]["north-A"] - women
    assert cells["1", merged_label("north")] - men_of_large_ward == 1


def open_products(rows, cluster, **options):
    """Return the sums by cluster that parties read."""
    heard, read = [], _linear.unpack

    def listen(*told):
        heard.append(read(*told))
        return heard[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_linear, "unpack", listen)
        PrivateGLMMRegressor(**options).fit(rows, y="stay", cluster=cluster)
    return heard[0]


def test_attack_pairs_of_crossed_clusters_count_one_patient(tmp_path, monkeypatch):
    # the only man in ward A is at north
    rng = np.random.default_rng(0)
    tables = {}
    for name in NAMES:
        sexes = [0] * 30 + [0] * 30 + [1] * 30
        sexes[0] = int(name == "north")
        numbers = rng.normal(size=(90, 3)).round(2)
        tables[name] = [
            (ward, sex, age, int(sick > 0), stay)
            for ward, sex, (age, sick, stay) in zip("A" * 30 + "B" * 60, sexes, numbers)
        ]
    rows = open_wards(tmp_path, tables)
    with pytest.raises(PartyError) as caught:
        open_products(rows, ["ward", "sex"], effect_params={"crossed": True})
    assert caught.value.code == "too-detailed"
    # the twin
    tell_anything(monkeypatch)
    opened = open_products(rows, ["ward", "sex"], effect_params={"crossed": True})
    ward_a, man = 0, 3
    assert round(opened.zz[0][0][ward_a, man]) == 1


def test_attack_sums_of_a_ward_count_one_patient(tmp_path, monkeypatch):
    # the only patient of ward A who is sick is at north; others are in wards B and C
    rng = np.random.default_rng(0)
    tables, sick = {}, np.tile([0, 1], 45)
    sick[:30] = 0
    for name in NAMES:
        mine = sick.copy()
        mine[7] = name == "north"
        numbers = rng.normal(size=(90, 2)).round(2)
        wards = np.repeat(["A", "B", "C"], 30)
        tables[name] = [
            (ward, 0, age, s, stay)
            for ward, s, (age, stay) in zip(wards, mine, numbers)
        ]
    ages = open_wards(tmp_path, tables)
    rows = ages._connection.rows(["sick"])
    with pytest.raises(PartyError) as caught:
        open_products(rows, "ward")
    assert caught.value.code == "too-few-rows"
    # as an outcome, too
    with pytest.raises(PartyError) as caught:
        strict = PrivateGLMMClassifier(small_clusters="refuse")
        strict.fit(ages, y="sick", cluster="ward")
    assert caught.value.code == "too-few-rows"
    # or the ward joins another, in which there are more of them
    with pytest.warns(UserWarning, match=r"clusters \['A', 'B'\] are pooled"):
        model = PrivateGLMMClassifier().fit(ages, y="sick", cluster="ward")
    assert model.clusters_.tolist() == ["C", "(other)"]
    # the twin: sums of a standardised column are undone by its mean and variance
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])
    everybody = np.array([row[3] for name in NAMES for row in tables[name]])
    of_ward_a = open_products(rows, "ward").zr[0]
    counted = of_ward_a[1] * everybody.std() + of_ward_a[0] * everybody.mean()
    assert counted == pytest.approx(1)
