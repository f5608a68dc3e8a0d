"""What exact moments tell beyond what they are for: attacks on real sites."""

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site import _host
from skprivbn.structure import FederatedGaussianBayesianNetwork
from skprivbn.structure._basis import expand
from skprivbn.structure.gaussian import _columns_protocol, _moments_protocol
from skprivbn.structure.gaussian._columns_protocol import ColumnMomentsTerms
from skprivbn.structure.gaussian._moments_protocol import (
    HOLDOUT,
    GaussianMomentsParty,
    GaussianMomentsTerms,
    collect_basis_moments,
    collect_moments,
)
from tests.federation.site.loopback import open_sites

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


def ask_moments(rows, **terms):
    terms = GaussianMomentsTerms(**terms)
    with rows.federate(GaussianMomentsParty, terms, "masking") as federation:
        parts, total = collect_moments(federation)
        if terms.basis is not None:
            return parts[0], collect_basis_moments(federation, total)
    return parts


def two_seeds(n_rows, n_held_out):
    """Find seeds that hold out the same rows but for one."""
    seen = {}
    for seed in range(100_000):
        order = np.random.default_rng(seed).permutation(n_rows)
        held_out = frozenset(order[:n_held_out].tolist())
        for row in held_out:
            other_seed, other = seen.setdefault(held_out - {row}, (seed, row))
            if other != row:
                return (other_seed, other), (seed, row)
    raise AssertionError("no such seeds")


def test_attack_held_out_rows_that_differ_by_one(open_rows, monkeypatch):
    n_rows = 24
    ages = np.random.default_rng(0).normal(60, 9, (3, n_rows, 1)).round(3)
    rows = open_rows(ages, "age")
    (seed, row), (other_seed, other) = two_seeds(n_rows, int(HOLDOUT * n_rows))
    # fewer rows than sites tell of would be held out of these
    monkeypatch.setattr(GaussianMomentsParty, "check_table", lambda *arguments: None)

    def difference():
        one, two = (
            ask_moments(rows, holdout=HOLDOUT, seed=s)[1] for s in (seed, other_seed)
        )
        return (one.mean - two.mean)[0] * one.n_rows

    expected = (ages[:, row] - ages[:, other]).sum()
    assert difference() != pytest.approx(expected, abs=1e-6)
    # the twin: rows are chosen by a seed that everybody knows
    policy = _host.HostPolicy
    monkeypatch.setattr(
        _host, "HostPolicy", lambda *a, **k: policy(*a, **k, is_simulated=True)
    )
    assert difference() == pytest.approx(expected, abs=1e-6)


def test_attack_few_rows_held_out(open_rows, monkeypatch):
    ages = np.random.default_rng(0).normal(60, 9, (3, 60, 1)).round(3)
    rows = open_rows(ages, "age")
    assert code_of(lambda: ask_moments(rows, holdout=HOLDOUT)) == "too-few-rows"
    monkeypatch.setattr(GaussianMomentsParty, "check_table", lambda *arguments: None)
    assert ask_moments(rows, holdout=HOLDOUT)[1].n_rows == 3 * 18


def test_attack_a_count_among_rows_held_out(open_rows, monkeypatch):
    tables = np.random.default_rng(0).normal(60, 9, (3, N_ROWS, 2)).round(3)
    tables[:, :, 1] = np.arange(N_ROWS) < 9
    rows = open_rows(tables, "age", "died")
    assert code_of(lambda: ask_moments(rows, holdout=HOLDOUT)) == "too-detailed"
    # the twin
    monkeypatch.setattr(_moments_protocol, "check_cells", lambda *arguments: None)
    part = ask_moments(rows, holdout=HOLDOUT)[1]
    assert part.mean[1] * part.n_rows < 3 * 9


def count_values(rows, basis="polynomial"):
    """Solve sums of powers of a column for how many rows have each value."""
    first, moments = ask_moments(rows, basis=basis)
    values = np.arange(1.0, 7.0)
    scale = np.sqrt(first.covariance[0, 0])
    known = expand((values[:, None] - first.mean) / scale, basis)
    # number of rows, and sums of the five functions
    equations = np.column_stack([np.ones(6), known]).T
    sums = np.append(1.0, moments.mean) * moments.n_rows
    return np.linalg.solve(equations, sums)


def test_attack_powers_of_a_column_of_few_values(open_rows, monkeypatch):
    stays = np.tile(1.0 + np.arange(N_ROWS) % 4, (3, 1))
    stays[0, 0] = 6
    rows = open_rows(stays[:, :, None], "stays")
    assert code_of(count_values, rows) == "too-detailed"
    # the twin: one has six stays
    monkeypatch.setattr(_moments_protocol, "check_few_values", lambda *arguments: None)
    np.testing.assert_allclose(count_values(rows), [59, 60, 60, 60, 0, 1], atol=1e-6)


def open_columns(folder, clinic, lab):
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
    sites = open_sites(folder, tables, kinds, ["FederatedGaussianBayesianNetwork"])
    columns = [c for names in kinds.values() for c in names if c != "person"]
    return sites.columns(columns, key="person")


def test_attack_few_of_the_records_that_all_have(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    persons = np.arange(60)
    clinic = np.column_stack([persons, rng.normal(size=60), persons % 3 == 0])
    lab = np.column_stack([persons, rng.normal(size=60)])
    lab = np.vstack([lab[persons % 3 > 0], lab[9]])
    columns = open_columns(tmp_path, clinic, lab)
    model = FederatedGaussianBayesianNetwork("bic")
    assert code_of(model.fit, columns) == "too-detailed"
    # the twin: one of those whom the lab knows has what the clinic treats
    monkeypatch.setattr(_columns_protocol, "check_cells", lambda *arguments: None)
    model.fit(columns)
    assert model.network_.mean[1] * len(lab) == pytest.approx(1)


def test_attack_more_moments_than_records(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    tables = [np.column_stack([np.arange(30), rng.normal(size=(30, 2))])] * 2
    columns = open_columns(tmp_path, *tables)
    model = FederatedGaussianBayesianNetwork("bic")
    assert code_of(model.fit, columns) == "too-detailed"
    # the twin
    monkeypatch.setattr(ColumnMomentsTerms, "n_parameters", lambda *arguments: 0)
    assert model.fit(columns).n_features_in_ == 4
