"""Gaps in mixed columns: EM over parties against EM written out on pooled rows."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import Me, TooFewRows, runner
from skprivbn.federation.gate import check_rows, with_rows
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure._tables import Question
from skprivbn.structure.rows._mixed import Scale
from skprivbn.structure.rows._program import OwnRows, network_of_rows
from tests.bayesian_network.test_conditional_gaussian import NETWORK
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites, open_sites
from tests.structure.rows.asking import overhear, terms_for

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

CONTINUOUS = ["x", "y", "z"]
STATES = {node: list(labels) for node, labels in NETWORK.states.items()}
ALL_STATES = STATES | dict.fromkeys(CONTINUOUS, "continuous")
NUMBERS = {"a": "continuous", "b": "continuous"}


def with_gaps(n, share, seed=0):
    X = pd.DataFrame(NETWORK.sample(n, random_state=seed), columns=NETWORK.nodes)
    return X.mask(np.random.default_rng(seed).random(X.shape) < share)


class PlainEM:
    """EM by going through all configurations of all discrete nodes, row by row."""

    def __init__(self, X, alpha):
        self.rows, self.alpha = X.to_dict("records"), alpha
        self.parents = {v: list(NETWORK.parents[v]) for v in NETWORK.nodes}
        self.above = {
            v: [u for u in self.parents[v] if u in STATES] for v in CONTINUOUS
        }
        self.beside = {
            v: [u for u in self.parents[v] if u not in STATES] for v in CONTINUOUS
        }
        self.overall = {v: np.nanvar(X[v].astype(float)) for v in CONTINUOUS}

    def empty(self):
        counts = {
            v: dict.fromkeys(product(*(STATES[u] for u in [*self.parents[v], v])), 0.0)
            for v in STATES
        }
        sums = {
            v: {
                cell: np.zeros((2 + len(self.beside[v]),) * 2)
                for cell in product(*(STATES[u] for u in self.above[v]))
            }
            for v in CONTINUOUS
        }
        return counts, sums

    def start(self):
        counts, sums = self.empty()
        for row in self.rows:
            for v in NETWORK.nodes:
                family = [*self.parents[v], v]
                if any(pd.isna(row[u]) for u in family):
                    continue
                if v in STATES:
                    counts[v][tuple(row[u] for u in family)] += 1
                else:
                    numbers = np.array([1.0, *(row[u] for u in self.beside[v]), row[v]])
                    cell = tuple(row[u] for u in self.above[v])
                    sums[v][cell] += np.outer(numbers, numbers)
        return counts, sums

    def maximise(self, counts, sums):
        tables, lines = {}, {}
        for v, cells in counts.items():
            for cell, n in cells.items():
                total = sum(cells[(*cell[:-1], state)] for state in STATES[v])
                share = (n + self.alpha) / (total + self.alpha * len(STATES[v]))
                tables[v, cell] = share
        for v, cells in sums.items():
            for cell, s in cells.items():
                line = np.linalg.solve(s[:-1, :-1], s[:-1, -1])
                left = s[-1, -1] - line @ s[:-1, -1] + self.alpha * self.overall[v]
                lines[v, cell] = line, left / (s[0, 0] + self.alpha)
        return tables, lines

    def joint(self, lines, state):
        """Mean and covariance of all numbers, given all discrete nodes."""
        d = len(CONTINUOUS)
        slopes, start, spread = np.zeros((d, d)), np.zeros(d), np.zeros(d)
        for j, v in enumerate(CONTINUOUS):
            line, spread[j] = lines[v, tuple(state[u] for u in self.above[v])]
            start[j] = line[0]
            slopes[j, [CONTINUOUS.index(u) for u in self.beside[v]]] = line[1:]
        effects = np.linalg.inv(np.eye(d) - slopes)
        return effects @ start, effects @ np.diag(spread) @ effects.T

    def expect(self, tables, lines):
        counts, sums = self.empty()
        for row in self.rows:
            numbers = np.array([row[v] for v in CONTINUOUS], dtype=float)
            seen, found = np.flatnonzero(~np.isnan(numbers)), []
            for states in product(*STATES.values()):
                state = dict(zip(STATES, states))
                if any(not pd.isna(row[v]) and row[v] != state[v] for v in state):
                    continue
                share = 1.0
                for v in STATES:
                    share *= tables[v, tuple(state[u] for u in [*self.parents[v], v])]
                mean, cov = self.joint(lines, state)
                block, shift = cov[np.ix_(seen, seen)], numbers[seen] - mean[seen]
                if len(seen):
                    share *= np.exp(-0.5 * shift @ np.linalg.solve(block, shift))
                    share /= np.sqrt(np.linalg.det(2 * np.pi * block))
                gain = cov[:, seen] @ np.linalg.inv(block)
                found.append(
                    (share, state, mean + gain @ shift, cov - gain @ cov[seen])
                )
            total = sum(share for share, *_ in found)
            for share, state, mean, left in found:
                for v in STATES:
                    cell = tuple(state[u] for u in [*self.parents[v], v])
                    counts[v][cell] += share / total
                for j, v in enumerate(CONTINUOUS):
                    places = [*(CONTINUOUS.index(u) for u in self.beside[v]), j]
                    one = np.array([1.0, *mean[places]])
                    square = np.outer(one, one)
                    square[1:, 1:] += left[np.ix_(places, places)]
                    cell = tuple(state[u] for u in self.above[v])
                    sums[v][cell] += share / total * square
        return counts, sums


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_parties_find_what_em_finds_on_pooled_rows(share):
    X = with_gaps(400, share)
    model = FederatedBayesianNetwork(
        structure=NETWORK.parents,
        states=ALL_STATES,
        missing="em",
        count_params={"max_iter": 4, "tol": 0.0, "alpha": 0.5},
    )
    with pytest.warns(UserWarning, match="EM did not converge"):
        model.fit(X, party=X.index % 3)
    em = PlainEM(X, alpha=0.5)
    found = em.start()
    for _ in range(4):
        found = em.expect(*em.maximise(*found))
    tables, lines = em.maximise(*found)
    network = model.network_
    for (v, cell), share in tables.items():
        family = [*em.parents[v], v]
        place = tuple(STATES[u].index(state) for u, state in zip(family, cell))
        assert network.cpts[v][place] == pytest.approx(share, abs=1e-8)
    for (v, cell), (line, variance) in lines.items():
        place = tuple(STATES[u].index(s) for u, s in zip(em.above[v], cell))
        assert network.intercepts[v][place] == pytest.approx(line[0], abs=1e-8)
        np.testing.assert_allclose(network.weights[v][place], line[1:], atol=1e-8)
        assert network.variances[v][place] == pytest.approx(variance, abs=1e-8)


@pytest.mark.parametrize("missing", ["skip", "em"])
def test_graph_and_parameters_with_gaps_are_those_of_pooled_rows(missing):
    X = with_gaps(1500, 0.1)
    options = {"states": ALL_STATES, "missing": missing}
    federated = FederatedBayesianNetwork(**options).fit(X, party=X.index % 4)
    pooled = FederatedBayesianNetwork(**options).fit(X)
    assert federated.adjacency_matrix_.tolist() == NETWORK.adjacency_matrix.tolist()
    assert federated.parents_ == pooled.parents_
    for name in ("cpts", "intercepts", "weights", "variances"):
        for node, values in getattr(pooled.network_, name).items():
            found = getattr(federated.network_, name)[node]
            np.testing.assert_allclose(found, values, atol=1e-10)
    assert federated.converged_ and (federated.n_iter_ > 1) == (missing == "em")
    whole = with_gaps(1500, 0.0)
    truth = NETWORK.log_likelihood(whole).mean()
    assert federated.score(whole) == pytest.approx(truth, abs=0.05)
    assert np.isfinite(federated.score(X))


def test_means_of_complete_rows_are_biased_where_em_is_not():
    # whether y was measured depends on x, which is always there
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    y = 2 * x + rng.normal(size=4000)
    X = pd.DataFrame({"x": x, "y": y})
    X.loc[(x > 0) & (rng.random(4000) < 0.9), "y"] = None
    means = {}
    for missing in ("skip", "em"):
        model = FederatedBayesianNetwork(
            structure={"x": ["y"]},
            states=dict.fromkeys("xy", "continuous"),
            missing=missing,
        ).fit(X, party=X.index % 3)
        means[missing] = model.network_.intercepts["y"]
    assert means["skip"] < -0.9
    assert means["em"] == pytest.approx(y.mean(), abs=0.1)


@pytest.mark.parametrize("value", [None, np.nan, pd.NA])
def test_whatever_stands_for_a_missing_number(value):
    X = with_gaps(90, 0.0).astype(object)
    X.loc[::7, "x"] = value
    model = FederatedBayesianNetwork(
        structure=NETWORK.parents, states=ALL_STATES, missing="em"
    ).fit(X, party=X.index % 3)
    plain = X.assign(x=[np.nan if pd.isna(v) else v for v in X["x"]])
    again = FederatedBayesianNetwork(**model.get_params()).fit(plain, party=X.index % 3)
    assert model.network_ == again.network_
    with pytest.raises(ValueError, match="NaN"):
        model.set_params(missing="error").fit(plain)


def test_too_many_configurations_are_said():
    X = pd.DataFrame(
        np.random.default_rng(0).integers(8, size=(300, 6)), columns=list("abcdef")
    )
    for name in "xy":
        X[name] = np.random.default_rng(1).normal(size=300)
    model = FederatedBayesianNetwork(
        structure={"x": ["a", "b", "c"], "y": ["d", "e", "f"]},
        states=[8] * 6 + ["continuous"] * 2,
        missing="em",
    )
    with pytest.raises(ValueError, match="here 262144, and at most 16384"):
        model.fit(X)


def test_a_value_that_hardly_anybody_has_is_not_told():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    X[:, 1] = np.nan
    X[7, 1] = 42.5
    terms = terms_for("xy", [[0], [0]], continuous=[0, 1], missing="skip")
    first = next(network_of_rows(Me({"X": X}, terms, "s", ("s",))))
    told = with_rows(first.vector, first.weights, len(X))
    options = len(first.vector), first.what, first.weights
    with pytest.raises(TooFewRows):
        check_rows(told, *options, 10)
    # the twin: without a least number of rows, the mean is the value
    sums = check_rows(told, *options, 1)
    assert Scale.from_sums(sums, 2).mean[1] == pytest.approx(42.5)


def write_with_gaps(folder, **n_gaps):
    """Write the hospitals' tables; so many first rows of south lack a column.

    Returns sites that count in fives, and the first of these rows.
    """
    X, ward, party, people = make_rows()
    write_tables(folder, X, ward, party, people)
    table = pd.read_csv(folder / "south" / "stays.csv", dtype=str)
    for column, n in n_gaps.items():
        table.loc[: n - 1, column] = ""
    table.to_csv(folder / "south" / "stays.csv", index=False)
    few = "min_cell_count = 1", "min_cell_count = 5"
    texts = {name: text.replace(*few) for name, text in site_files().items()}
    return make_sites(folder, texts), X[party == "south"][0]


def left_out(sites, column, monkeypatch):
    """Return the numbers of rows that lack a column, as differences of sums."""
    rows = connect(sites, "icu").rows(["a", "b", "ward"])
    rows = rows.checked({}, as_float=False, finite=False)
    options = {"continuous": [0, 1], "min_cell_count": 5, "missing": "skip"}
    terms = terms_for(["a", "b", "ward"], [[0], [0], [0, 1]], **options)
    with monkeypatch.context() as patched:
        known = overhear(patched, Question("moments", [(), (2,)]))
        with rows.federate(network_of_rows, terms, "masking") as session:
            session.run()
    total, told = known[0], known[-1].reshape(3, -1)
    scale = Scale.from_sums(total, 2)
    if column == "ward":
        lacking = told[0] - told[1:].sum(axis=0)
        return scale.mean + scale.unit * lacking[1:3] / lacking[0]
    # sums of a in all rows that have it, without those in rows that have b, too
    return total[3] - told[0, 0] * scale.mean[0] - told[0, 1] * scale.unit[0]


def let_all_through(monkeypatch):
    """The twin: nobody counts the rows behind a sum."""
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


@pytest.mark.parametrize("column", ["ward", "b"])
def test_attack_the_only_row_that_lacks_an_entry(tmp_path, monkeypatch, column):
    sites, row = write_with_gaps(tmp_path, **{column: 1})
    with pytest.raises(PartyError, match="fewer rows of all sites"):
        left_out(sites, column, monkeypatch)
    model = FederatedBayesianNetwork(states=NUMBERS, missing="skip", max_parents=1)
    with pytest.raises(PartyError, match="fewer rows of all sites"):
        model.fit(connect(sites, "icu").rows(["a", "b", "ward"]))
    let_all_through(monkeypatch)
    expected = row if column == "ward" else row[0]
    found = left_out(sites, column, monkeypatch)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def deaths_by_ward(rows, monkeypatch):
    """Call a column of two values continuous: sums for each ward are counts."""
    options = {"continuous": [1], "min_cell_count": 5}
    terms = terms_for(["ward", "died"], [[0, 1], [0]], **options)
    with monkeypatch.context() as patched:
        known = overhear(patched, Question("moments", [(0,)]))
        with rows.federate(network_of_rows, terms, "masking") as session:
            session.run()
    scale = Scale.from_sums(known[0], 1)
    n_rows, sums, _ = known[-1].reshape(2, -1).T
    return sums * scale.unit + n_rows * scale.mean


def test_attack_an_outcome_that_is_called_continuous(tmp_path, monkeypatch):
    ward = np.repeat(["a", "b"], 40)
    died = np.tile(np.arange(80) < 20, (3, 1)).astype(int)
    died[0, 70] = 1
    tables = {name: list(zip(ward, d)) for name, d in zip("nsw", died)}
    columns = {"ward": '["a", "b"]', "died": '"int"'}
    learner = ["FederatedBayesianNetwork"]
    rows = open_sites(tmp_path, tables, columns, learner).rows()
    with pytest.raises(PartyError, match="fewer rows of all sites"):
        deaths_by_ward(rows, monkeypatch)
    # the twin: one died in the second ward
    let_all_through(monkeypatch)
    np.testing.assert_allclose(deaths_by_ward(rows, monkeypatch), [60, 1], atol=1e-6)


@pytest.mark.parametrize("column", ["ward", "b"])
def test_enough_rows_that_lack_an_entry_are_left_out(tmp_path, column):
    sites, _ = write_with_gaps(tmp_path, **{column: 6})
    rows = connect(sites, "icu").rows(["a", "b", "ward"])
    model = FederatedBayesianNetwork(states=NUMBERS, missing="skip", max_parents=1).fit(
        rows
    )
    assert model.n_samples_ == 180
    assert "b" in model.parents_["a"] or "a" in model.parents_["b"]
    assert any("told as they are" in note for note in model.ledger_.notes)


@pytest.mark.parametrize(
    "n_gaps, is_refused",
    [
        ({"a": 1, "b": 1}, True),
        # one of the rows that lack b has a
        ({"a": 5, "b": 6}, True),
        # rows without numbers are enough, but one of them has no ward
        ({"a": 6, "b": 6, "ward": 1}, True),
        ({"a": 4, "b": 4, "ward": 4}, True),
        ({"a": 5, "b": 5, "ward": 5}, False),
        ({"a": 5, "b": 10, "ward": 15}, False),
    ],
)
def test_few_rows_may_not_lack_what_others_have(tmp_path, n_gaps, is_refused):
    sites, _ = write_with_gaps(tmp_path, **n_gaps)
    rows = connect(sites, "icu").rows(["a", "b", "ward"])
    model = FederatedBayesianNetwork(states=NUMBERS, missing="skip", max_parents=1)
    if is_refused:
        with pytest.raises(PartyError, match="fewer rows of all sites"):
            model.fit(rows)
    else:
        assert model.fit(rows).n_samples_ == 180


def test_gaps_of_one_category_beside_values_of_another():
    """Enough rows lack s, but only one of these has t = 1: sums given both tell it."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [np.arange(200) % 2, np.arange(200) // 2 % 2, rng.normal(size=200)]
    )
    X[:20, 0], X[:20, 1] = np.nan, 0
    blocks = {name: {"X": X.copy()} for name in "nsw"}
    blocks["s"]["X"][0, 1] = 1
    options = {"continuous": [2], "min_cell_count": 5, "missing": "skip"}
    terms = terms_for("stx", [[0, 1], [0, 1], [0]], max_parents=2, **options)
    for name in "ns":
        rows = OwnRows(Me(blocks[name], terms, name, ("n", "s", "w")), terms.states)
        assert rows.moments([(), (0,), (1,)])[0][0] == 200
        cells = rows.moments([(0, 1)])[1]().cells
        assert np.any((cells > 0) & (cells < 5)) == (name == "s")


def test_sites_learn_mixed_networks_from_rows_with_gaps(tmp_path):
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b", "ward"])
    options = {"states": NUMBERS, "structure": {"a": ["ward"], "b": ["a"]}}
    options["count_params"] = {"alpha": 0.0}
    em = FederatedBayesianNetwork(missing="em", **options).fit(rows)
    plain = FederatedBayesianNetwork(**options).fit(rows)
    # without gaps they are the same
    for node in ("a", "b"):
        np.testing.assert_allclose(
            em.network_.intercepts[node], plain.network_.intercepts[node], atol=1e-8
        )


def test_attack_the_only_patient_of_a_ward(tmp_path, monkeypatch):
    """Moments given a ward are about its patients, with gaps or without."""
    X, ward, party, people = make_rows()
    ward = np.zeros_like(ward)
    ward[7] = 1
    write_tables(tmp_path, X, ward, party, people)
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b", "ward"])
    options = {"states": NUMBERS, "structure": {"a": ["ward"]}, "missing": "em"}
    model = FederatedBayesianNetwork(**options, count_params={"alpha": 0.0})
    with pytest.raises(PartyError, match="fewer rows of all sites"):
        model.fit(rows)
    let_all_through(monkeypatch)
    told = model.fit(rows).network_.intercepts["a"]
    assert np.min(np.abs(told - X[7, 0])) < 1e-6
