"""Parameters that would take a site's memory are refused before data are read."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import Terms
from skprivbn.federation._models import describe_model, rebuild_model
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._rules import MAX_PER_ROW, check_memory
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.graphical_model._release import TablesTerms
from skprivbn.graphical_model._tables import Contribution
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from skprivbn.structure.admm._mlp import n_free_of_mlp
from skprivbn.structure.admm._program import ADMMTerms
from skprivbn.structure.admm._steps import ConsensusProblem
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites
from tests.federation.site.test_host_terms import EM
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


def admm_terms(**changes):
    n_hidden = changes.get("n_hidden", 0)
    n_free = n_free_of_mlp(2, n_hidden) if n_hidden else 0
    problem = ConsensusProblem(2, n_maps=n_hidden or 1, n_free=n_free)
    terms = {
        "problem": problem,
        "rho1": 1.0,
        "rho2": 1.0,
        "gamma1": 1.0,
        "gamma2": 1.0,
        "max_iter": 1,
        "tol": 0.0,
        "h_tol": 0.0,
        "threshold": 0.1,
    }
    return ADMMTerms(**terms | changes)


@pytest.mark.parametrize(
    "make, largest",
    [
        (lambda n: replace(EM, n_components=n), 4096),
        (lambda n: admm_terms(n_hidden=n), 2048),
        (lambda n: admm_terms(n_lags=n), 2048),
    ],
    ids=["components", "hidden units", "lags"],
)
def test_the_largest_that_is_accepted(make, largest):
    check_memory(make(largest), 2)
    with pytest.raises(PartyRefusal, match="too-large"):
        check_memory(make(largest + 1), 2)


def test_components_with_many_features():
    check_memory(replace(EM, n_components=2**10), 2**7)
    with pytest.raises(PartyRefusal, match="too-large"):
        check_memory(replace(EM, n_components=2**10 + 1), 2**7)


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


def tables(n_states, cliques, ties):
    return TablesTerms(
        nodes=[f"x{i}" for i in range(len(n_states))],
        states=[list(range(n)) for n in n_states],
        bins={},
        contribution=Contribution(),
        missing="error",
        epsilon=1.0,
        delta=0.0,
        min_honest=None,
        cliques=cliques,
        ties=ties,
    )


def test_tables():
    n = 256
    check_memory(tables([n] * 4, [[0, 1, 2]], [0]), 4)
    for cliques in ([[0, 1, 2], [0, 1, 3]], [[0, 1, 2, 3]]):
        with pytest.raises(PartyRefusal, match="too-large"):
            check_memory(tables([n] * 4, cliques, list(range(len(cliques)))), 4)
    # numbers of tables that are not there
    for ties in ([2**40], [-1]):
        with pytest.raises(ValueError, match="not there"):
            tables([2, 2], [[0, 1]], ties)


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


#: whole numbers among the terms that do not make anything larger
HARMLESS = {
    "max_iter",
    "max_parents",
    "min_cell_count",
    "min_honest",
    "min_parties",
    "min_rows",
    "n_variables",
    "seed",
    "min_cluster_rows",
}


def test_every_whole_number_of_a_session_is_looked_at(tmp_path, monkeypatch):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    seen = []

    def watch(self, party_class, terms, *arguments, **options):
        seen.append(terms)
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
    looked_at = set()
    for terms in seen:
        if not isinstance(terms, Terms):
            continue
        for field, value in terms.to_payload().items():
            if type(value) is not int or field in HARMLESS:
                continue
            looked_at.add(field)
            with pytest.raises((PartyRefusal, ValueError)):
                check_memory(replace(terms, **{field: 2**40}), 2)
                pytest.fail(f"{type(terms).__name__}.{field} costs nothing")
    assert {"n_components", "n_hidden", "n_lags"} <= looked_at
