"""One row that is nearly all of the squares along a combination of columns."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import Me, PartyRefusal, Terms, gate
from skprivbn.federation.gate import check_shares
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
    _linear,
    _program,
)
from skprivbn.mixture import PPEMGaussianMixture, _em
from skprivbn.preprocessing import FederatedPCA
from skprivbn.programs import _moments
from skprivbn.structure import (
    FederatedBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    Notears,
    VotingStructureLearner,
)
from skprivbn.structure.admm import _program as _admm
from skprivbn.structure.gaussian import _federated
from skprivbn.structure.gaussian import _program as _network
from skprivbn.structure.gaussian._scores import N_FUNCTIONS, expand
from skprivbn.structure.rows import _program as _rows
from skprivbn.utils._linalg import symmetric
from tests.federation.site.loopback import open_sites

NAMES = ("north", "south", "west")
N_ROWS = 400
N_TOTAL = len(NAMES) * N_ROWS
COLUMNS = {"before": '"float"', "after": '"float"', "died": '["no", "yes"]'}
ALL = ("after", "before", "died")
ESTIMATORS = [
    "FederatedBayesianNetwork",
    "FederatedDynotears",
    "FederatedGaussianBayesianNetwork",
    "FederatedNotearsADMM",
    "FederatedPCA",
    "PPEMGaussianMixture",
    "PrivateGLMMClassifier",
    "PrivateGLMMRegressor",
    "VotingStructureLearner",
]
ROOMS = (_em, _linear, _moments, _network, _program, _rows, gate)

pytestmark = pytest.mark.filterwarnings("ignore")


def open_with(folder, n_corrected, by=4.0, **rules):
    """Return sites with a column that was corrected for some patients of one of them.

    No value is far from the others.
    """
    rng = np.random.default_rng(0)
    before, died = rng.normal(size=(3, N_ROWS)), rng.random((3, N_ROWS)) < 0.4
    after = before.copy()
    after[0, 7 : 7 + n_corrected] += by
    died[0, 7] = True
    tables = {
        name: [[*row, "yes" if y else "no"] for row, y in zip(rows.tolist(), dead)]
        for name, rows, dead in zip(NAMES, np.dstack([before, after]), died)
    }
    rules = "\n".join(f"{name} = {value}" for name, value in rules.items())
    folder.mkdir(exist_ok=True)
    found = "max_exact_numbers = 3\n" + rules
    return open_sites(folder, tables, COLUMNS, ESTIMATORS, found)


def difference(covariance):
    """Return the square of the difference of two columns, summed over rows."""
    return N_TOTAL * (covariance @ [1, -1] @ [1, -1])


def by_pca(sites):
    return difference(
        FederatedPCA().fit(sites.rows(["before", "after"])).get_covariance()
    )


def by_line(sites):
    model = PrivateGLMMRegressor().fit(sites.rows(["before"]), y="after")
    return N_TOTAL * model.residual_scale_**2


def by_mixture(kind, **options):
    def ask(sites):
        rows = sites.rows(["before", "after"])
        options_of_all = {"covariance_type": kind, "reg_covar": 0.0} | options
        model = PPEMGaussianMixture(1, **options_of_all).fit(rows)
        return difference(np.reshape(model.covariances_, (2, 2)))

    return ask


def by_network(sites, *given):
    """Return what is left of a column in a network of both kinds."""
    edges = [(one, "after") for one in ("before", *given)]
    network = FederatedBayesianNetwork(
        states=dict.fromkeys(["before", "after"], "continuous"),
        search_params={"required_edges": edges},
        count_params={"alpha": 0.0},
    ).fit(sites.rows(["before", "after", *given]))
    return N_TOTAL * network.network_.variances["after"]


ASKED = {
    "PCA": by_pca,
    "line": by_line,
    "mixture": by_mixture("full"),
    "tied": by_mixture("tied"),
    "start of a mixture": by_mixture("full", max_iter=0),
    "network": by_network,
}


def without_shares(monkeypatch):
    """The twin: no site compares its rows with the products of all."""
    for room in ROOMS:
        monkeypatch.setattr(room, "check_shares", lambda *_: None)


@pytest.mark.parametrize("name", ASKED)
def test_attack_columns_that_differ_in_one_row(tmp_path, monkeypatch, name):
    sites, ask = open_with(tmp_path, 1), ASKED[name]
    with pytest.raises(PartyError) as caught:
        ask(sites)
    assert caught.value.code == "too-few-rows"
    assert caught.value.columns == ("after", "before")
    # columns that differ in more rows
    ask(open_with(tmp_path / "five", 5))
    # the twin: the square of what was corrected
    without_shares(monkeypatch)
    assert ask(sites) == pytest.approx(4.0**2, rel=0.01)


def test_attack_columns_that_differ_in_one_row_of_a_configuration(
    tmp_path, monkeypatch
):
    """Of those who died, one; of the others, many."""

    def open_when(folder, n_dead):
        rng = np.random.default_rng(0)
        before, died = rng.normal(size=(3, N_ROWS)), rng.random((3, N_ROWS)) < 0.4
        changed = ~died
        changed[0, np.flatnonzero(died[0])[:n_dead]] = True
        after = before + np.where(changed, rng.choice([-4.0, 4.0], changed.shape), 0.0)
        tables = {
            name: [[*row, "yes" if y else "no"] for row, y in zip(rows.tolist(), dead)]
            for name, rows, dead in zip(NAMES, np.dstack([before, after]), died)
        }
        folder.mkdir(exist_ok=True)
        rules = "max_exact_numbers = 3"
        return open_sites(folder, tables, COLUMNS, ESTIMATORS, rules), died.sum()

    sites, n_died = open_when(tmp_path, 1)
    with pytest.raises(PartyError) as caught:
        by_network(sites, "died")
    assert (caught.value.code, caught.value.columns) == ("too-few-rows", ALL)
    by_network(open_when(tmp_path / "five", 5)[0], "died")
    without_shares(monkeypatch)
    found = by_network(sites, "died")[1] / N_TOTAL * n_died
    assert found == pytest.approx(4.0**2, rel=0.01)


def test_attack_such_a_row_that_only_em_takes(tmp_path, monkeypatch):
    """It has a gap in another column; sites that fill gaps tell small counts."""
    rng = np.random.default_rng(0)
    before, other = rng.normal(size=(2, 3, N_ROWS))
    after, gaps = before.copy(), rng.random(other.shape) < 0.2
    after[0, 7] += 4.0
    gaps[0, 7] = True
    tables = {
        name: [[x, y, "" if gap else z] for x, y, z, gap in zip(*columns)]
        for name, *columns in zip(
            NAMES, before.tolist(), after.tolist(), other.tolist(), gaps.tolist()
        )
    }
    columns = {"before": '"float"', "after": '"float"', "other": '"float"'}
    rules = "max_exact_numbers = 3\nmin_cell_count = 1"
    sites = open_sites(tmp_path, tables, columns, ESTIMATORS, rules)

    def left():
        network = FederatedBayesianNetwork(
            states=dict.fromkeys(columns, "continuous"),
            missing="em",
            search_params={"required_edges": [("before", "after")]},
            count_params={"alpha": 0.0},
        ).fit(sites.rows(list(columns)))
        return N_TOTAL * network.network_.variances["after"]

    with pytest.raises(PartyError) as caught:
        left()
    assert caught.value.columns == ("after", "before")
    without_shares(monkeypatch)
    assert left() == pytest.approx(4.0**2, rel=0.01)


@pytest.mark.parametrize("learner", [FederatedNotearsADMM, FederatedDynotears])
def test_attack_a_consensus_on_columns_that_differ_in_one_row(
    tmp_path, monkeypatch, learner
):
    def left(sites, threshold=0.5):
        rows = sites.rows(["before", "after"])
        network = learner(threshold=threshold).fit(rows).network_
        return N_TOTAL * np.min(network.variances)

    sites = open_with(tmp_path, 1)
    for threshold in (0.5, 10.0):  # weights are told that are cut, too
        with pytest.raises(PartyError) as caught:
            left(sites, threshold)
        assert (caught.value.code, caught.value.columns) == ("too-few-rows", ("after",))
    left(open_with(tmp_path / "five", 5))
    monkeypatch.setattr(
        _admm, "rows_of_sizes", lambda rows, w: np.full((2, rows.shape[1]), 400.0)
    )
    assert left(sites) == pytest.approx(4.0**2, rel=0.1)


def test_attack_a_vote_on_columns_that_differ_in_one_row(tmp_path, monkeypatch):
    """Other sites have more of them: a vote is about the rows of one."""
    rng = np.random.default_rng(0)
    before = rng.normal(size=(3, N_ROWS))
    after = before.copy()
    after[0, 7] += 4.0
    after[1:, :100] += rng.choice([-4.0, 4.0], (2, 100))
    tables = {
        name: [[*row, "no"] for row in rows.tolist()]
        for name, rows in zip(NAMES, np.dstack([before, after]))
    }
    rules = "max_exact_numbers = 3"
    sites = open_sites(tmp_path, tables, COLUMNS, ESTIMATORS, rules)

    def n_votes(threshold):
        learner = VotingStructureLearner(Notears(threshold=threshold))
        return 3 * learner.fit(sites.rows(["before", "after"])).votes_.max()

    assert n_votes(0.5) == pytest.approx(2)
    without_shares(monkeypatch)
    assert n_votes(0.5) == pytest.approx(3)


@pytest.mark.parametrize("least", [0, 1])
def test_attack_where_small_counts_may_be_told(tmp_path, least):
    with pytest.raises(PartyError):
        by_pca(open_with(tmp_path / "one", 1, min_cell_count=least))
    by_pca(open_with(tmp_path / "two", 2, min_cell_count=least))


def test_attack_an_outcome_by_columns_that_differ_in_one_row(tmp_path, monkeypatch):
    """A coefficient that only one patient determines has the sign of the outcome."""

    def effect(sites):
        rows = sites.rows(["before", "after"])
        return PrivateGLMMClassifier().fit(rows, y="died").coef_.ravel()[1]

    sites = open_with(tmp_path, 1)
    with pytest.raises(PartyError) as caught:
        effect(sites)
    assert caught.value.columns == ("after", "before")
    effect(open_with(tmp_path / "five", 5))
    without_shares(monkeypatch)
    assert effect(sites) > 1


def spent(folder, cost):
    """Return sites where one of 26 old patients has costs, as many young ones have."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(20, 60, (3, N_ROWS)), rng.exponential(9, (3, N_ROWS))])
    X = np.moveaxis(X, 0, 2)
    X[0, :26, 0], X[0, :26, 1] = rng.uniform(90, 95, 26), 0.0
    X[0, 3, 1] = cost
    tables = {name: rows.round(3).tolist() for name, rows in zip(NAMES, X)}
    folder.mkdir(exist_ok=True)
    columns = {"age": '"float"', "cost": '"float"'}
    return open_sites(folder, tables, columns, ESTIMATORS, "max_exact_numbers = 3")


def cost_of_old(sites, kind):
    """Return the sum of the costs of a component, one step from sharp starts."""
    sharp = np.tile([1.0, 1e-6], (2, 1))
    model = PPEMGaussianMixture(
        2,
        covariance_type=kind,
        max_iter=1,
        means_init=[[60.0, 9.0], [92.0, 9.0]],
        weights_init=[0.5, 0.5],
        precisions_init=sharp if kind == "diag" else [np.diag(p) for p in sharp],
    ).fit(sites.rows())
    return N_TOTAL * model.weights_[1] * model.means_[1, 1]


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_attack_a_component_in_which_one_row_has_costs(tmp_path, monkeypatch, kind):
    sites = spent(tmp_path, 31.25)
    with pytest.raises(PartyError) as caught:
        cost_of_old(sites, kind)
    assert (caught.value.code, caught.value.columns) == ("too-few-rows", ("cost",))
    without_shares(monkeypatch)
    assert cost_of_old(sites, kind) == pytest.approx(31.25, rel=1e-3)


def value_by_functions(sites, monkeypatch):
    """Return the value of an outlier, by functions that are combined to be zero nearby.

    What is left of a column after its bounded functions is that of rows far out.
    """
    told, learn = [], _federated.learn_moments
    monkeypatch.setattr(
        _federated,
        "learn_moments",
        lambda *arguments: told.append(learn(*arguments)) or told[-1],
    )
    FederatedGaussianBayesianNetwork(basis="sigmoid").fit(sites.rows(["cost", "age"]))
    (moments, found), size = told[0], slice(0, N_FUNCTIONS)
    products = N_TOTAL * symmetric(found["functions"])[size, size]
    known = np.random.default_rng(1).normal(size=(100_000, 1))
    functions = expand(known, "sigmoid")
    fitted = np.linalg.lstsq(np.c_[functions[:, 1:], np.ones(len(known))], known)[0]
    left = np.append(1.0, -fitted[:-1, 0])
    values = np.linspace(4, 20, 1601)[:, None]
    squares = (expand(values, "sigmoid") @ left - fitted[-1, 0]) ** 2
    # but for what is left of the others
    rest = N_TOTAL * np.mean((functions @ left - fitted[-1, 0]) ** 2)
    scale = np.sqrt(moments.covariance[0, 0])
    nearest = np.abs(squares - (left @ products @ left - rest)).argmin()
    return values[nearest].item() * scale + moments.mean[0]


def test_attack_functions_of_a_column_that_leave_one_row(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, N_ROWS, 2))
    X[0, 7, 0] = 10.0
    columns = {"cost": '"float"', "age": '"float"'}

    def sites(folder, X):
        folder.mkdir()
        tables = {name: rows.tolist() for name, rows in zip(NAMES, X)}
        rules = "max_exact_numbers = 3"
        return open_sites(folder, tables, columns, ESTIMATORS, rules)

    hidden = sites(tmp_path / "outlier", X)
    with pytest.raises(PartyError) as caught:
        value_by_functions(hidden, monkeypatch)
    assert (caught.value.code, caught.value.columns) == ("too-few-rows", ("cost",))
    value_by_functions(sites(tmp_path / "none", np.clip(X, -3, 3)), monkeypatch)
    without_shares(monkeypatch)
    assert value_by_functions(hidden, monkeypatch) == pytest.approx(10.0, abs=0.5)


def me_with(min_rows, min_cell_count, **options):
    names = ("a", "b")
    limits = {"min_rows": min_rows, "min_cell_count": min_cell_count}
    return Me({}, Terms(), "a", names, **limits, **options)


def refuses(me, rows, products, columns=()):
    try:
        check_shares(me, [rows[:1], rows[1:]], products, columns)
    except PartyRefusal as refusal:
        return refusal.columns
    return None


@pytest.mark.parametrize(("least", "most"), [(5, 4.5**-0.5), (1, 1.5**-0.5)])
@pytest.mark.parametrize("off", [-1e-6, 1e-6])
def test_the_boundary(least, most, off):
    """Along a column, a diagonal, and of squares alone."""
    me, share = me_with(20, least), np.sqrt(most + off)
    few = off > 0
    for row in ([share, 0.0], [0.0, share]):
        rows = np.array([[0.1, 0.1], row])
        assert (refuses(me, rows, np.eye(2)) is not None) is few
        assert (refuses(me, rows, np.ones(2)) is not None) is few
        assert (refuses(me, 3 * rows, 9 * np.eye(2)) is not None) is few
    both = np.array([[0.0, 0.0], [share / 2**0.5, share / 2**0.5]])
    assert (refuses(me, both, np.eye(2)) is not None) is few
    assert refuses(me, both, np.ones(2)) is None
    assert refuses(me_with(1, 0), both, np.eye(2)) is None
    assert refuses(me_with(20, least, is_simulated=True), both, np.eye(2)) is None


def test_columns_that_belong_together_are_named():
    me, rng = me_with(20, 5), np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    X[:, 3] = X[:, 0] + X[:, 1]
    assert refuses(me, X, X.T @ X) is None  # rounding is nobody's
    X[9, 3] += 3.0
    assert refuses(me, X, X.T @ X) == (0, 1, 3)
    assert refuses(me, X, X.T @ X, [None, "x", 0, "y"]) == ("x", "y")
    assert refuses(me, np.zeros((9, 2)), np.zeros((2, 2))) is None


def died_near_boundary(folder, died, n_near=1):
    """Return sites with a flag that few have of whom a model is not sure who died."""
    rng = np.random.default_rng(0)
    dose = 6 * rng.normal(size=(3, N_ROWS))
    dead = rng.random(dose.shape) < 1 / (1 + np.exp(-1.5 * dose))
    flag = np.zeros(dose.shape)
    sure = tuple(np.argwhere(np.abs(dose) > 8)[:59].T)
    flag[sure], dead[sure] = 1.0, dose[sure] > 0
    near = slice(7, 7 + n_near)
    flag[0, near], dose[0, near], dead[0, near] = 1.0, 0.3, np.arange(n_near) % 2 ^ died
    tables = {
        name: [[*row, "yes" if y else "no"] for row, y in zip(rows.tolist(), of_site)]
        for name, rows, of_site in zip(NAMES, np.dstack([dose, flag]), dead)
    }
    columns = {"dose": '"float"', "flag": '"float"', "died": COLUMNS["died"]}
    folder.mkdir(exist_ok=True)
    return open_sites(folder, tables, columns, ESTIMATORS, "max_exact_numbers = 3")


def test_attack_an_outcome_of_the_only_row_that_has_weight_at_the_end(
    tmp_path, monkeypatch
):
    def effect(sites):
        rows = sites.rows(["dose", "flag"])
        return PrivateGLMMClassifier().fit(rows, y="died").coef_.ravel()[1]

    both = [died_near_boundary(tmp_path / f"{died}", died) for died in (0, 1)]
    for sites in both:
        with pytest.raises(PartyError) as caught:
            effect(sites)
        assert (caught.value.code, caught.value.columns) == ("too-few-rows", ("flag",))
    assert abs(effect(died_near_boundary(tmp_path / "six", 0, 6))) < 2
    without_shares(monkeypatch)
    assert effect(both[0]) < -2 < 2 < effect(both[1])


def with_slopes(folder, n_rows, by):
    """Return sites where few rows of a ward, and many of others, were corrected.

    Outcomes of these few differ from others' by so much.
    """
    rng = np.random.default_rng(0)
    before, ward = rng.normal(size=(3, N_ROWS)), rng.integers(3, size=(3, N_ROWS))
    changed = (ward > 0) & (rng.random(ward.shape) < 0.5)
    after = before + np.where(changed, rng.choice([-4.0, 4.0], changed.shape), 0.0)
    stay = before + rng.normal(size=before.shape) / 2
    few = np.flatnonzero(ward[0] == 0)[:n_rows]
    after[0, few], stay[0, few] = before[0, few] + 4.0, stay[0, few] + by
    wards = np.array([*"abc"])[ward]
    tables = {
        name: list(zip(*columns))
        for name, *columns in zip(NAMES, before, after, stay, wards)
    }
    columns = dict.fromkeys(("before", "after", "stay"), '"float"')
    columns |= {"ward": '["a", "b", "c"]'}
    folder.mkdir(exist_ok=True)
    return open_sites(folder, tables, columns, ESTIMATORS, "max_exact_numbers = 3")


def test_attack_a_slope_of_a_cluster_that_is_one_rows(tmp_path, monkeypatch):
    def slope(sites):
        slopes = {"slopes": ["before", "after"], "effect_params": {"correlated": False}}
        model = PrivateGLMMRegressor(**slopes)
        model.fit(sites.rows(["before", "after"]), y="stay", cluster="ward")
        return model.random_effects_[0, 2]

    both = [with_slopes(tmp_path / f"{by}", 1, by) for by in (-5.0, 5.0)]
    for sites in both:
        with pytest.raises(PartyError) as caught:
            slope(sites)
        assert caught.value.code == "too-few-rows"
        assert caught.value.columns == ("after", "before", "ward")
    assert slope(with_slopes(tmp_path / "five", 5, 5.0)) > 0.5
    # the twin: on which side the outcome of one patient is
    without_shares(monkeypatch)
    assert slope(both[0]) < -0.5 < 0.5 < slope(both[1])
