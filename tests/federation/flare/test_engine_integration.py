"""The estimators on NVIDIA FLARE: separate processes, certificates, mutual TLS.

One session serves all tests: a job takes some seconds to start, a round about 30 ms.
"""

import json
import os
import warnings

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import FederatedPCA
from skprivbn.structure import FederatedNotearsADMM, PrivateK2StructureLearner
from tests.federation.flare.hospitals import MARKER, own_columns


def test_estimators_on_a_real_federation(hospitals, hospital_data):
    # One test, so that workers that run tests in parallel start one federation only.
    with hospitals.connect("icu", ready_within=120.0) as federation:
        check_mixture(federation, hospital_data)
        check_secure_covariance(federation, hospital_data)
        check_notears_admm(federation, hospital_data)
        check_private_k2(federation, hospital_data)
        check_that_a_refusal_names_the_site_and_the_session_goes_on(federation)
        check_that_what_a_site_stumbles_over_stays_there(federation, hospitals)
        check_processes_and_audit_log(federation, hospitals)


def check_mixture(federation, hospital_data):
    X, _, party, _ = hospital_data
    rows = federation.rows(["a", "b"])
    remote = PPEMGaussianMixture(3, random_state=0).fit(rows)
    local = PPEMGaussianMixture(3, random_state=0).fit(X, party=party)
    np.testing.assert_allclose(remote.means_, local.means_, rtol=1e-9)
    np.testing.assert_allclose(remote.covariances_, local.covariances_, rtol=1e-7)
    assert remote.n_iter_ == local.n_iter_
    assert remote.score(rows) == pytest.approx(local.score(X), abs=1e-9)
    notes = " ".join(remote.ledger_.notes)
    assert "authenticated by their certificates" in notes
    assert "simulation" not in notes


def check_secure_covariance(federation, hospital_data):
    X, _, party, _ = hospital_data
    remote = FederatedPCA().fit(federation.rows(["a", "b"]))
    local = FederatedPCA().fit(X, party=party)
    np.testing.assert_array_equal(remote.components_, local.components_)
    np.testing.assert_array_equal(remote.explained_variance_, local.explained_variance_)
    mine, theirs = (
        [
            # not their sizes: sites also count the rows behind a sum
            (e.operation, e.sender, e.receiver, e.kind, e.tells)
            for e in ledger.entries
            # the terms also name the remote data
            if (e.operation, e.sender) != ("session.join", "coordinator")
        ]
        for ledger in (remote.ledger_, local.ledger_)
    )
    assert mine == theirs


def check_notears_admm(federation, hospital_data):
    X, _, party, _ = hospital_data
    options = {"random_state": 0, "max_iter": 5}
    with warnings.catch_warnings():
        # few parties, few variables: the sums tell much, as the warning says
        warnings.simplefilter("ignore")
        remote = FederatedNotearsADMM(**options).fit(federation.rows(["a", "b"]))
        local = FederatedNotearsADMM(**options).fit(X, party=party)
    np.testing.assert_array_equal(remote.adjacency_matrix_, local.adjacency_matrix_)
    np.testing.assert_allclose(remote.weights_, local.weights_, atol=1e-12)


def check_private_k2(federation, hospital_data):
    people = hospital_data[3]
    columns = own_columns(federation, list(people))
    remote = PrivateK2StructureLearner(max_parents=1).fit(columns)
    local = PrivateK2StructureLearner(
        parties={"north": [0, 1], "south": [2]}, max_parents=1
    ).fit(np.column_stack(list(people.values())))
    np.testing.assert_array_equal(remote.adjacency_matrix_, local.adjacency_matrix_)
    assert remote.parents_["cough"] == ["smoker"]
    tables = zip(remote.network_.cpts.values(), local.network_.cpts.values())
    for mine, theirs in tables:
        np.testing.assert_array_equal(mine, theirs)


def check_that_a_refusal_names_the_site_and_the_session_goes_on(federation):
    rows = federation.rows(["a", "b"])
    with (
        pytest.warns(UserWarning, match="plaintext"),
        pytest.raises(PartyError, match="'north'.*not allow"),
    ):
        FederatedPCA(backend="plaintext").fit(rows)
    assert FederatedPCA().fit(rows).n_features_in_ == 2


def check_that_what_a_site_stumbles_over_stays_there(federation, hospitals):
    rows = RemoteRows(federation, "broken", federation.sites, {"a": "float"})
    with pytest.raises(PartyError) as caught:
        FederatedPCA().fit(rows)
    assert caught.value.code == "invalid-data"
    assert MARKER not in str(caught.value)
    holders = set()
    for name, kit in hospitals.kits.items():
        for path in kit.rglob("*"):
            if path.is_file() and MARKER.encode() in path.read_bytes():
                holders.add(name)
    # the sites' own logs may quote it; the server, the admin and the transcript not
    assert not holders & {"server", "admin"}


def check_processes_and_audit_log(federation, hospitals):
    pids = {process.pid for process in hospitals.processes.values()}
    assert len(pids) == 4
    assert os.getpid() not in pids
    log = hospitals.kits["south"] / "local" / "skprivbn_audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert {e["who"] for e in entries} == {"scientist@demo.org"}
    assert {e["job"] for e in entries} == {federation.job_id}
    asked = {name for e in entries for name in e.get("estimators", [])}
    assert {"PPEMGaussianMixture", "PrivateK2StructureLearner"} <= asked
