"""A study that three small hospitals should answer, and what they do not answer."""

import re
import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import runner
from skprivbn.federation.site._account import Account, describe_spent
from skprivbn.federation.site._state import SiteState
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedOrdinalEncoder,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import FederatedBayesianNetwork
from tests.federation.site.loopback import open_sites
from tests.federation.site.study import (
    NAMES,
    QUESTIONS,
    RECOMMENDED,
    ask,
    make_patients,
    open_study,
)


@pytest.mark.parametrize("seed", [0, 7])
def test_at_least_twelve_of_fourteen_analyses_are_answered(tmp_path, seed):
    sites, refused = open_study(tmp_path, seed=seed), {}
    for name, question in QUESTIONS.items():
        try:
            ask(question, sites)
        except PartyError as error:
            refused[name] = error
    assert len(QUESTIONS) == 14
    assert len(refused) <= 2, refused
    for error in refused.values():
        # the rule, what to do, and the column; no number of rows
        assert error.code in ("too-few-rows", "too-detailed")
        assert "epsilon" in str(error) and "min_cell_count" in str(error)
        assert error.columns


def test_clusters_with_few_deaths_are_one_as_if_joined_by_hand(tmp_path):
    sites = open_study(tmp_path, seed=7)
    with pytest.warns(UserWarning, match="too few with one of the outcomes"):
        fitted = QUESTIONS["died by ethnicity"](sites)
    tables = [make_patients(400, [7, place]) for place in range(len(NAMES))]
    rows = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    kept = np.isin(rows["ethnicity"], fitted.clusters_)
    deaths = rows["died"] == "yes"
    for name in fitted.clusters_:
        among = rows["ethnicity"] == name if name != "(other)" else ~kept
        assert min(deaths[among].sum(), (~deaths[among]).sum()) >= 5
    # one patient of group 5 has died, whom no sum is about
    assert deaths[rows["ethnicity"] == "group 5"].sum() == 1
    X = np.column_stack([rows["age"].astype(float), rows["sex"] == "m"])
    by_hand = PrivateGLMMClassifier().fit(
        X,
        rows["died"],
        cluster=np.where(kept, rows["ethnicity"], "(other)"),
        party=np.repeat(NAMES, 400),
    )
    np.testing.assert_allclose(fitted.coef_, by_hand.coef_, rtol=1e-6)


def test_a_refusal_names_the_column_and_no_value(tmp_path):
    sites = open_study(tmp_path, n_rows=100, seed=3)
    rows = sites.rows(["sex", "dialysis"])
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(rows)
    assert caught.value.columns == ("dialysis",)
    assert "min_cell_count" in str(caught.value)


def test_rare_levels_become_one_in_networks_and_tables(tmp_path):
    """Behind an encoder with min_frequency, which says what numbers it makes."""
    sites = open_study(tmp_path)
    rows = sites.rows(["ward", "ethnicity"])
    pair = "ward", "ethnicity"
    assert rows.describe([pair])[pair].counts is None
    encoder = FederatedOrdinalEncoder(min_frequency=100).fit(rows)
    merged = encoder.transform(rows)
    table = merged.describe([pair])[pair]
    assert table.counts.sum() == 1200 and table.counts.min() >= 5
    patients = [make_patients(400, [0, place]) for place in range(3)]
    pooled = np.concatenate([p["ethnicity"] for p in patients])
    frequent = [np.sum(pooled == f"group {k}") for k in range(6)]
    frequent = [n for n in frequent if n >= 100]
    expected = [*frequent, 1200 - sum(frequent)]
    assert table.counts.sum(axis=0).tolist() == expected
    network = FederatedBayesianNetwork().fit(merged).network_
    assert [len(s) for s in network.states.values()] == [6, len(expected)]


def rare(n_sick):
    """Return 400 patients of each hospital, some of whom are sick."""
    tables = {}
    for name, n in zip(NAMES, n_sick):
        tables[name] = [[int(i < n), ["n", "y"][i < n]] for i in range(400)]
    return tables


@pytest.mark.parametrize(("n_sick", "told"), [((2, 2, 4), True), ((1, 1, 2), False)])
def test_a_category_is_told_everywhere_or_nowhere(tmp_path, n_sick, told):
    """A count of all sites is told or not, whatever one of them has."""
    columns = {"sick": '"float"', "label": '["n", "y"]'}
    estimators = ["FederatedStandardScaler", "describe"]
    sites = open_sites(tmp_path, rare(n_sick), columns, estimators)
    described = sites.rows(["label"]).describe()["label"].counts
    assert (described is not None) is told
    try:
        n = 1200 * FederatedStandardScaler().fit(sites.rows(["sick"])).mean_[0]
    except PartyError as error:
        n = error.code
    assert n == (pytest.approx(sum(n_sick)) if told else "too-few-rows")


def let_all_through(monkeypatch):
    """The twin: nobody counts the rows behind a sum."""
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


def quietly(fit, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*arguments, **options)


def test_attack_one_step_of_a_mixture_as_a_histogram(tmp_path, monkeypatch):
    """Components at the cells of a table: their weights are its counts."""
    rng = np.random.default_rng(0)
    tables = {name: rng.integers(0, 3, (100, 2)).tolist() for name in NAMES}
    tables["north"][7] = [3, 3]  # the only patient there
    cells = np.array([(a, b) for a in range(4) for b in range(4)], dtype=float)
    cells = cells[[(a < 3 and b < 3) or a == b for a, b in cells]]
    columns = {"a": '"float"', "b": '"float"'}
    rows = open_sites(tmp_path, tables, columns, ["PPEMGaussianMixture"]).rows()

    def histogram():
        mixture = PPEMGaussianMixture(
            len(cells),
            covariance_type="spherical",
            max_iter=1,
            means_init=cells,
            weights_init=np.full(len(cells), 1 / len(cells)),
            precisions_init=np.full(len(cells), 1e4),
        )
        return quietly(mixture.fit, rows).weights_ * 300

    with pytest.raises(ValueError, match="fewer than min_rows"):
        histogram()
    # the twin
    let_all_through(monkeypatch)
    assert histogram()[-1] == pytest.approx(1, abs=1e-3)


def test_attack_quantiles_until_rows_are_known(tmp_path, monkeypatch):
    """Every description tells some quantiles more, until the numbers are used up."""
    sites = open_study(tmp_path, n_rows=100)
    answered, levels = 0, np.linspace(0.01, 0.99, 440)

    def describe(k):
        rows = sites.rows(["age"])
        return quietly(rows.describe, quantiles=levels[k * 10 : k * 10 + 10].tolist())

    with pytest.raises(PartyError) as caught:
        for k in range(44):
            describe(k)
            answered += 1
    assert caught.value.code == "budget-exceeded"
    assert 10 * answered <= 3 * 100
    # the twin: all of them
    announce = Account.announce
    monkeypatch.setattr(Account, "announce", lambda self, n, most: announce(self, n))
    for k in range(answered, 44):
        describe(k)


def bisect_by_refusals(sites, name, low, high):
    """Find the 20th largest value: beyond it, a component has too few patients."""
    while high - low > 0.5:
        middle = (low + high) / 2
        mixture = PPEMGaussianMixture(
            2,
            max_iter=1,
            means_init=[[middle - 1], [middle + 1]],
            weights_init=[0.5, 0.5],
            precisions_init=[[[1e4]]] * 2,
        )
        try:
            quietly(mixture.fit, sites.rows([name]))
            low = middle
        except ValueError:
            high = middle
    return (low + high) / 2


RANGES = {"age": (18, 99), "sbp": (30, 210), "hr": (20, 150)}


def test_attack_values_bisected_by_refusals(tmp_path):
    """Refusals cost no numbers, and so are counted themselves."""
    sites = open_study(tmp_path, n_rows=100, rules=RECOMMENDED + "\nmax_refusals = 6")
    with pytest.raises(PartyError) as caught:
        for name, ends in RANGES.items():
            bisect_by_refusals(sites, name, *ends)
    assert caught.value.code == "budget-exceeded"
    assert "max_refusals" in str(caught.value)
    dataset = sites._relay.session.sites["north"]._site_file.datasets["icu"]
    assert "6 of 6 refusals" in describe_spent(SiteState(dataset.state), dataset)


def test_without_a_limit_of_refusals_all_values_are_found(tmp_path):
    rules = RECOMMENDED + "\nmax_refusals = 1000"
    sites = open_study(tmp_path, n_rows=100, rules=rules)
    tables = [make_patients(100, [0, place]) for place in range(len(NAMES))]
    for name, ends in RANGES.items():
        values = np.sort(np.concatenate([t[name] for t in tables]).astype(float))
        found = bisect_by_refusals(sites, name, *ends)
        assert abs(found - values[-20]) <= 1


@pytest.mark.parametrize("most", [1, 2])
def test_as_many_refusals_as_the_site_file_says(tmp_path, most):
    rules = RECOMMENDED + f"\nmax_refusals = {most}"
    sites, codes = open_study(tmp_path, n_rows=100, seed=3, rules=rules), []
    for columns in [["age"], ["dialysis"]] * 2 + [["age"]]:
        try:
            FederatedStandardScaler().fit(sites.rows(columns))
            codes.append("")
        except PartyError as error:
            codes.append(error.code)
    few, used_up = "too-few-rows", "budget-exceeded"
    answers = {1: ["", few, *[used_up] * 3], 2: ["", few, "", few, used_up]}
    assert codes == answers[most]


@pytest.mark.parametrize("strategy", ["mean", "median"])
def test_gaps_are_filled_with_what_sites_have_found(tmp_path, strategy):
    """Few patients lack two entries: with numbers made up, sums tell of these."""
    sites = open_study(tmp_path)
    rows = sites.rows(["age", "bmi", "lactate", "creatinine"])
    imputer = FederatedSimpleImputer(strategy=strategy).fit(rows)
    FederatedStandardScaler().fit(imputer.transform(rows))
    # after another step they are not what was found
    scaled = FederatedStandardScaler().fit(rows).transform(rows)
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(imputer.transform(scaled))
    assert caught.value.code == "unknown-step"
    imputer.statistics_ = imputer.statistics_ + 1
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(imputer.transform(rows))
    assert caught.value.code == "unknown-step"


def test_steps_that_stand_in_the_site_file_are_taken(tmp_path):
    """Numbers from elsewhere fill gaps, once people at the sites have looked."""

    def fit(rules, fill):
        sites = open_study(tmp_path / f"{len(rules)} {fill}", 100, rules=rules)
        rows = sites.rows(["age", "bmi"])
        imputer = FederatedSimpleImputer().fit(rows)
        imputer.statistics_ = np.array([64.0, fill])
        return FederatedStandardScaler().fit(imputer.transform(rows)).mean_[1]

    with pytest.raises(PartyError) as caught:
        fit(RECOMMENDED, 27.0)
    assert caught.value.code == "unknown-step"
    log = next(tmp_path.glob("*/*/skprivbn_errors.log")).read_text()
    digest = re.search("steps = (.*) would allow it", log)[1]
    allowed = f"{RECOMMENDED}\nsteps = {digest}"
    assert fit(allowed, 27.0) == pytest.approx(27, abs=1)
    # these numbers, and no others
    with pytest.raises(PartyError) as caught:
        fit(allowed, 28.0)
    assert caught.value.code == "unknown-step"


def told_at(sites):
    """Return how many exact numbers each site has told."""
    found = [s._site_file.datasets["icu"] for s in sites._relay.session.sites.values()]
    told = [SiteState(dataset.state).told(dataset.account) for dataset in found]
    return [versions.get("1", (0, 0))[1] for versions in told]


def test_what_is_refused_costs_nothing(tmp_path):
    """Refused questions, as many as answered ones, leave what was told as it is."""
    sites = open_study(tmp_path, n_rows=100, seed=3)
    for k in range(1, 4):
        FederatedStandardScaler().fit(sites.rows(["age", "sbp"]))
        # two means, two variances, two numbers of rows
        assert told_at(sites) == [6 * k] * 3
        with pytest.raises(PartyError):
            FederatedStandardScaler().fit(sites.rows(["dialysis"]))
        assert told_at(sites) == [6 * k] * 3


def test_a_site_with_fewer_rows_refuses_for_all(tmp_path):
    """Nobody hands a result over that one site does not want to leave."""
    rng = np.random.default_rng(0)
    sizes = dict(zip(NAMES, (30, 300, 300)))
    tables = {name: rng.normal(size=(n, 4)).tolist() for name, n in sizes.items()}
    columns = dict.fromkeys("abcd", '"float"')
    rules = "max_exact_numbers = 0.3"
    sites = open_sites(tmp_path, tables, columns, ["FederatedStandardScaler"], rules)
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(sites.rows())
    assert (caught.value.party, caught.value.code) == ("north", "budget-exceeded")
    assert told_at(sites) == [0, 0, 0]


def test_the_recommended_file_bounds_numbers():
    assert "max_exact_numbers" in RECOMMENDED


def test_a_file_with_a_budget_alone_answers_with_noise_only(tmp_path):
    rows = open_study(tmp_path, rules="budget = {epsilon = 1.0}").rows(["age"])
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(rows)
    assert caught.value.code == "budget-exceeded"
    noisy = FederatedStandardScaler(epsilon=0.5, bounds=(0, 120)).fit(rows)
    assert noisy.privacy_spent_.epsilon == 0.5


COLUMNS = ["age", "sbp"]


def beyond_border(rows, border):
    """Return sums over patients older than this, as one step of a mixture has them."""
    mixture = PPEMGaussianMixture(
        2,
        covariance_type="diag",
        max_iter=1,
        means_init=[[border - 1, 120], [border + 1, 120]],
        weights_init=[0.5, 0.5],
        precisions_init=[[1e4, 1e-4]] * 2,
    )
    quietly(mixture.fit, rows)
    return mixture.weights_[1] * 1200 * mixture.means_[1]


def find_alone():
    """Return a patient who is the only one of their age, and ages on both sides."""
    tables = [make_patients(400, [0, place]) for place in range(len(NAMES))]
    rows = [np.column_stack([t[name] for name in COLUMNS]) for t in tables]
    rows = np.vstack(rows).astype(float)
    ages, counts = np.unique(rows[:, 0], return_counts=True)
    age = next(a for a, n in zip(ages, counts) if n == 1 and 60 < a < 70)
    return rows[rows[:, 0] == age][0], age - 0.05, age + 0.05


@pytest.mark.parametrize("digits", [None, 4])
def test_attack_two_fits_that_differ_by_one_patient(tmp_path, digits):
    """Rounding blunts the difference of two fits; the twin without reads the row."""
    rules = RECOMMENDED + ("" if digits is None else f"\nround_results = {digits}")
    patient, *borders = find_alone()
    rows = open_study(tmp_path, rules=rules).rows(COLUMNS)
    one, other = (beyond_border(rows, border) for border in borders)
    is_read = np.abs(one - other - patient) < 0.05
    assert is_read.all() if digits is None else not is_read.any()


def test_the_strictest_site_says_how_many_digits_results_have(tmp_path):
    digits = zip(NAMES, ("", "\nround_results = 5", "\nround_results = 3"))
    rules = {name: RECOMMENDED + words for name, words in digits}
    rounded = open_study(tmp_path / "rounded", rules=rules).rows(COLUMNS)
    exact = open_study(tmp_path / "exact").rows(COLUMNS)
    told, truth = (FederatedStandardScaler().fit(rows) for rows in (rounded, exact))
    expected = [float(f"{mean:.2e}") for mean in truth.mean_]
    assert told.mean_.tolist() == expected != truth.mean_.tolist()
    # what sites remember to have found is what they told
    PPEMGaussianMixture(1).fit(told.transform(rounded))
