"""What exact moments tell beyond what they are for: attacks on real sites."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import gate
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure.gaussian import _program
from skprivbn.structure.gaussian._program import NetworkMomentsTerms, network_moments
from skprivbn.structure.gaussian._scores import expand
from tests.federation.site.loopback import open_sites
from tests.federation.test_gate_shares import without_shares

NAMES = ("north", "south", "west")
N_ROWS = 80


@pytest.fixture
def open_rows(tmp_path):
    """Return a function that gives three sites some rows, and a handle on them."""

    def open_it(tables, *columns):
        tables = dict(zip(NAMES, np.asarray(tables).tolist()))
        kinds = dict.fromkeys(columns, '"float"')
        learner = ["FederatedGaussianBayesianNetwork"]
        return open_sites(tmp_path, tables, kinds, learner).rows()

    return open_it


def code_of(ask, *arguments):
    with pytest.raises(PartyError) as caught:
        ask(*arguments)
    return caught.value.code


def count_values(rows, basis="polynomial"):
    """Solve products of powers of a column for how many rows have each value."""
    terms = NetworkMomentsTerms(basis=basis)
    with rows.federate(network_moments, terms, "masking") as federation:
        found = federation.run()
    values = np.arange(1.0, 7.0)
    scale = np.sqrt(found["covariance"][0, 0])
    known = expand((values[:, None] - found["mean"]) / scale, basis)
    # number of rows, and products of the five functions with the first, of mean zero
    equations = np.column_stack([np.ones(6), known[:, :1] * known]).T
    sums = np.append(1.0, found["functions"][:5]) * found["n_rows"][0]
    return np.linalg.solve(equations, sums)


def test_attack_powers_of_a_column_of_few_values(open_rows, monkeypatch):
    stays = np.tile(np.array([1.0, 2, 4, 5])[np.arange(N_ROWS) % 4], (3, 1))
    # in the middle: one of many stays would be most of a power, which the gate sees
    stays[0, 0] = 3
    rows = open_rows(stays[:, :, None], "stays")
    assert code_of(count_values, rows) == "too-detailed"
    # one defence alone: powers can be combined such that one row is left
    monkeypatch.setattr(_program, "check_few_values", lambda *arguments: None)
    assert code_of(count_values, rows) == "too-few-rows"
    # the twin: one has three stays
    without_shares(monkeypatch)
    np.testing.assert_allclose(count_values(rows), [59, 60, 1, 60, 60, 0], atol=1e-6)


def open_columns(folder, clinic, lab, rules=""):
    """Let two sites have columns about persons, who are numbered."""
    tables = {"clinic": clinic, "lab": lab}
    kinds = {
        name: {"person": '"key"'}
        | {f"{name}{i}": '"float"' for i in range(1, np.shape(rows)[1])}
        for name, rows in tables.items()
    }
    tables = {
        name: [[f"p{row[0]:.0f}", *row[1:]] for row in rows]
        for name, rows in tables.items()
    }
    learner = ["FederatedGaussianBayesianNetwork"]
    sites = open_sites(folder, tables, kinds, learner, rules)
    columns = [c for names in kinds.values() for c in names if c != "person"]
    return sites.columns(columns, keys="person", reveal_membership=True)


def test_attack_few_of_the_records_that_all_have(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    persons = np.arange(60)
    clinic = np.column_stack([persons, rng.normal(size=60), persons % 3 == 0])
    lab = np.column_stack([persons, rng.normal(size=60)])
    lab = np.vstack([lab[persons % 3 > 0], lab[9]])
    columns = open_columns(tmp_path, clinic, lab)
    model = FederatedGaussianBayesianNetwork("bic")
    assert code_of(model.fit, columns) == "too-few-rows"
    # one defence alone: the row is also all of the squares along its column
    monkeypatch.setattr(gate, "check_cells", lambda *arguments: None)
    assert code_of(model.fit, columns) == "too-few-rows"
    # the twin: one of those whom the lab knows has what the clinic treats
    monkeypatch.setattr(gate, "check_shares", lambda *arguments: None)
    model.fit(columns)
    assert model.network_.mean[1] * len(lab) == pytest.approx(1)


def test_attack_more_moments_than_records(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = [np.column_stack([np.arange(32), rng.normal(size=(32, 2))])] * 2
    model = FederatedGaussianBayesianNetwork("bic")
    # the number of records, four means and a covariance of four columns
    n_told = 1 + 4 + 16
    columns = {}
    for n_numbers in (n_told - 1, n_told):
        folder = tmp_path / str(n_numbers)
        folder.mkdir()
        rule = f"max_exact_numbers = {n_numbers / 32}"
        columns[n_numbers] = open_columns(folder, *tables, rule)
    assert code_of(model.fit, columns[n_told - 1]) == "budget-exceeded"
    assert model.fit(columns[n_told]).n_features_in_ == 4
    # over the life of the data, not for each fit
    assert code_of(model.fit, columns[n_told]) == "budget-exceeded"
    # the twin: a site that does not count
    monkeypatch.setattr("skprivbn.federation.runner.count_numbers", lambda result: 0)
    assert model.fit(columns[n_told - 1]).n_features_in_ == 4


def rows_behind(products, n_rows):
    """Solve sums of products of drawn rows for the rows, whatever was drawn.

    Every sum is a combination of as many matrices of rank one as there are rows; there
    are no others in their span (De Lathauwer et al., FOOBI, 2007).
    """
    d = products.shape[1]
    E = np.linalg.svd(products.reshape(len(products), -1))[2][:n_rows]
    E = E.reshape(n_rows, d, d)
    i, j = np.triu_indices(n_rows)
    minors = np.einsum("sij,tkl->stijkl", E, E) - np.einsum("sik,tjl->stijkl", E, E)
    minors = (minors + minors.swapaxes(0, 1))[i, j].reshape(len(i), -1)
    zeros = np.linalg.eigh(minors @ minors.T)[1][:, :n_rows]
    solved = np.zeros((n_rows, n_rows, n_rows))
    solved[:, i, j] = zeros.T
    solved += solved.swapaxes(1, 2)
    one, other = np.einsum("kn,nij->kij", np.eye(2, n_rows) + 0.1, solved)
    mixing = np.linalg.eig(one @ np.linalg.inv(other))[1].real
    found = np.einsum("sr,sij->rij", mixing, E)
    return found[:, 0, 1:] / found[:, :1, 0]


def test_attack_sums_of_rows_that_a_party_draws_again():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(3 * 15, 6))
    party = np.repeat(NAMES, 15)
    learner = FederatedGaussianBayesianNetwork("lingam", random_state=0)
    before = learner.fit(X, party=party).ledger_
    learner.set_params(n_bootstrap=30).fit(X, party=party)
    assert learner.edge_confidence_.max() > 0
    assert learner.ledger_.n_rounds == before.n_rounds
    assert learner.ledger_.total_bytes == before.total_bytes
    learner.set_params(method="auto", site_effects="mechanisms")
    with pytest.raises(ValueError, match="n_bootstrap=30 is not available with"):
        learner.fit(X, party=party)
    # the twin: peers that are left with a party's moments of 30 samples, of which they
    # know no draw, read every row of it
    own = np.column_stack([np.ones(15), X[:15]])
    samples = [own[rng.integers(15, size=15)] for _ in range(30)]
    found = rows_behind(np.array([again.T @ again for again in samples]), 15)
    errors = np.abs(found[:, None] - X[:15]).max(axis=2).min(axis=0)
    assert errors.max() < 1e-6
