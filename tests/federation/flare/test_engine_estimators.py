"""The other estimators on NVIDIA FLARE, each once, against the fit in one process."""

import json
import shutil
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skprivbn.crypto import MaskingBackend
from skprivbn.federation import decode
from skprivbn.federation.flare import LocalFederation
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    VotingStructureLearner,
)
from tests.federation.flare.hospitals import (
    NAMES,
    make_rows,
    outcome,
    own_columns,
    site_files,
    write_tables,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

X, WARD, PARTY, PEOPLE = make_rows()
LABELS = np.array(["surgery", "medicine"])[WARD]
#: the wards of different hospitals are different wards
SERIES = np.char.add(PARTY, LABELS)
BUDGET = "budget = {epsilon = 10.0, delta = 1e-5}"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    folder = tmp_path_factory.mktemp("engine")
    write_tables(folder / "data", X, WARD, PARTY, PEOPLE)
    texts = {
        name: 'results = "results"\n' + text
        for name, text in site_files(path=folder / "data", budget=BUDGET).items()
    }
    with (
        LocalFederation(folder / "federation", texts) as local,
        local.connect("icu", ready_within=120.0) as federation,
    ):
        federation.local = local
        yield federation


def test_transformers_in_a_pipeline(session):
    rows, local = session.rows(["a", "b"]), HorizontalPartition.from_rows(X, PARTY)

    def pipeline():
        return make_pipeline(
            FederatedStandardScaler(),
            FederatedPCA(),
            PPEMGaussianMixture(2, random_state=0),
        )

    remote, expected = pipeline().fit(rows), pipeline().fit(local)
    np.testing.assert_array_equal(remote[0].mean_, expected[0].mean_)
    np.testing.assert_allclose(remote[1].components_, expected[1].components_)
    np.testing.assert_allclose(remote[2].means_, expected[2].means_, atol=1e-9)
    assert remote.score(rows) == pytest.approx(expected.score(X), abs=1e-9)


def test_edges_of_bins(session):
    remote = FederatedKBinsDiscretizer(4).fit(session.rows(["a", "b"]))
    # as the site files have it
    local = FederatedKBinsDiscretizer(4, min_rows=5).fit(X, party=PARTY)
    for mine, theirs in zip(remote.bin_edges_, local.bin_edges_):
        np.testing.assert_array_equal(mine, theirs)


def test_mixed_model(session):
    rows = session.rows(["a", "b"])
    remote = PrivateGLMMClassifier().fit(rows, y="died", cluster="ward")
    local = PrivateGLMMClassifier().fit(X, outcome(X), cluster=LABELS, party=PARTY)
    np.testing.assert_allclose(remote.coef_, local.coef_, rtol=1e-9)
    np.testing.assert_allclose(remote.random_effects_, local.random_effects_)
    assert remote.score(rows, "died", cluster="ward") == pytest.approx(
        local.score(X, outcome(X), cluster=LABELS)
    )


def test_dynamic_network(session):
    rows = session.rows(["a", "b"])
    remote = FederatedDynotears(max_iter=3).fit(rows, series="ward")
    local = FederatedDynotears(max_iter=3).fit(X, series=SERIES, party=PARTY)
    np.testing.assert_allclose(remote.weights_, local.weights_, atol=1e-12)
    partition = HorizontalPartition.from_rows(X, PARTY, series=SERIES)
    assert remote.score(rows, series="ward") == pytest.approx(
        local.score(partition), abs=1e-9
    )
    file = remote.predict(rows, series="ward").file
    assert (session.local.kits["west"] / "local" / "results" / file).exists()


def test_votes(session):
    learner = FederatedGaussianBayesianNetwork("bic")
    remote = VotingStructureLearner(learner).fit(session.rows(["a", "b"]))
    local = VotingStructureLearner(learner).fit(X, party=PARTY)
    np.testing.assert_array_equal(remote.votes_, local.votes_)


def test_collective_network(session):
    columns = own_columns(session, list(PEOPLE))
    table = np.column_stack(list(PEOPLE.values()))
    split = VerticalPartition(
        {"north": table[:, :2], "south": table[:, 2:]}, columns.columns
    )
    states = dict.fromkeys(PEOPLE, [0, 1])
    remote = CollectiveBayesianNetwork(random_state=0).fit(columns)
    local = CollectiveBayesianNetwork(random_state=0, states=states).fit(split)
    np.testing.assert_array_equal(
        remote.network_.adjacency_matrix, local.network_.adjacency_matrix
    )
    tables = zip(remote.network_.cpts.values(), local.network_.cpts.values())
    for mine, theirs in tables:
        np.testing.assert_allclose(mine, theirs)
    assert remote.score(columns) == pytest.approx(local.score(table), abs=1e-6)


def test_gaussian_network_of_columns(session):
    columns = own_columns(session, list(PEOPLE), keys="person", reveal_membership=True)
    table = np.column_stack(list(PEOPLE.values()))
    model = FederatedGaussianBayesianNetwork("bic").fit(columns)
    local = FederatedGaussianBayesianNetwork("bic").fit(
        table, party=PARTY[: len(table)]
    )
    np.testing.assert_array_equal(model.cpdag_, local.cpdag_)
    assert model.score(columns) == pytest.approx(model.score(table), abs=1e-3)


def test_noisy_tables_are_charged_at_the_sites(session):
    rows = session.rows(["ward", "died"])
    states = [(0, 1), (0, 1)]
    model = DPCGMLearner(epsilon=8.0, cliques=[(0, 1)], states=states).fit(rows)
    exact = np.histogram2d(WARD, outcome(X), bins=2)[0] / len(X)
    # noise of a few counts in 180 rows; false alarms are rarer than one in a million
    np.testing.assert_allclose(model.marginal([0, 1]), exact, atol=0.1)
    log = session.local.kits["west"] / "local" / "skprivbn_audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [e["epsilon"] for e in entries if e.get("epsilon")] == [8.0]


def test_predictions_stay_at_the_sites(session):
    rows = session.rows(["a", "b"])
    model = PPEMGaussianMixture(2, random_state=0).fit(rows)
    results = model.predict(rows)
    for name in NAMES:
        path = session.local.kits[name] / "local" / "results" / results.file
        kept = path.read_text().splitlines()[1:]
        mine = model.predict(X[np.flatnonzero(name == PARTY)])
        assert kept == [f"p{i},{label}" for i, label in enumerate(mine)]
    elsewhere = [
        path
        for name in ("server", "admin")
        for path in session.local.kits[name].rglob(results.file)
    ]
    assert not elsewhere


@contextmanager
def killed_when_told(federation, local, name, word):
    """Kill a site just before it is told something of this kind."""
    relay = federation._relay.ask

    def lethal(topic, messages, timeout):
        told = [decode(message).get("payload", {}) for message in messages.values()]
        if any(word in payload for payload in told) and local.family(name):
            local.signal(name, signal.SIGKILL)
        return relay(topic, messages, timeout)

    federation._relay.ask = lethal
    yield
    federation._relay.ask = relay


def test_a_sum_that_recovers_goes_on_without_a_killed_site(tmp_path):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    # of four sites three are enough, of three none may be lost
    write_tables(tmp_path / "data", X, WARD, PARTY, PEOPLE)
    shutil.copytree(tmp_path / "data" / "west", tmp_path / "data" / "east")
    texts = site_files(path=tmp_path / "data")
    texts["east"] = texts["west"].replace("data/west", "data/east")
    for name, text in texts.items():
        texts[name] = text.replace("peers = [", 'peers = ["east", ')
    with (
        LocalFederation(tmp_path / "federation", texts) as local,
        local.connect("icu", ready_within=120.0, timeout=10.0) as federation,
    ):
        scaler = FederatedStandardScaler(
            with_std=False, backend=MaskingBackend(recovery=True)
        )
        with killed_when_told(federation, local, "south", "shares"):
            scaler.fit(federation.rows(["a", "b"]))
    rest = [X[np.flatnonzero(name == PARTY)] for name in ("north", "west", "west")]
    np.testing.assert_allclose(scaler.mean_, np.vstack(rest).mean(axis=0), rtol=1e-9)
    assert any("south was lost" in note for note in scaler.ledger_.notes)
