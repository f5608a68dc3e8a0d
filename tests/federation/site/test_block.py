"""Columns, gaps and labels as filters: attacks on real sites, and their twins."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import Me, runner
from skprivbn.federation._description import _Counted
from skprivbn.federation.site import _block, _host, _question
from skprivbn.federation.site._account import Account
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
    _discretizer,
)
from skprivbn.programs import MomentsTerms, moments
from tests.federation.site.loopback import connect, make_sites
from tests.federation.test_gate_shares import without_shares

NAMES = ("north", "south", "west")
N_ROWS = 80

SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]

[datasets.icu]
path = "icu.csv"
min_rows = 10
max_exact_fits = 20
estimators = ["FederatedKBinsDiscretizer", "FederatedOneHotEncoder", "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler", "PPEMGaussianMixture", "PrivateGLMMRegressor",
    "describe"]

[datasets.icu.columns]
{columns}
"""


@pytest.fixture
def open_rows(tmp_path):
    """Return a function that gives three hospitals some rows, and a handle on them."""

    def open_it(tables, rules="", **columns):
        lines = "\n".join(f"{name} = {kind}" for name, kind in columns.items())
        for name, rows in zip(NAMES, tables):
            (tmp_path / name).mkdir(exist_ok=True)
            cells = [",".join("" if x != x else str(x) for x in row) for row in rows]
            text = "\n".join([",".join(columns), *cells, ""])
            (tmp_path / name / "icu.csv").write_text(text)
        text = SITE_FILE.format(columns=lines)
        text = text.replace("min_rows = 10", f"min_rows = 10\n{rules}")
        texts = dict.fromkeys(NAMES, text)
        return connect(make_sites(tmp_path, texts), "icu").rows()

    return open_it


def ages_and_days(seed=0):
    """Return ages and days of stay of the patients of three hospitals."""
    rng = np.random.default_rng(seed)
    return rng.normal([60, 9], [12, 2], (len(NAMES), N_ROWS, 2)).round(3)


def code_of(ask, *arguments):
    with pytest.raises(PartyError) as caught:
        ask(*arguments)
    return caught.value.code


def trust_the_total(monkeypatch):
    """The twin: nobody counts the rows behind a sum."""
    without_shares(monkeypatch)
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


def take_any_steps(monkeypatch):
    """The twin: nobody asks where steps come from."""
    monkeypatch.setattr(_host, "check_steps", lambda *arguments: None)


def public_model(transformer, model, n_features):
    """Make a fitted transformer of what a coordinator likes."""
    made = transformer._from_public_model(model, n_features)
    made.n_features_in_ = n_features
    return made


def second_moments(rows):
    """Return means of products of all columns, and of single ones, of all rows."""
    pca, n = FederatedPCA().fit(rows), len(NAMES) * N_ROWS
    axes = pca.components_
    covariance = axes.T * pca.explained_variance_ @ axes
    means = pca.mean_[:, None] * pca.mean_
    return covariance * (n - 1) / n + means, pca.mean_


def sum_of_other_columns(rows):
    """Sum up ages of one hospital, and of the others a column that is constant."""
    rows._read_by = lambda: (
        {"north": ["age"], "south": ["country"], "west": ["country"]},
        {},
        [],
    )
    with rows.federate(moments, MomentsTerms("none"), "masking") as federation:
        found = federation.run()
    return found["n_rows"][0] * found["mean"][0]


def test_attack_other_columns_at_the_other_sites(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[:, :, 1] = 49
    rows = open_rows(tables, age='"float"', country='"float"')
    assert code_of(sum_of_other_columns, rows) == "refused"
    # the twin: the ages of one hospital
    monkeypatch.delitem(_question.RULES, "same_columns")
    left = sum_of_other_columns(rows) - 2 * N_ROWS * 49
    assert left == pytest.approx(tables[0, :, 0].sum())


def test_attack_a_column_that_one_hospital_has(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[1:, :, 1] = np.nan
    rows = open_rows(tables, age='"float"', days='"float"')

    def mean_of_days():
        return FederatedStandardScaler().fit(rows).mean_[1]

    assert code_of(mean_of_days) == "too-few-rows"
    described = rows.describe(quantiles=[0.5])
    assert described["days"].count is None
    assert described["age"].mean == pytest.approx(tables[:, :, 0].mean())
    # the twin
    monkeypatch.setattr(Me, "_check_filled", lambda self, rows: None)
    assert mean_of_days() == pytest.approx(tables[0, :, 1].mean())


def days_of_those_without_age(rows):
    """Fill gaps with two numbers: sums of products differ by days of these rows."""
    found = []
    for fill in (0.0, 1000.0):
        model = {"statistics": [fill, 0.0]}
        imputer = public_model(FederatedSimpleImputer, model, 2)
        found.append(second_moments(imputer.transform(rows))[0][0, 1])
    return (found[1] - found[0]) / 1000 * len(NAMES) * N_ROWS


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_gaps_filled_with_a_number_of_ones_own(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[0, 17, 0] = np.nan
    rows = open_rows(tables, age='"float"', days='"float"')
    assert code_of(days_of_those_without_age, rows) == "unknown-step"
    # one defence alone: the gate sees that products change by one row
    take_any_steps(monkeypatch)
    with pytest.raises(PartyError, match="about fewer rows"):
        days_of_those_without_age(rows)
    # the twin: the days of the one patient without an age
    trust_the_total(monkeypatch)
    assert days_of_those_without_age(rows) == pytest.approx(tables[0, 17, 1])


def days_by_two_starts(rows):
    """One step of EM from two means: what is expected in gaps differs by a number."""
    found = []
    for mean in (60.0, 110.0):
        mixture = PPEMGaussianMixture(
            missing="em",
            max_iter=1,
            tol=0.0,
            reg_covar=0.0,
            means_init=[[mean, 9.0]],
            weights_init=[1.0],
            precisions_init=[np.eye(2)],
        ).fit(rows)
        mean = mixture.means_[0]
        found.append((mixture.covariances_[0] + np.outer(mean, mean))[0, 1])
    return (found[1] - found[0]) / 50 * len(NAMES) * N_ROWS


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_attack_gaps_filled_by_a_mixture_of_ones_own(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[0, 17, 0] = np.nan
    rows = open_rows(tables, age='"float"', days='"float"')
    with pytest.raises(ValueError, match="min_rows"):
        days_by_two_starts(rows)
    # the twin
    trust_the_total(monkeypatch)
    assert days_by_two_starts(rows) == pytest.approx(tables[0, 17, 1])


def test_gaps_of_many_rows_are_filled(open_rows):
    tables = ages_and_days()
    tables[:, :10, 0] = np.nan
    rows = open_rows(tables, age='"float"', days='"float"')
    imputer = FederatedSimpleImputer().fit(rows)
    filled = np.where(np.isnan(tables), imputer.statistics_, tables)
    found = FederatedStandardScaler().fit(imputer.transform(rows))
    np.testing.assert_allclose(found.mean_, filled.mean(axis=(0, 1)))


def count_the_rest(rows, dropped=()):
    """Encode frequent ages only, and count those who have another."""
    labels = [*dropped, 68, 69, 70, 71]
    model = {
        "labels": labels,
        "sizes": np.array([len(labels)]),
        "rare": np.zeros(len(labels), dtype=bool),
        "handle_unknown": "ignore",
        "drop": "first" if dropped else None,
    }
    encoder = public_model(FederatedOneHotEncoder, model, 1)
    return len(NAMES) * N_ROWS * (1 - second_moments(encoder.transform(rows))[1].sum())


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_a_label_that_is_left_out(open_rows, monkeypatch):
    tables = np.tile(68 + np.arange(N_ROWS) % 4, (len(NAMES), 1))[:, :, None]
    tables[0, 17] = 97
    rows = open_rows(tables, age='"int"')
    assert code_of(count_the_rest, rows) == "unknown-step"
    # one defence alone: the gate sees that indicators add up to one but for a row
    take_any_steps(monkeypatch)
    assert code_of(count_the_rest, rows) == "too-few-rows"
    # the twin: there is one
    without_shares(monkeypatch)
    assert count_the_rest(rows) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_a_label_that_is_dropped(open_rows, monkeypatch):
    tables = np.tile(68 + np.arange(N_ROWS) % 4, (len(NAMES), 1))[:, :, None]
    tables[0, 17] = 97
    rows = open_rows(tables, age='"int"')
    assert code_of(count_the_rest, rows, [97]) == "unknown-step"
    take_any_steps(monkeypatch)
    assert code_of(count_the_rest, rows, [97]) == "too-few-rows"
    # the twin
    without_shares(monkeypatch)
    assert count_the_rest(rows, [97]) == pytest.approx(1)


def deaths_of_the_sick(rows):
    """Regress one column of two values on another: means of groups, and so counts."""
    rows = rows._connection.rows(["sick"])
    model = PrivateGLMMRegressor(min_rows=1).fit(rows, y="died")
    return (model.intercept_ + model.coef_[0]) * len(NAMES) * 30


@pytest.mark.filterwarnings("ignore:no cluster was given")
def test_attack_an_outcome_that_few_have_of_a_group(open_rows, monkeypatch):
    sick = np.arange(N_ROWS) < 30
    died = np.tile(np.arange(N_ROWS) >= 50, (len(NAMES), 1))
    died[0, 7] = True
    tables = [np.column_stack([sick, d]).astype(int) for d in died]
    rows = open_rows(tables, sick='"int"', died='"int"')
    assert code_of(deaths_of_the_sick, rows) == "too-few-rows"
    # the twin: nobody counts the cells of two columns
    trust_the_total(monkeypatch)
    assert deaths_of_the_sick(rows) == pytest.approx(1)


def projected(rows, mean, axes):
    """Have sites project rows on axes of one's own."""
    model = {
        "whiten": False,
        "mean": np.array(mean),
        "components": np.array(axes),
        "variances": np.ones(len(axes)),
        "noise_variance": 0.0,
    }
    return public_model(FederatedPCA, model, len(mean)).transform(rows)


def days_of_whoever_is_97(rows):
    """Add a number that is so large, but for one patient, that days are lost in it."""
    large = 2.0**60
    axes = [[large, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    lost = projected(rows, [97.0, 0.0, 0.0], axes)
    left = projected(lost, np.zeros(3), [[1.0, -large, 1.0]])
    of_all = FederatedStandardScaler().fit(rows).mean_[2]
    return (FederatedStandardScaler().fit(left).mean_[0] - of_all) * len(NAMES) * N_ROWS


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_a_filter_of_floating_point(open_rows, monkeypatch):
    tables = np.dstack([ages_and_days().round(), ages_and_days(1)[:, :, 0]])
    tables[0, 17] = 97.0, 4.25, 60.0
    rows = open_rows(tables, age='"float"', days='"float"', weight='"float"')
    assert code_of(days_of_whoever_is_97, rows) == "unknown-step"
    # the twin: the days of the one patient
    take_any_steps(monkeypatch)
    assert days_of_whoever_is_97(rows) == pytest.approx(4.25)


def whoever_is_beyond(rows, size):
    """Have sites divide by a variance of one's own: too large a sum names its site."""
    pca = FederatedPCA(whiten=True).fit(rows)
    largest = 2.0**55 / len(NAMES) / N_ROWS
    pca.explained_variance_ = np.full(2, (size / largest) ** 2)
    try:
        FederatedStandardScaler(with_std=False).fit(pca.transform(rows))
    except PartyError as error:
        assert error.code != "unknown-step"
        return error.party
    return None


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_variances_of_ones_own(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[1, :, 0] += 40
    rows = open_rows(tables, age='"float"', days='"float"')
    pca = FederatedPCA(whiten=True).fit(rows)
    honest = FederatedStandardScaler().fit(pca.transform(rows))
    np.testing.assert_allclose(honest.var_, 1, rtol=0.01)
    pca.explained_variance_ = pca.explained_variance_ * [1, 1.001]
    scaler = FederatedStandardScaler(with_std=False)
    assert code_of(scaler.fit, pca.transform(rows)) == "unknown-step"
    # the twin: how far the rows of one site are from the mean, by who refuses
    take_any_steps(monkeypatch)
    assert whoever_is_beyond(rows, 25.0) == "south"
    assert whoever_is_beyond(rows, 300.0) is None


def binned(rows, edges):
    """Return the share of rows in each bin of the first column."""
    model = {"edges": [np.array(edges)], "encode": "onehot"}
    binner = public_model(FederatedKBinsDiscretizer, model, 1)
    return FederatedStandardScaler(with_std=False).fit(binner.transform(rows)).mean_


@pytest.mark.filterwarnings("ignore:the columns of X have names")
@pytest.mark.parametrize(("n", "told"), [(0, True), (1, False), (4, False), (5, True)])
def test_attack_bins_of_equal_width_around_a_patient(open_rows, n, told):
    """They need not be found with a site; their rows are counted over all sites."""
    tables = np.tile(50.0 + np.arange(N_ROWS) % 20, (len(NAMES), 1))[:, :, None]
    for k in range(n):
        tables[k % 3, k] = 97
    rows = open_rows(tables, age='"float"')
    if told:
        assert binned(rows, [0, 90, 180])[1] == pytest.approx(n / tables.size)
    else:
        assert code_of(binned, rows, [0, 90, 180]) == "too-few-rows"


@pytest.mark.filterwarnings("ignore:the columns of X have names")
def test_attack_bins_that_are_nearly_of_equal_width(open_rows, monkeypatch):
    """Beside large edges, such as times in seconds, many widths are a small part."""
    tables = ages_and_days()[:, :, :1] + 1.7e9
    rows = open_rows(tables, seen='"float"')
    edges = 1.7e9 + np.array([0, 50, 55, 200])
    assert code_of(binned, rows, edges) == "unknown-step"
    even = 1.7e9 + np.array([0, 60.1, 120.2])
    assert binned(rows, even).sum() == pytest.approx(1)
    # the twin
    known = _discretizer._are_even
    monkeypatch.setattr(_discretizer, "_are_even", lambda e: np.allclose(e, edges))
    rows_between = np.mean((tables >= edges[1]) & (tables < edges[2]))
    assert not known(edges)
    assert binned(rows, edges)[1] == pytest.approx(rows_between)


def ward_of_those_without_sex(rows):
    summary = rows.describe([("ward", "sex")], quantiles=[])
    table = summary["ward", "sex"].counts
    return None if table is None else summary["ward"].counts - table.sum(axis=1)


def test_attack_a_table_that_lacks_one_patient(open_rows, monkeypatch):
    places = np.arange(N_ROWS)
    tables = [[["sm"[i % 2], "fm"[i // 2 % 2]] for i in places] for _ in NAMES]
    tables[0][17][1] = ""
    rows = open_rows(tables, ward='["s", "m"]', sex='["f", "m"]')
    assert ward_of_those_without_sex(rows) is None
    # the twin: the ward of the patient whose sex is not known
    monkeypatch.setattr(_Counted, "has_both", lambda *arguments: True)
    np.testing.assert_array_equal(ward_of_those_without_sex(rows), [0, 1])


def weighted(rows, weights, column):
    """Return sums of weights, and of a column and its squares under them."""
    scaler = FederatedStandardScaler()
    scaler.fit(rows._connection.rows([column]), sample_weight=weights)
    mean = scaler.mean_[0]
    return scaler.n_samples_ * np.array([1.0, mean, scaler.var_[0] + mean**2])


def test_attack_gaps_that_pad_a_small_cell(open_rows, monkeypatch):
    ward = np.repeat([0, 1], N_ROWS // 2)
    immune = np.tile(np.repeat([1, 0, 1, np.nan], N_ROWS // 4), (len(NAMES), 1))
    immune[0, 50] = 0
    tables = [np.column_stack([column, ward]) for column in immune]
    rows = open_rows(tables, immune='"float"', ward='"float"')
    assert code_of(weighted, rows, "ward", "immune") == "too-few-rows"
    # the twin: one in this ward is not immune
    trust_the_total(monkeypatch)
    n, n_immune, _ = weighted(rows, "ward", "immune")
    assert n - n_immune == pytest.approx(1)


def test_attack_three_values_under_weights(open_rows, monkeypatch):
    ward = np.repeat([0, 1], N_ROWS // 2)
    stage = np.tile(np.append(np.arange(40) % 3, np.arange(40) % 2), (len(NAMES), 1))
    stage[0, 50] = 2
    tables = [np.column_stack([column, ward]) for column in stage]
    rows = open_rows(tables, stage='"float"', ward='"float"')
    assert code_of(weighted, rows, "ward", "stage") == "too-few-rows"
    # the twin: one in this ward is of the last stage
    trust_the_total(monkeypatch)
    powers = np.vander([0, 1, 2], increasing=True).T
    found = np.linalg.solve(powers, weighted(rows, "ward", "stage"))
    np.testing.assert_allclose(found, [59, 60, 1], atol=1e-6)


def test_stages_that_a_ward_has_many_of_or_none(open_rows):
    ward = np.repeat([0, 1], N_ROWS // 2)
    stage = np.append(np.arange(40) % 3, np.arange(40) % 2).astype(float)
    stage[::8] = np.nan
    rows = open_rows(
        [np.column_stack([stage, ward])] * 3, stage='"float"', ward='"float"'
    )
    in_ward = stage[40:][~np.isnan(stage[40:])]
    found = weighted(rows, "ward", "stage")[:2]
    np.testing.assert_allclose(found, [3 * len(in_ward), 3 * in_ward.sum()])


def test_attack_weights_that_differ_in_one_patient(open_rows, monkeypatch):
    tables = np.dstack([ages_and_days(), np.zeros((len(NAMES), N_ROWS))])
    tables[:, :, 1] = tables[:, :, 2] = np.arange(N_ROWS) % 2
    tables[1, 10, 2] = 1
    rows = open_rows(tables, age='"float"', dead30='"float"', dead31='"float"')
    first = weighted(rows, "dead30", "age")
    FederatedStandardScaler().fit(rows._connection.rows(["age"]))
    np.testing.assert_array_equal(weighted(rows, "dead30", "age"), first)
    assert code_of(weighted, rows, "dead31", "age") == "other-weights"
    # the twin: the age of who died on the last day
    monkeypatch.setattr(Account, "_check_roster", lambda self, roster: None)
    n, age, _ = weighted(rows, "dead31", "age") - first
    assert (n, age) == (pytest.approx(1), pytest.approx(tables[1, 10, 0]))


def test_attack_weights_that_few_rows_have_not(open_rows, monkeypatch):
    tables = ages_and_days()
    tables[:, :, 1] = 1
    tables[0, :4, 1] = 2, 3, 4, 5
    rows = open_rows(tables, age='"float"', weight='"float"')
    assert code_of(weighted, rows, "weight", "age") == "too-few-rows"
    # the twin: ages of four
    trust_the_total(monkeypatch)
    plain = FederatedStandardScaler().fit(rows._connection.rows(["age"]))
    left = weighted(rows, "weight", "age")[1] - plain.n_samples_ * plain.mean_[0]
    assert left == pytest.approx(np.sum([1, 2, 3, 4] * tables[0, :4, 0]))


def test_stays_of_nobody_known_are_not_one_persons(open_rows, monkeypatch):
    """One person more among them, with many stays, would move what all others add."""
    unknown = [[10.0, ""]] * N_ROWS
    known = [[[10.0, f"{name}{i}"] for i in range(N_ROWS)] for name in NAMES[1:]]
    rules = 'individual = "who"\nbudget = {epsilon = 999.0}'
    rows = open_rows([unknown, *known], rules, days='"float"', who='"key"')

    def count_persons():
        scaler = FederatedStandardScaler(epsilon=200.0, bounds=(0, 10))
        return round(scaler.fit(rows, individual="who").n_samples_)

    assert count_persons() == 2 * N_ROWS
    # the twin: cells without a key are somebody's
    monkeypatch.setattr(_block, "_known_persons", lambda keys: keys)
    assert count_persons() == 2 * N_ROWS + 1
