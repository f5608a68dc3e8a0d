"""Parameters that would take a site's memory are refused before data are read."""

from contextlib import suppress

import numpy as np
import pytest

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation._models import MODELS, describe_model, rebuild_model
from skprivbn.federation._party import PartyRefusal
from skprivbn.federation.site._demands import (
    _COSTS,
    _MODEL_SIZES,
    MAX_PER_ROW,
    check_demands,
)
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.graphical_model._shared_tree import TreeParty
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites
from tests.federation.test_remote_guide import CASES

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


@pytest.fixture
def rows(tmp_path):
    write_tables(tmp_path, *make_rows())
    files = site_files(max_exact_fits=1, budget="budget = {epsilon = 1.0}")
    return connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])


def refused(attempt, *arguments):
    with pytest.raises(PartyError) as caught:
        attempt(*arguments)
    return caught.value.code


#: with two features
LARGEST = {
    "batch_size": 4096,
    "n_burn_in": 4096,
    "n_components": 4096,
    "n_draws": 4096,
    "n_free": 2**24,
    "n_hidden": 2048,
    "n_lags": 2048,
    "n_maps": 2048,
    "n_quadrature": 4096,
    "n_states": 4096,
    "n_variables": 4096,
}


@pytest.mark.parametrize("name", _COSTS)
def test_the_largest_that_is_accepted(name):
    largest = LARGEST[name]
    for value in (0, largest, None):
        check_demands({name: value}, [], 2)
        check_demands({"nested": {name: value}}, [], 2)
    for value in (largest + 1, 2**62, float("inf"), float("nan")):
        for settings in ({name: value}, {"nested": {name: value}}):
            with pytest.raises(PartyRefusal, match="too-large"):
                check_demands(settings, [], 2)


def test_components_with_many_features():
    check_demands({"n_components": 2**10}, [], 2**7)
    with pytest.raises(PartyRefusal, match="too-large"):
        check_demands({"n_components": 2**10 + 1}, [], 2**7)


def test_a_site_with_many_columns_has_chosen_them():
    n_features = 2 * MAX_PER_ROW
    check_demands({"n_variables": n_features, "n_lags": 0}, [], n_features)
    with pytest.raises(PartyRefusal, match="too-large"):
        check_demands({"n_variables": n_features + 1}, [], n_features)


@pytest.mark.parametrize(
    "estimator",
    [
        PPEMGaussianMixture(MAX_PER_ROW + 1),
        PPEMGaussianMixture(MAX_PER_ROW + 1, epsilon=0.1, bounds=(-9, 9)),
        FederatedDynotears(MAX_PER_ROW),
    ],
    ids=["components", "noisy components", "lags"],
)
def test_a_fit_that_asks_for_too_much_costs_nothing(rows, estimator):
    assert refused(estimator.fit, rows) == "too-large"
    assert FederatedPCA().fit(rows).n_features_in_ == 2


def test_models_count_too(rows):
    X, _, party, _ = make_rows()
    model = PPEMGaussianMixture(2, backend="masking", random_state=0)
    model.fit(X, party=party)
    k = MAX_PER_ROW + 1
    model.weights_, model.means_ = np.full(k, 1 / k), np.zeros((k, 2))
    model.covariances_ = np.tile(np.eye(2), (k, 1, 1))
    assert refused(model.score, rows) == "too-large"
    assert refused(model.predict, rows) == "too-large"
    pca = FederatedPCA().fit(X, party=party)
    step = describe_model(pca)
    step["fitted"] |= {"components": np.ones((k, 2)), "variances": np.ones(k)}
    wide = rows.transformed(step, [f"pca{i}" for i in range(k)])
    assert refused(FederatedPCA().fit, wide) == "too-large"
    assert set(_MODEL_SIZES) < set(MODELS)


def tables(n_states, cliques, ties):
    return {
        "states": [list(range(n)) for n in n_states],
        "cliques": cliques,
        "ties": ties,
    }


def test_tables():
    n = 256
    check_demands(tables([n] * 4, [[0, 1, 2]], [0]), [], 4)
    for hostile in (
        tables([n] * 4, [[0, 1, 2], [0, 1, 3]], [0, 1]),
        tables([n] * 4, [[0, 1, 2, 3]], [0]),
        # numbers of tables that are not there
        tables([2, 2], [[0, 1]], [2**40]),
        tables([2, 2], [[0, 1]], [-1]),
    ):
        with pytest.raises(PartyRefusal, match="too-large"):
            check_demands(hostile, [], 4)


def test_tables_of_all_pairs_are_those_that_were_looked_at(tmp_path, monkeypatch):
    write_tables(tmp_path, *make_rows())
    files = site_files(budget="budget = {epsilon = 10.0, delta = 1e-5}")
    rows = connect(make_sites(tmp_path, files), "icu").rows(["ward", "died"])
    federate = RemoteRows.federate

    def hostile(self, party_class, settings, *arguments, **options):
        assert party_class is TreeParty
        settings = settings | {"cliques": [[0]], "ties": [0]}
        return federate(self, party_class, settings, *arguments, **options)

    def model():
        states = [(0, 1), (0, 1)]
        return DPCGMLearner(epsilon=1.0, delta=1e-6, cliques="mst", states=states)

    model().fit(rows)
    monkeypatch.setattr(RemoteRows, "federate", hostile)
    assert refused(model().fit, rows) == "refused"


def test_a_field_that_cannot_be_summed_over():
    nodes = [f"x{i}" for i in range(26)]
    states = dict.fromkeys(nodes, (0, 1))
    pairs = [(u, v) for i, u in enumerate(nodes) for v in nodes[:i]]
    tree = list(zip(nodes, nodes[1:]))

    def model(cliques, inference):
        estimator = DPCGMLearner()
        estimator.network_ = MarkovRandomField(
            nodes, states, {clique: np.zeros((2, 2)) for clique in cliques}, inference
        )
        return describe_model(estimator)

    assert rebuild_model(model(tree, "exact"), 26).network_.nodes == tuple(nodes)
    assert rebuild_model(model(pairs, "loopy"), 26).network_.nodes == tuple(nodes)
    with pytest.raises(PartyRefusal, match="too-large"):
        rebuild_model(model(pairs, "exact"), 26)


#: whole numbers among the settings that do not make anything larger
HARMLESS = {
    "max_iter",
    "max_records",
    "max_weight",
    "min_cell_count",
    "min_honest",
    "min_parties",
    "min_rows",
    "n_init",
    "n_levels",
    "n_parties",
    "seed",
    "unit",
}


def whole_numbers(settings):
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from whole_numbers(value)
        elif type(value) is int:
            yield name


def test_every_whole_number_of_a_session_is_looked_at(tmp_path, monkeypatch):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    seen = set()

    def watch(self, party_class, settings, *arguments, **options):
        seen.update(whole_numbers(settings))
        raise InterruptedError

    monkeypatch.setattr(RemoteRows, "federate", watch)
    noisy = {"epsilon": 1.0, "bounds": (-9, 9)}
    more = [
        (FederatedNotearsADMM("mlp"), ["a", "b"], {}),
        (FederatedStandardScaler(**noisy), ["a", "b"], {}),
        (FederatedGaussianBayesianNetwork(**noisy), ["a", "b"], {}),
        (PPEMGaussianMixture(2, **noisy), ["a", "b"], {}),
    ]
    for estimator, names, beside in [*CASES, *more]:
        with suppress(InterruptedError, PartitionError):
            estimator.fit(federation.rows(names), **beside)
    assert seen - HARMLESS <= _COSTS.keys()
    assert {"n_components", "n_hidden", "n_lags", "n_quadrature", "n_draws"} <= seen
