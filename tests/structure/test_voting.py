import numpy as np
import pytest

from skprivbn.datasets import make_linear_sem
from skprivbn.federation.site._state import SiteState
from skprivbn.structure import Notears, VotingStructureLearner
from skprivbn.structure.gaussian._scores import FeatureMoments, graph_score
from tests.federation.site.loopback import open_sites


@pytest.mark.parametrize("backend", ["masking", "ckks"])
@pytest.mark.parametrize("seed", range(3))
def test_best_is_the_graph_that_explains_all_rows_best(seed, backend):
    X, _ = make_linear_sem(130, 5, random_state=seed)
    party = np.repeat(["a", "b", "c"], [20, 30, 80])
    graphs = [Notears().fit(X[party == k]).adjacency_matrix_ for k in "abc"]
    moments = FeatureMoments.linear(np.cov(X.T, bias=True), 130)
    scores = [graph_score(moments, g, equal_variances=False) for g in graphs]
    learner = VotingStructureLearner(strategy="best", backend=backend)
    model = learner.fit(X, party=party)
    expected = graphs[int(np.argmax(scores))]
    assert min(scores) < max(scores)
    np.testing.assert_array_equal(model.adjacency_matrix_, expected)
    np.testing.assert_array_equal(model.votes_, expected)
    assert model.network_.weights[expected].all()


def test_a_party_without_variation_does_not_win():
    X, _ = make_linear_sem(100, 4, random_state=1)
    party = np.repeat(["a", "b", "c"], [1, 49, 50])
    model = VotingStructureLearner(strategy="best").fit(X, party=party)
    assert model.adjacency_matrix_.any()


def test_best_at_sites_is_that_of_the_same_rows_here(tmp_path):
    X = make_linear_sem(600, 3, random_state=0)[0].round(3)
    names = ("north", "south", "west")
    tables = {name: rows.tolist() for name, rows in zip(names, np.split(X, 3))}
    kinds = dict.fromkeys("abc", '"float"')
    sites = open_sites(tmp_path, tables, kinds, ["VotingStructureLearner"])
    learner = VotingStructureLearner(strategy="best")
    found = learner.fit(sites.rows()).adjacency_matrix_
    here = learner.fit(X, party=np.repeat(names, 200)).adjacency_matrix_
    assert here.any()
    np.testing.assert_array_equal(found, here)


def bisect_vote(rows, low, high):
    """Read the weight that one site gives to an edge: above it, the vote is lost."""
    while high - low > 0.01:
        middle = (low + high) / 2
        learner = Notears(lambda1=0.0, threshold=middle)
        votes = VotingStructureLearner(learner).fit(rows).votes_[0, 1]
        low, high = (middle, high) if votes > 0 else (low, middle)
    return low


def open_hospitals(folder, n_north=1, rules=""):
    """Return sites with many sick patients, of whom few are in the north."""
    rng = np.random.default_rng(0)
    tables = {}
    for name, n_sick in zip(("north", "south", "west"), (n_north, 30, 30)):
        sick = np.arange(60) < n_sick
        tables[name] = np.column_stack([sick, rng.normal(50, 2, 60).round(2)])
    tables["north"][:n_north, 1] = 71.9
    known = {name: table.tolist() for name, table in tables.items()}
    kinds = {"sick": '"float"', "lactate": '"float"'}
    rules = f"max_exact_numbers = 100\n{rules}"
    sites = open_sites(folder, known, kinds, ["VotingStructureLearner"], rules)
    return sites.rows(), tables["north"]


@pytest.mark.filterwarnings("ignore:noise variances differ")
@pytest.mark.parametrize(("n_north", "votes"), [(1, False), (4, False), (5, True)])
def test_attack_a_vote_that_is_about_few_patients_of_a_site(tmp_path, n_north, votes):
    rows, _ = open_hospitals(tmp_path, n_north)
    learner = Notears(lambda1=0.0, threshold=1.5)
    assert VotingStructureLearner(learner).fit(rows).votes_.any() == votes


@pytest.mark.filterwarnings("ignore:noise variances differ")
def test_without_a_look_at_own_cells_the_patient_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("skprivbn.structure._voting.check_alone", lambda *_: None)
    rows, north = open_hospitals(tmp_path)
    found = bisect_vote(rows, 1.5, 50.0) + north[1:, 1].mean()
    assert found == pytest.approx(71.9, abs=0.1)


@pytest.mark.filterwarnings("ignore:noise variances differ")
@pytest.mark.parametrize("least", [0, 1, 2])
def test_attack_a_vote_where_small_counts_may_be_told(tmp_path, least):
    rows, _ = open_hospitals(tmp_path, rules=f"min_cell_count = {least}")
    learner = Notears(lambda1=0.0, threshold=1.5)
    assert not VotingStructureLearner(learner).fit(rows).votes_.any()


@pytest.mark.filterwarnings("ignore:noise variances differ")
def test_votes_tell_a_coefficient_of_a_site_for_as_many_numbers(tmp_path):
    """What is left to a researcher: it is about five patients, and fits are counted."""
    rows, north = open_hospitals(tmp_path, 5, "round_results = 17")
    found = bisect_vote(rows, 1.5, 50.0) + north[5:, 1].mean()
    assert found == pytest.approx(71.9, abs=0.1)
    state = SiteState(tmp_path / "north" / "skprivbn_state")
    ((_, n_numbers),) = state.told("icu").values()
    assert n_numbers > 12 * 3
