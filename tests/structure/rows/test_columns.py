"""Networks of both kinds of columns at several holders: pooled, limits, attacks."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skprivbn.exceptions import PartitionError, PartyError, PrivacyLeakWarning
from skprivbn.partition import VerticalPartition
from skprivbn.programs._shared_tables import ColumnTables
from skprivbn.structure import FederatedBayesianNetwork
from skprivbn.structure.gaussian._columns import FRACTION_BITS
from skprivbn.structure.rows import _columns
from skprivbn.structure.rows._columns import OwnColumns, network_of_columns
from tests.bayesian_network.test_conditional_gaussian import NETWORK
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites

STATES = dict.fromkeys("xyz", "continuous")
HOLDERS = [
    {"hospital": ["a", "x", "z"], "lab": ["b", "c", "y"]},
    {"hospital": ["a", "x"], "lab": ["y", "b"], "insurer": ["c", "z"]},
    {"hospital": ["a", "b", "c"], "lab": ["x", "y", "z"]},
]


def sample(seed, n=1500):
    X = pd.DataFrame(NETWORK.sample(n, random_state=seed), columns=NETWORK.nodes)
    return X.astype(dict.fromkeys("xyz", float))


def pooled(X, **options):
    with pytest.warns(PrivacyLeakWarning):
        return FederatedBayesianNetwork(states=STATES, **options).fit(X)


def bic(X, parents):
    """BIC of a network by counting, and by least squares in every configuration."""
    total, n = 0.0, len(X)
    for node, above in parents.items():
        discrete = [v for v in above if v not in STATES]
        others = [v for v in above if v in STATES]
        n_lines = np.prod([len(NETWORK.states[v]) for v in discrete])
        for _, rows in X.groupby(discrete) if discrete else [((), X)]:
            if node in STATES:
                design = np.column_stack([np.ones(len(rows)), rows[others]])
                target = rows[node].to_numpy()
                weights = np.linalg.lstsq(design, target, rcond=None)[0]
                variance = np.mean((target - design @ weights) ** 2)
                total -= 0.5 * len(rows) * (np.log(2 * np.pi * variance) + 1)
            else:
                counts = rows[node].value_counts()
                counts = counts[counts > 0]
                total += (counts * np.log(counts / len(rows))).sum()
        free = len(others) + 2 if node in STATES else len(NETWORK.states[node]) - 1
        total -= 0.5 * np.log(n) * n_lines * free
    return total


@pytest.mark.parametrize("parties", HOLDERS, ids=["two", "three", "apart"])
@pytest.mark.parametrize("seed", range(4))
def test_the_network_is_that_of_the_joined_table(parties, seed):
    X = sample(seed)
    options = {"method": ["hill_climbing", "k2"][seed % 2]}
    if seed % 2:
        options["search_params"] = {"ordering": [*"abcxyz"]}
    joined = pooled(X, **options)
    learner = FederatedBayesianNetwork(parties=parties, states=STATES, **options)
    learner.fit(X)
    assert learner.parents_ == joined.parents_
    assert learner.tables_ == joined.tables_
    assert learner.n_samples_ == len(X)
    assert learner.log_score_ == pytest.approx(joined.log_score_, abs=0.02)
    for node in STATES:
        for name in ("intercepts", "weights", "variances"):
            found, expected = (
                getattr(model.network_, name)[node] for model in (learner, joined)
            )
            np.testing.assert_allclose(found, expected, atol=2e-3, rtol=2e-3)
    for node, table in joined.network_.cpts.items():
        np.testing.assert_array_equal(learner.network_.cpts[node], table)


@pytest.mark.parametrize("parties", HOLDERS, ids=["two", "three", "apart"])
def test_the_score_is_bic_written_out(parties):
    X = sample(7)
    learner = FederatedBayesianNetwork(
        parties=parties, states=STATES, count_params={"alpha": 0.0}
    ).fit(X)
    assert any(set(above) - set(STATES) for above in learner.parents_.values())
    assert learner.log_score_ == pytest.approx(bic(X, learner.parents_), abs=0.05)


def test_records_are_aligned_by_keys():
    X, rng = sample(1, 700), np.random.default_rng(0)
    held = {
        "hospital": rng.permutation(600),
        "lab": rng.permutation(np.arange(50, 700)),
    }
    partition = VerticalPartition(
        {name: X.loc[rows, HOLDERS[0][name]] for name, rows in held.items()},
        keys=held,
        reveal_membership=True,
        order=list(X),
    )
    found = FederatedBayesianNetwork(states=STATES).fit(partition)
    joined = pooled(X[50:600])
    assert found.parents_ == joined.parents_
    assert found.n_samples_ == 550


def test_columns_of_sites(tmp_path):
    *rows, people = make_rows()
    write_tables(tmp_path, *rows, people)
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    columns = federation.columns(list(people), keys="person", reveal_membership=True)
    options = {"states": {"cough": "continuous"}, "search_params": {}}
    remote = FederatedBayesianNetwork(**options).fit(columns)
    held = {"north": ["smoker", "asthma"], "south": ["cough"]}
    local = FederatedBayesianNetwork(parties=held, **options).fit(pd.DataFrame(people))
    assert remote.parents_ == local.parents_
    assert remote.parents_["cough"] == ["smoker"]


# Limits: of a configuration that two holders make up, nobody knows how many it has.


def rare(n_rare, outlier=0.0):
    """Columns of two holders of which few records have a = b = 1."""
    rng = np.random.default_rng(3)
    a = np.repeat([0, 0, 1, 1], [100, 100, 100, n_rare])
    b = np.repeat([0, 1, 0, 1], [100, 100, 100, n_rare])
    x = rng.normal(size=len(a)) + a
    x[-1] += outlier
    x[0] += outlier * 0.99
    return pd.DataFrame({"a": a, "b": b, "x": x})


RARE = {"hospital": ["a"], "lab": ["b", "x"]}


def read_by_parties(monkeypatch, X, limit, **options):
    """Fit; return the sums that parties opened, by what they are given."""
    read, check_sums = {}, OwnColumns._check_sums

    def watched(self, given, total):
        read[tuple(given)] = total.view(np.int64)
        return check_sums(self, given, total)

    monkeypatch.setattr(OwnColumns, "_check_sums", watched)
    learner = FederatedBayesianNetwork(
        parties=RARE,
        states={"x": "continuous", "a": 2, "b": 2},
        count_params={"min_cell_count": limit},
        search_params={"required_edges": [("a", "x")]},
        **options,
    )
    return read, learner.fit(X)


def value_of_last(moments, X):
    """Read the sum of x off the moments of a configuration, in its own units."""
    n_rows, total, _ = moments
    return X["x"].mean() * n_rows + total * X["x"].std(ddof=0) * 2.0**-FRACTION_BITS


def without_judging(monkeypatch):
    def none_is_few(self, asked, sums):
        yield from ()
        return np.zeros(len(asked), dtype=bool)

    monkeypatch.setattr(OwnColumns, "_judge", none_is_few)


def test_attack_a_record_alone_in_a_configuration_of_two_holders(monkeypatch):
    opened, open_numbers = [], _columns.open_numbers

    def watched(talk, roster, shares):
        found = yield from open_numbers(talk, roster, shares)
        opened.append(found)
        return found

    monkeypatch.setattr(_columns, "open_numbers", watched)
    with pytest.warns(UserWarning, match="too few records.*a x b"):
        read, learner = read_by_parties(monkeypatch, rare(1), limit=5)
    assert set(read) == {(), (0,)}
    assert "a x b" in " ".join(str(note) for note in learner.ledger_.notes)
    assert learner.parents_["x"] == ["a"]
    # both parties read these sums, marks, and tables in steps; nothing else
    marks = [n for n in opened if (n < 2).all()]
    steps = [n for n in opened if (n > 1).any() and not (n % 5).any()]
    assert marks
    assert steps
    n_others = sum(n.size for n in (*marks, *steps))
    n_read = sum(total.size for total in read.values())
    assert sum(n.size for n in opened) == 2 * n_read + n_others


def test_without_limits_on_shares_the_hospital_reads_the_record(monkeypatch):
    X = rare(1)
    without_judging(monkeypatch)
    read, _ = read_by_parties(monkeypatch, X, limit=5)
    moments = read[0, 1][1, 1]
    assert moments[0] == 1
    assert value_of_last(moments, X) == pytest.approx(X["x"].iloc[-1], abs=1e-3)


def test_attack_a_record_that_is_nearly_all_of_a_sum(monkeypatch):
    with pytest.warns(UserWarning, match="one record is most.*a x b"):
        read, _ = read_by_parties(monkeypatch, rare(8, outlier=14.0), limit=5)
    assert (0, 1) not in read
    # as many without an outlier
    read, _ = read_by_parties(monkeypatch, rare(40), limit=5)
    assert (0, 1) in read


def test_without_looking_at_sizes_the_sum_tells_the_record(monkeypatch):
    X = rare(8, outlier=14.0)
    monkeypatch.setattr(
        _columns, "_sizes", lambda z, units: np.full(z.shape, units, np.uint64)
    )
    monkeypatch.setattr(_columns, "_one_stands_out", lambda *arguments: False)
    read, _ = read_by_parties(monkeypatch, X, limit=5)
    moments = read[0, 1][1, 1]
    assert moments[0] == 8
    # the sum of the seven others is known up to its error
    guess = value_of_last(moments, X) - 7 * 1.0
    assert guess == pytest.approx(X["x"].iloc[-1], abs=3 * 7**0.5)
    assert guess > 4 * X["x"].std()


def read_from_alike(monkeypatch, limit=5):
    """Fit where the hospital has two columns that differ in one record; read its x."""
    X = rare(40).assign(again=lambda X: X.a * (X.index != 210))
    read, check_sums = {}, OwnColumns._check_sums

    def watched(self, given, total):
        read[tuple(given)] = total.view(np.int64)
        return check_sums(self, given, total)

    monkeypatch.setattr(OwnColumns, "_check_sums", watched)
    FederatedBayesianNetwork(
        parties={"hospital": ["a", "again"], "lab": ["b", "x"]},
        states={"x": "continuous", "a": 2, "b": 2, "again": 2},
        count_params={"min_cell_count": limit},
    ).fit(X)
    return value_of_last(read[0,][1] - read[3,][1], X), X["x"][210]


def test_attack_sums_given_two_columns_that_differ_in_one_record(monkeypatch):
    with pytest.raises(PartyError) as caught:
        read_from_alike(monkeypatch)
    assert (caught.value.party, caught.value.code) == ("hospital", "too-detailed")


def test_without_looking_for_alike_columns_the_hospital_reads_it(monkeypatch):
    monkeypatch.setattr(_columns, "check_unlike", lambda *arguments: None)
    value, expected = read_from_alike(monkeypatch)
    assert value == pytest.approx(expected, abs=1e-3)


def in_own_configuration():
    """The hospital's z is the same in all records of a = 1 but one."""
    rng = np.random.default_rng(5)
    a, z = (np.arange(300) % 3 == 1).astype(int), rng.normal(-1, size=300)
    z[a == 1] = 0.5
    z[7] = 1.7
    X = pd.DataFrame({"a": a, "z": z, "x": rng.normal(size=300) + a})
    return X, {"hospital": ["a", "z"], "lab": ["x"]}, ("a", "x")


def in_own_labels():
    """The hospital's z follows from its labels a and c, but for one record."""
    rng = np.random.default_rng(5)
    a, c = rng.integers(0, 2, (2, 300))
    z = a + 0.4 * c + 1.0 * (np.arange(300) == 7)
    X = pd.DataFrame({"a": a, "c": c, "z": z, "x": rng.normal(size=300) + a})
    return X, {"hospital": ["a", "c", "z"], "lab": ["x"]}, ("a", "x")


def in_their_configuration():
    """Most z are the same, and the lab's b is 1 for such records and for one other."""
    rng = np.random.default_rng(5)
    z = np.where(np.arange(300) < 180, 0.5, rng.normal(2, size=300))
    b = (np.arange(300) % 3 == 0) & (np.arange(300) < 180) | (np.arange(300) == 200)
    X = pd.DataFrame({"z": z, "b": b.astype(int), "x": rng.normal(size=300)})
    return X, {"hospital": ["z"], "lab": ["b", "x"]}, ("b", "x")


def read_beside_own_numbers(monkeypatch, data):
    """Fit; return what the hospital makes of the sums that it reads, and the truth."""
    X, parties, edge = data()
    read, check_sums = {}, OwnColumns._check_sums

    def watched(self, given, total):
        read[tuple(self.me.terms.names[v] for v in given)] = total.view(np.int64)
        return check_sums(self, given, total)

    monkeypatch.setattr(OwnColumns, "_check_sums", watched)
    numbers = {"z": "continuous", "x": "continuous"}
    FederatedBayesianNetwork(
        parties=parties,
        states=numbers | {v: 2 for v in X if v not in numbers},
        count_params={"min_cell_count": 5},
        search_params={"required_edges": [edge]},
    ).fit(X)
    # (1, z, x, z z, z x, x x): of which z the hospital knows, and how it rounds
    own = np.rint((X["z"] - X["z"].mean()) / X["z"].std(ddof=0) * 2.0**FRACTION_BITS)
    if data is in_own_labels:
        parts = {v: read[v,][:, 2] for v in ("a", "c")}
        cells = [X["a"] * 2 + X["c"] == k for k in range(4)]
        none, of_c, of_a, _ = (own[cell].mode()[0] for cell in cells)
        total = read[()][4] - none * read[()][2]
        total -= (of_a - none) * parts["a"][1] + (of_c - none) * parts["c"][1]
        record, expected = 7, none + (of_a - none) * X["a"][7]
        apart = own[7] - expected - (of_c - none) * X["c"][7]
    else:
        moments, record = read[edge[:1]][1], {"a": 7, "b": 200}[edge[0]]
        usual = own[X[edge[0]] == 1].mode()[0]
        total, apart = moments[4] - usual * moments[2], own[record] - usual
    unit = X["x"].std(ddof=0) * 2.0**-FRACTION_BITS
    return total / apart * unit + X["x"].mean(), X["x"][record]


APART = [in_own_configuration, in_own_labels, in_their_configuration]


@pytest.mark.parametrize("data", APART)
def test_attack_own_numbers_of_which_one_is_apart(monkeypatch, data):
    with pytest.raises((PartyError, KeyError, ValueError)) as caught:
        read_beside_own_numbers(monkeypatch, data)
    if data is in_own_labels:
        refusal = caught.value.party, caught.value.code
        assert refusal == ("hospital", "too-detailed")
    else:
        assert "has too few records" in str(caught.value)


@pytest.mark.parametrize("data", APART)
def test_without_looking_at_own_numbers_the_record_is_read(monkeypatch, data):
    monkeypatch.setattr(_columns, "_one_stands_out", lambda *arguments: False)
    monkeypatch.setattr(OwnColumns, "_one_stands_out", lambda *arguments: False)
    if data is in_their_configuration:
        monkeypatch.setattr(np, "median", np.mean)
    value, expected = read_beside_own_numbers(monkeypatch, data)
    assert value == pytest.approx(expected, abs=0.02)


def test_columns_that_are_the_same_in_a_configuration_are_told():
    """Zero for all who are no customers, say."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 2, (2, 400))
    x = rng.normal(size=400) * a + a
    learner = FederatedBayesianNetwork(
        parties={"hospital": ["a", "x"], "lab": ["b"]},
        states={"x": "continuous", "a": 2, "b": 2},
        count_params={"min_cell_count": 5},
    ).fit(pd.DataFrame({"a": a, "b": b, "x": x}))
    assert learner.parents_["x"] == ["a"]


@pytest.mark.parametrize("n_rare, is_few", [(0, False), (4, True), (40, False)])
def test_only_few_records_are_refused(monkeypatch, recwarn, n_rare, is_few):
    read, learner = read_by_parties(monkeypatch, rare(n_rare), limit=5)
    assert any("too few records" in str(w.message) for w in recwarn) == is_few
    assert ((0, 1) in read) == (not is_few)
    assert learner.network_.continuous == ("x",)


def test_known_parents_of_few_records_end_the_fit(recwarn):
    learner = FederatedBayesianNetwork(
        parties=RARE,
        structure={"x": ["a", "b"]},
        states={"x": "continuous"},
        count_params={"min_cell_count": 5},
    )
    with pytest.raises(ValueError, match=r"\['x'\] must have.*too few records"):
        learner.fit(rare(3))
    with pytest.raises(PartyError) as caught:
        learner.fit(rare(0).iloc[::70])
    assert caught.value.code == "too-few-rows"


def test_numbers_of_few_values_are_refused_where_small_counts_are():
    X = rare(30).assign(x=lambda X: X["a"])
    learner = FederatedBayesianNetwork(parties=RARE, states={"x": "continuous"})
    assert learner.fit(X).parents_["x"] == ["a"]
    learner.set_params(count_params={"min_cell_count": 5})
    with pytest.raises(PartyError) as caught:
        learner.fit(X)
    assert (caught.value.party, caught.value.code) == ("lab", "too-detailed")


# A party that deviates.


KNOWN = FederatedBayesianNetwork(
    parties=RARE, structure={"x": ["a"]}, states={"x": "continuous"}
)


def weigh_a_record(monkeypatch):
    """Have the lab count a record many times, but among all records together."""
    honest = _columns.joint_sums

    def lie(talk, links, numbers, asked):
        found = yield from honest(talk, links, numbers, asked)
        if talk.name == "lab":
            numbers.shares[0] *= np.uint64(10**5)
        again = yield from honest(talk, links, numbers, asked)
        return [found[0], *again[1:]]

    monkeypatch.setattr(_columns, "joint_sums", lie)


def test_attack_sums_by_configuration_that_do_not_add_up(monkeypatch):
    weigh_a_record(monkeypatch)
    with pytest.raises(PartyError) as caught:
        clone(KNOWN).fit(rare(30))
    assert caught.value.code == "inconsistent"


def test_without_adding_them_up_a_record_weighs_what_the_lab_likes(monkeypatch):
    expected = clone(KNOWN).fit(rare(30)).network_.variances["x"]
    weigh_a_record(monkeypatch)
    monkeypatch.setattr(OwnColumns, "_check_sums", lambda self, given, total: None)
    wrong = clone(KNOWN).fit(rare(30)).network_.variances["x"]
    assert np.abs(wrong / expected - 1).max() > 0.5


def shift_a_count(monkeypatch):
    """Have the lab move ten records to the first cell of every table."""
    honest = ColumnTables.share

    def lie(self, tables):
        shares = yield from honest(self, tables)
        if self._talk.name == "lab":
            for share in shares:
                share.flat[:1] += share.dtype.type(10)
                share.flat[-1:] -= share.dtype.type(10)
        return shares

    monkeypatch.setattr(ColumnTables, "share", lie)


def test_attack_tables_that_are_not_of_these_records(monkeypatch):
    shift_a_count(monkeypatch)
    with pytest.raises(PartyError) as caught:
        clone(KNOWN).fit(rare(30))
    assert caught.value.code == "inconsistent"


def test_without_comparing_counts_tables_are_what_the_lab_likes(monkeypatch):
    shift_a_count(monkeypatch)
    monkeypatch.setattr(OwnColumns, "_check_counts", lambda *args: None)
    cpt = clone(KNOWN).fit(rare(30)).network_.cpts["a"]
    np.testing.assert_allclose(cpt, np.array([211, 121]) / 332)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"missing": "skip"}, "missing='skip' is not available for columns"),
        ({"search_params": {"n_bootstrap": 5}}, "n_bootstrap=5 is not available"),
        (
            {"epsilon": 1.0, "states": [2] * 6},
            "epsilon=1.0 is not available for columns",
        ),
        ({"states": STATES | {"a": "continuous"}}, "declares column 'a' as continuous"),
        ({"method": "ges"}, "method='ges' is not available with"),
    ],
)
def test_options_that_columns_do_not_have(options, message):
    learner = FederatedBayesianNetwork(parties=HOLDERS[0])
    learner.set_params(**{"states": STATES} | options)
    with pytest.raises(ValueError, match=message):
        learner.fit(sample(0, 50))


def test_bad_input():
    X = sample(0, 50)
    learner = FederatedBayesianNetwork(parties=HOLDERS[0], states=STATES)
    with pytest.raises(PartitionError, match="give one"):
        learner.fit(X, party=np.arange(50) % 2)
    with pytest.raises(ValueError, match="NaN"):
        learner.fit(X.assign(x=np.nan))
    with pytest.warns(PrivacyLeakWarning, match="one party's.*own in parties="):
        learner.set_params(parties={"all": list(X)}).fit(X)


def test_what_the_ledger_says():
    learner = FederatedBayesianNetwork(parties=HOLDERS[1], states=STATES)
    ledger = learner.fit(sample(0, 300)).ledger_
    known = {fact.what: fact.who for fact in ledger.facts()}
    assert known["tables and sums that the search opened"] == "all parties"
    assert "configurations for which continuous columns" in str(ledger.notes)
    assert all(len(what.split()) <= 10 for _, what in network_of_columns.rounds())
