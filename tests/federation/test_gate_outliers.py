"""One row of one site that is nearly all of a sum: attacks on real sites."""

import warnings

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import _description, gate, runner
from skprivbn.federation.gate import kish
from skprivbn.federation.program import RowWeights
from skprivbn.mixed_model import PrivateGLMMRegressor, _linear, _survey
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.programs import _moments
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure.rows._mixed import FamiliesEM
from skprivbn.structure.rows._program import OwnRows
from tests.federation.site.loopback import LoopbackSession, open_sites
from tests.federation.test_gate_shares import without_shares

NAMES = ("north", "south", "west")
N_ROWS = 400
N_TOTAL = len(NAMES) * N_ROWS
COLUMNS = {"cost": '"float"', "age": '"float"', "ward": '["a", "b", "c"]'}
ESTIMATORS = [
    "FederatedBayesianNetwork",
    "FederatedPCA",
    "FederatedSimpleImputer",
    "FederatedStandardScaler",
    "PPEMGaussianMixture",
    "PrivateGLMMRegressor",
    "describe",
]

COST_BY_WARD = ("cost", "ward")

pytestmark = pytest.mark.filterwarnings("ignore")


def open_with(folder, cost=0.0, ward=None, rules="max_exact_numbers = 3"):
    """Return sites, one of which has a patient like nobody else, and all rows."""
    rng = np.random.default_rng(0)
    X, wards = rng.normal(size=(3, N_ROWS, 2)), rng.choice([*"ab"], (3, N_ROWS))
    X[0, 7, 0], wards[0, 7] = cost, ward or "a"
    tables = {
        name: [[*row, label] for row, label in zip(rows.tolist(), labels)]
        for name, rows, labels in zip(NAMES, X, wards)
    }
    return open_sites(folder, tables, COLUMNS, ESTIMATORS, rules), X.reshape(-1, 2)


def count_otherwise(monkeypatch, count=kish):
    """The twin: every site counts its own rows, and these numbers are added up."""
    without_shares(monkeypatch)
    with_rows, check_rows = runner.with_rows, runner.check_rows

    def alone(weights):
        if not isinstance(weights, RowWeights):
            return weights
        cells = np.append(weights.cells, count(weights.sides))
        return weights._replace(cells=cells, sides=np.zeros((2, 0)))

    monkeypatch.setattr(
        runner, "with_rows", lambda x, weights, n: with_rows(x, alone(weights), n)
    )
    monkeypatch.setattr(
        runner,
        "check_rows",
        lambda total, n, what, weights, *limits: check_rows(
            total, n, what, alone(weights), *limits
        ),
    )


def filled(sites):
    return FederatedSimpleImputer().fit(sites.rows(["cost"])).statistics_[0]


def centred(sites):
    return FederatedStandardScaler(with_std=False).fit(sites.rows(["cost"])).mean_[0]


def described(sites):
    found = sites.rows(["cost"]).describe(quantiles=[])["cost"].mean
    if np.isnan(found):
        raise PartyError("north", "description", "too-few-rows")
    return found


def predicted(sites):
    model = PrivateGLMMRegressor().fit(sites.rows([]), y="cost", cluster="ward")
    return model.intercept_


@pytest.mark.parametrize("ask", [filled, centred, described, predicted])
def test_attack_a_mean_that_is_nearly_one_row(tmp_path, monkeypatch, ask):
    cost = 1000.0
    sites, _ = open_with(tmp_path, cost)
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "too-few-rows"
    # the twin: many small costs at two sites stand for rows like the large one
    count_otherwise(monkeypatch)
    assert 3 * N_ROWS * ask(sites) == pytest.approx(cost, rel=0.05)


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("ask", [filled, centred, described, predicted])
def test_attack_where_small_counts_may_be_told(tmp_path, monkeypatch, ask, least):
    """A count of one tells no value, a mean that is nearly one row does."""
    rules, cost = f"max_exact_numbers = 3\nmin_cell_count = {least}", 10000.0
    sites, _ = open_with(tmp_path, cost, rules=rules)
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "too-few-rows"
    # the twin
    count_otherwise(monkeypatch)
    assert 3 * N_ROWS * ask(sites) == pytest.approx(cost, rel=0.05)


class Losing(LoopbackSession):
    """A coordinator that feigns to have lost a site, after so many of its replies."""

    n_left = np.inf

    def do_app_command(self, job_id, command, data):
        found = super().do_app_command(job_id, command, data)
        if "east" in found["replies"]:
            self.n_left -= 1
            if self.n_left < 0:
                del found["replies"]["east"]
                found["lost"].append("east")
        return found


def recovered(folder, cost, n_replies):
    """Return the sum of costs of four sites, one of which seems to be lost."""
    rows = np.random.default_rng(0).normal(size=(4, N_ROWS))
    rows[0, 7] = cost
    tables = {
        name: [[value] for value in values]
        for name, values in zip([*NAMES, "east"], rows.tolist())
    }
    columns = {"cost": COLUMNS["cost"]}
    rules = "max_exact_numbers = 3"
    made = []

    def transport(sites):
        made.append(Losing(sites))
        return made[0]

    sites = open_sites(folder, tables, columns, ESTIMATORS, rules, transport=transport)
    made[0].n_left = n_replies
    backend = MaskingBackend(recovery=True)
    scaler = FederatedStandardScaler(with_std=False, backend=backend)
    return N_ROWS * scaler.fit(sites.rows()).mean_[0]


def test_attack_a_loss_that_is_feigned(tmp_path, monkeypatch):
    """Whenever it is: what is counted travels with the sum that it is about."""
    told = []
    for n_replies in range(9, 13):
        try:
            told.append(recovered(make(tmp_path / f"{n_replies}"), 0.0, n_replies))
        except PartyError as error:
            assert error.code != "too-few-rows"
    assert len(told) > 1
    for n_replies in range(9, 13):
        with pytest.raises(PartyError):
            recovered(make(tmp_path / f"large {n_replies}"), 1000.0, n_replies)
    # the twin
    count_otherwise(monkeypatch)
    assert 4 * recovered(make(tmp_path / "twin"), 1000.0, 11) > 900


def make(folder):
    folder.mkdir()
    return folder


def sum_of_products(folder, cost):
    """Return the sum of the costs of flagged rows, one of which has a large one.

    Many rows of a site have such costs, and others are flagged: neither is odd.
    """
    X = np.zeros((3, N_ROWS, 2))
    X[:, :30, 1], X[:, :30, 0] = 1.0, 1 + np.arange(30) % 4 / 4
    X[0, :100, 0], X[0, :100, 1] = cost + np.arange(100) % 4 / 4, 0.0
    X[0, 99:129, 1] = 1.0
    tables = {name: rows.tolist() for name, rows in zip(NAMES, X)}
    columns = {"cost": COLUMNS["cost"], "flag": '"float"'}
    sites = open_sites(folder, tables, columns, ESTIMATORS, "max_exact_numbers = 3")
    pca = FederatedPCA().fit(sites.rows(["cost", "flag"]))
    n, (mean, share) = 3 * N_ROWS, pca.mean_
    return (n - 1) * pca.get_covariance()[0, 1] + n * mean * share


def test_attack_a_product_that_is_nearly_one_row(tmp_path, monkeypatch):
    with pytest.raises(PartyError) as caught:
        sum_of_products(make(tmp_path / "gate"), 1000.0)
    assert caught.value.code == "too-few-rows"
    # a row like the others
    assert sum_of_products(make(tmp_path / "small"), 1.0) == pytest.approx(83.25)
    # the twin: flagged rows of other sites, of small costs, stand for it
    count_otherwise(monkeypatch)
    told = sum_of_products(make(tmp_path / "twin"), 1000.0)
    assert told == pytest.approx(1000, rel=0.1)


def like_nobody(folder, cost):
    """Return sites where the costs and the age of one row are large, in normal ones."""
    X = np.random.default_rng(0).normal(size=(3, N_ROWS, 2))
    X[0, 7] = cost, -cost
    tables = {name: rows.tolist() for name, rows in zip(NAMES, X)}
    columns = {"cost": '"float"', "age": '"float"'}
    return open_sites(folder, tables, columns, ESTIMATORS, "max_exact_numbers = 3")


def square_of_scaler(sites):
    return N_TOTAL * FederatedStandardScaler().fit(sites.rows(["cost"])).var_[0]


def square_of_description(sites):
    found = sites.rows(["cost"]).describe(quantiles=[])["cost"].std
    if np.isnan(found):
        raise PartyError("north", "description", "too-few-rows")
    return N_TOTAL * found**2


def product_of_pca(sites):
    moments = FederatedPCA().fit(sites.rows(["cost", "age"])).get_covariance()
    return -N_TOTAL * moments[0, 1]


def slope_of_line(sites):
    model = PrivateGLMMRegressor().fit(sites.rows(["cost"]), y="age", cluster=None)
    return -model.coef_[0] * 100.0**2


SQUARED = [square_of_scaler, square_of_description, product_of_pca, slope_of_line]


@pytest.mark.parametrize("ask", SQUARED)
def test_attack_squares_that_are_nearly_one_row(tmp_path, monkeypatch, ask):
    """Of deviations, the row is a tenth; of squares and products, nearly all."""
    sites = like_nobody(make(tmp_path / "gate"), 100.0)
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "too-few-rows"
    # rows that are odd, and not nearly all
    ask(like_nobody(make(tmp_path / "small"), 10.0))
    # the twin: of squares and products, signs of columns of two values are looked at
    without_squares(monkeypatch)
    assert ask(sites) == pytest.approx(100.0**2, rel=0.15)


def without_squares(monkeypatch):
    without_shares(monkeypatch)
    of_pairs = gate.rows_of_pairs

    def by_sign(deviations, weights, counted=None):
        counted = gate.count_values(deviations) <= 2 if counted is None else counted
        n = deviations.shape[1]
        sums = of_pairs(np.where(counted, deviations, 0.0), weights, counted)
        return np.hstack([sums[:, : sums.shape[1] - n], np.zeros((2, n))])

    for room in (_moments, _linear, _survey):
        monkeypatch.setattr(room, "rows_of_pairs", by_sign)
    like_all = lambda x, w: np.full((2, x.shape[1]), 400.0)  # noqa: E731
    monkeypatch.setattr(_moments, "rows_of_sizes", like_all)
    nothing = lambda rows, *_: np.zeros((2, rows.shape[1]))  # noqa: E731
    monkeypatch.setattr(_description, "_weigh_squares", nothing)


def mean_by_em(sites):
    """Return the sum of costs of a network that is learnt from rows with gaps."""
    network = FederatedBayesianNetwork(
        states={"cost": "continuous"},
        missing="em",
        search_params={"forbidden_edges": [("ward", "cost")]},
    ).fit(sites.rows(["ward", "cost"]))
    return N_TOTAL * network.network_.intercepts["cost"].item()


def test_attack_expected_sums_that_are_nearly_one_row(tmp_path, monkeypatch):
    """Where small counts may be told, as sites must that have gaps filled in."""
    rules, cost = "max_exact_numbers = 3\nmin_cell_count = 0", 10000.0
    sites, _ = open_with(tmp_path, cost, rules=rules)
    with pytest.raises(PartyError) as caught:
        mean_by_em(sites)
    assert caught.value.code == "too-few-rows"
    # a row like the others
    assert mean_by_em(open_with(make(tmp_path / "small"), rules=rules)[0]) < 100
    # the twin
    without_shares(monkeypatch)
    weigh = FamiliesEM.weigh
    monkeypatch.setattr(
        FamiliesEM, "weigh", lambda *a: weigh(*a)._replace(sides=np.zeros((2, 0)))
    )
    sides = OwnRows._count_values
    monkeypatch.setattr(
        OwnRows, "_count_values", lambda *a: (sides(*a)[0], np.zeros((2, 0)))
    )
    assert mean_by_em(sites) == pytest.approx(cost, rel=0.05)


def rare_ward(folder, cost):
    """Return sites where 20 rows of each are of one ward, one of them like no other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, N_ROWS, 2))
    X[0, 3, 0] = cost
    wards = np.where(np.arange(N_ROWS) < 20, "c", rng.choice([*"ab"], N_ROWS))
    tables = {
        name: [[*row, label] for row, label in zip(rows.tolist(), wards)]
        for name, rows in zip(NAMES, X)
    }
    return open_sites(folder, tables, COLUMNS, ESTIMATORS, "max_exact_numbers = 3")


def effect_of_ward(sites):
    """Return the sum of costs of a ward, from a network in which they depend on it."""
    network = FederatedBayesianNetwork(
        states={"cost": "continuous"},
        search_params={"required_edges": [("ward", "cost")]},
    ).fit(sites.rows(["ward", "cost"]))
    return 60 * network.network_.intercepts["cost"][2]


def test_attack_a_configuration_that_is_nearly_one_row(tmp_path, monkeypatch):
    sites, cost = rare_ward(tmp_path, 200.0), 200.0
    with pytest.raises(PartyError) as caught:
        effect_of_ward(sites)
    assert (caught.value.code, caught.value.columns) == ("too-few-rows", COST_BY_WARD)
    # the twin
    count_otherwise(monkeypatch)
    assert effect_of_ward(sites) == pytest.approx(cost, rel=0.05)


@pytest.mark.parametrize("cost", [0.0, 30.0])
def test_a_ward_with_such_a_row_joins_another(tmp_path, monkeypatch, cost):
    def wards():
        rows = rare_ward(tmp_path / f"{cost}", cost).rows(["age"])
        model = PrivateGLMMRegressor().fit(rows, y="cost", cluster="ward")
        return sorted(model.clusters_)

    (tmp_path / f"{cost}").mkdir()
    merged = wards() != ["a", "b", "c"]
    assert merged is (cost > 0)
    count_otherwise(monkeypatch)
    assert wards() == ["a", "b", "c"]


def sure_of(row):
    """Return a model to which all rows are much alike but for those next to one."""
    model = PPEMGaussianMixture(2, covariance_type="spherical")
    quietly(model.fit, np.random.default_rng(1).normal(size=(200, 2)))
    model.means_, model.weights_ = np.array([[0.0, 0.0], row]), np.array([0.5, 0.5])
    model.precisions_ = np.array([1e-6, 1e10])
    model.covariances_ = 1 / model.precisions_
    model.precisions_cholesky_ = np.sqrt(model.precisions_)
    return model


def quietly(fit, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*arguments)


def test_attack_a_score_that_is_nearly_one_row(tmp_path, monkeypatch):
    """Whether somebody holds a row, by the score of a model made for it."""
    sites, X = open_with(tmp_path)
    rows, model = sites.rows(["cost", "age"]), sure_of(X[7])
    with pytest.raises(PartyError) as caught:
        model.score(rows)
    assert caught.value.code == "too-few-rows"
    # the twin: the score is higher than of a row that nobody holds
    count_otherwise(monkeypatch, lambda sides: [])
    held, other = model.score(rows), sure_of(X[7] + 0.2).score(rows)
    assert 3 * N_ROWS * (held - other) > 20


def test_an_honest_score_is_that_of_all_rows(tmp_path):
    sites, X = open_with(tmp_path)
    model = quietly(PPEMGaussianMixture(2, random_state=0).fit, X)
    told = model.score(sites.rows(["cost", "age"]))
    assert told == pytest.approx(model.score(X), abs=1e-9)


def test_attack_a_score_where_small_counts_may_be_told(tmp_path, monkeypatch):
    rules = "max_exact_numbers = 3\nmin_cell_count = 1"
    sites, X = open_with(tmp_path, rules=rules)
    rows, model = sites.rows(["cost", "age"]), sure_of(X[7])
    with pytest.raises(PartyError) as caught:
        model.score(rows)
    assert caught.value.code == "too-few-rows"
    # the twin
    count_otherwise(monkeypatch)
    held, other = model.score(rows), sure_of(X[7] + 0.2).score(rows)
    assert 3 * N_ROWS * (held - other) > 20


@pytest.mark.parametrize(("n", "told"), [(4, False), (5, True)])
def test_attack_a_score_that_is_impossible_for_few_rows(tmp_path, n, told):
    """Minus infinity tells that there is such a row."""
    labels = np.repeat([*"abc"], [200, 200, 0])
    tables = {name: [[label] for label in labels] for name in NAMES}
    tables["north"][:n] = [["c"]] * n
    columns = {"ward": COLUMNS["ward"]}
    rules = "max_exact_numbers = 3"
    sites = open_sites(tmp_path, tables, columns, ESTIMATORS, rules)
    codes = np.repeat([0, 1, 2], 9)[:, None]
    network = quietly(FederatedBayesianNetwork().fit, codes)
    never = np.array([0.5, 0.5, 0.0])
    nodes, tables = network.network_.nodes, network.network_.cpts
    network.network_ = type(network.network_)(
        nodes,
        network.network_.states,
        network.network_.parents,
        {nodes[0]: never.reshape(tables[nodes[0]].shape)},
    )
    if told:
        assert network.score(sites.rows()) == -np.inf
        return
    with pytest.raises(PartyError) as caught:
        network.score(sites.rows())
    assert caught.value.code == "too-few-rows"
