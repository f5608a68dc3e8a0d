"""Rules about what leaves a site: attacks, and twins in which they work."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.crypto import CKKSBackend, MaskingBackend, PaillierBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import Coordinator, Me, runner
from skprivbn.federation.site._account import Account
from skprivbn.federation.site._file import Dataset
from skprivbn.federation.site._question import RULES
from skprivbn.federation.site._snapshots import RowSketch
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedPCA,
    FederatedStandardScaler,
)
from skprivbn.structure import CollectiveBayesianNetwork, PrivateK2StructureLearner
from skprivbn.structure.collective import _site
from skprivbn.structure.collective._program import (
    CollectiveTerms,
    LocalModels,
    collective,
)
from tests.federation.site.loopback import LoopbackSession, connect, make_sites

NAMES = ("north", "south", "east", "west")
BITS = tuple("abcdefg")

SITE_FILE = """
min_parties = 2
peers = ["north", "south", "east", "west"]

[datasets.icu]
path = "icu.csv"
min_rows = 10
max_exact_fits = 20
estimators = ["CollectiveBayesianNetwork", "FederatedKBinsDiscretizer",
    "FederatedPCA", "FederatedStandardScaler",
    "PPEMGaussianMixture", "PrivateGLMMRegressor",
    "PrivateK2StructureLearner", "describe"]
{rules}

[datasets.icu.columns]
{columns}
"""


def write(folder, name, columns, rows):
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    (folder / name / "icu.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def numbers(tmp_path):
    """Four hospitals with a column of numbers."""
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(40, 1)).round(6).tolist() for name in NAMES}

    def open_it(
        n_sites=4, rules="", transport=LoopbackSession, columns=None, min_rows=10
    ):
        columns = columns or {"x": '"float"'}
        for name in NAMES:
            write(tmp_path, name, columns, rows[name])
        declared = "\n".join(f"{name} = {kind}" for name, kind in columns.items())
        text = SITE_FILE.format(rules=rules, columns=declared)
        text = text.replace("min_rows = 10", f"min_rows = {min_rows}")
        sites = make_sites(tmp_path, dict.fromkeys(NAMES[:n_sites], text))
        return connect(sites, "icu", transport).rows()

    return open_it, rows


def ask_sum(rows):
    """Return the number of rows and the sum of x, as a fit tells them."""
    scaler = FederatedStandardScaler().fit(rows)
    return np.array([1.0, scaler.mean_[0]]) * np.ravel(scaler.n_samples_)[0]


def ask_survivors(rows):
    """Return the same in one sum that goes on without lost sites."""
    backend = MaskingBackend(recovery=True)
    scaler = FederatedStandardScaler(with_std=False, backend=backend).fit(rows)
    return np.array([1.0, scaler.mean_[0]]) * np.ravel(scaler.n_samples_)[0]


def code_of(ask, *arguments, **options):
    with pytest.raises(PartyError) as caught:
        ask(*arguments, **options)
    return caught.value.code


def trust_rosters(monkeypatch):
    """The twin without the rule: nobody remembers who asked."""
    monkeypatch.setattr(Account, "_check_roster", lambda self, roster: None)


def test_rosters_that_differ_by_one_hospital(numbers):
    open_it, _ = numbers
    ask_sum(open_it())
    assert code_of(ask_sum, open_it(n_sites=3)) == "other-roster"
    ask_sum(open_it())


def test_they_would_give_that_hospitals_sum(numbers, monkeypatch):
    open_it, rows = numbers
    trust_rosters(monkeypatch)
    n_rows, sum_of_x = ask_sum(open_it()) - ask_sum(open_it(n_sites=3))
    assert n_rows == len(rows["west"])
    assert sum_of_x == pytest.approx(np.sum(rows["west"]))


class Losing(LoopbackSession):
    """Loses what west answers once it has joined, as a coordinator may pretend."""

    n_heard = 0

    def do_app_command(self, job_id, command, data):
        answer = super().do_app_command(job_id, command, data)
        asked = self.sites["west"]._host.asked
        self.n_heard = self.n_heard + 1 if asked == "next" else 0
        if self.n_heard > 2:
            answer["replies"].pop("west", None)
        return answer


def test_survivors_of_a_recovery_are_a_roster_of_their_own(numbers, monkeypatch):
    open_it, rows = numbers
    ask_sum(open_it())
    lossy = open_it(transport=Losing)
    # all refuse to sign the list of survivors
    with pytest.raises(ProtocolError, match="only 0 parties are left at 'survivors'"):
        ask_survivors(lossy)
    # the twin
    trust_rosters(monkeypatch)
    n_rows, sum_of_x = ask_sum(open_it()) - ask_survivors(lossy)
    assert (n_rows, sum_of_x) == (40, pytest.approx(np.sum(rows["west"])))


def test_a_recovery_may_come_first(numbers):
    open_it, _ = numbers
    lossy = open_it(transport=Losing)
    assert ask_survivors(lossy)[0] == 120
    assert code_of(ask_sum, open_it()) == "other-roster"
    assert ask_sum(open_it(n_sites=3))[0] == 120


def test_a_row_that_is_added_every_day(numbers, monkeypatch):
    open_it, rows = numbers
    before = ask_sum(open_it())
    rows["north"].append([3.25])
    assert code_of(ask_sum, open_it()) == "changed-little"
    # the twin: any change makes a new state of the file
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RowSketch, "changed_rows", lambda self, other: 10)
        patched.setattr(Account, "_hold_content", lambda self: None)
        assert ask_sum(open_it())[1] - before[1] == pytest.approx(3.25)
    # enough rows are answered, and counted on
    rows["north"] += [[1.0]] * 9
    ask_sum(open_it())


@pytest.fixture
def bits(tmp_path):
    """Two hospitals with different columns of the same 60 patients."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (60, len(BITS) + 1))

    def open_it(rules="min_cell_count = 1"):
        for name, columns, held in (
            ("north", BITS, codes[:, :-1]),
            ("south", ["h"], codes[:, -1:]),
        ):
            write(tmp_path, name, columns, held.tolist())
        texts = {
            name: SITE_FILE.format(
                rules=rules, columns="\n".join(f'{c} = ["0", "1"]' for c in columns)
            )
            for name, columns in (("north", BITS), ("south", "h"))
        }
        return connect(make_sites(tmp_path, texts), "icu").columns()

    return open_it, codes


def declare_table(columns):
    """Have all columns counted together: every patient is in a cell of their own."""
    parents = {"h": list(BITS)}
    return CollectiveBayesianNetwork(structure=parents).fit(columns)


def test_a_declared_table_with_more_cells_than_rows(bits, monkeypatch):
    open_it, codes = bits
    assert code_of(declare_table, open_it()) == "too-detailed"
    # the twin: whatever is declared is counted
    monkeypatch.setattr(_site, "check_table", lambda *arguments: None)
    model = declare_table(open_it())
    # what north and south know of patients whose seven columns nobody else has
    held, numbers = np.unique(codes[:, :-1], axis=0, return_counts=True)
    alone = held[numbers == 1]
    guesses = [model.network_.cpts["h"][tuple(row)].argmax() for row in alone]
    truth = {tuple(row[:-1]): row[-1] for row in codes}
    assert len(alone) > 30
    assert guesses == [truth[tuple(row)] for row in alone]


def ask_local(columns, **model):
    """Ask north for counts of a network of the researcher's own."""
    terms = replace(
        CollectiveBayesianNetwork(structure=dict.fromkeys(BITS, []))._terms(columns),
        model=LocalModels(
            [*model["parents"], []],
            [*model["counts"], np.ones(2)],
            {"north": model["cut"]},
        ),
    )
    with columns.federate(collective, terms) as federation:
        return federation.run()["local_counts"][: len(BITS)]


def all_parents():
    parents = [[] for _ in BITS]
    parents[-1] = list(range(len(BITS) - 1))
    shapes = [(2,)] * (len(BITS) - 1) + [(2,) * len(BITS)]
    return {"parents": parents, "counts": [np.ones(s) for s in shapes]}


def test_a_local_model_of_the_coordinators(bits, monkeypatch):
    open_it, codes = bits
    assert code_of(ask_local, open_it(), **all_parents(), cut=None) == "too-detailed"
    monkeypatch.setattr(_site, "check_table", lambda *arguments: None)
    counts = ask_local(open_it(), **all_parents(), cut=None)[-1]
    found = np.argwhere(counts == 1)
    assert len(found) > 20  # patients, all columns of theirs


def test_a_filter_that_leaves_one_patient(bits, monkeypatch):
    open_it, codes = bits
    # counts that make the all-zero patient, and nobody else, likely
    parents, n_zero = [[] for _ in BITS], np.array([1e6, 1.0])
    model = {"parents": parents, "counts": [n_zero] * len(BITS), "cut": -14.0}
    n_left = np.sum(codes[:, :-1].sum(axis=1) <= 0)
    assert n_left < 10
    with pytest.raises(ValueError, match="thresholds are for rows that are sent"):
        ask_local(open_it(), **model)
    monkeypatch.setattr(CollectiveTerms, "check", lambda self: None)
    assert code_of(ask_local, open_it(), **model) == "too-few-rows"
    monkeypatch.setattr(_site, "check_table", lambda me, n, m: None)
    assert ask_local(open_it(), **model)[0].sum() < 10


def without(monkeypatch, *rules):
    """The twin: sites without some of their rules."""
    for rule in rules:
        monkeypatch.delitem(RULES, rule)


def lonely(codes, columns):
    """Return patients whose values of some columns nobody else has."""
    held, numbers = np.unique(codes[:, columns], axis=0, return_counts=True)
    return held[numbers == 1]


def declare_few(columns):
    """Have four columns counted together, three of north and the one of south."""
    structure = {"h": ["a", "b", "c", "d"]}
    return CollectiveBayesianNetwork(structure=structure).fit(columns)


def test_small_cells_are_not_told(bits, monkeypatch):
    open_it, codes = bits
    assert code_of(declare_few, open_it("")) == "too-few-rows"
    columns = open_it("")
    columns._connection._introduction.limits = {}
    assert code_of(declare_few, columns) == "not-allowed"
    # the twin: patients who are alone in a cell, with what another hospital knows
    without(monkeypatch, "limits_raised")
    nothing = property(lambda me: 0, lambda me, n: None)
    monkeypatch.setattr(Me, "min_cell_count", nothing, raising=False)
    counts = declare_few(columns)._model.cross_counts[len(BITS)]
    alone = lonely(codes, [0, 1, 2, 3, -1])
    assert len(alone) > 2
    np.testing.assert_array_equal(np.argwhere(counts == 1), alone)


def test_small_cells_are_hidden(bits, monkeypatch):
    open_it, codes = bits
    order, opened = [*range(len(BITS) + 1)], []
    run = Coordinator.run

    def overhear(federation, **options):
        result = run(federation, **options)
        opened[:] = np.concatenate([table.ravel() for table in result["counts"]])
        return result

    def learn(columns):
        return PrivateK2StructureLearner(ordering=order, max_parents=1).fit(columns)

    monkeypatch.setattr(Coordinator, "run", overhear)
    few = np.minimum(codes.sum(axis=0), 60 - codes.sum(axis=0)).max()
    columns = open_it(f"min_cell_count = {few + 1}")
    model = learn(columns)
    assert f"in steps of {few + 1}" in str(
        [*model.ledger_.who_learns_what(), *model.ledger_.notes]
    )
    assert min(n for n in opened if n > 0) > few
    columns._connection._introduction.limits = {}
    assert code_of(learn, columns) == "not-allowed"
    # the twin: the coordinator's own limit, which is none
    without(monkeypatch, "limits_raised")
    learn(columns)
    assert min(n for n in opened if n > 0) <= few


def patients_apart(rows):
    """Ages of twelve patients of two hospitals, ten years apart, two stays each."""
    rng = np.random.default_rng(1)
    ages = (10.0 * np.arange(12) + rng.uniform(0, 5, 12)).round(3)
    for name in NAMES:
        mine = ages[NAMES.index(name) % 2 :: 2]
        rows[name] = np.repeat(mine, 2)[:, None].tolist()
    return ages


def test_a_model_with_as_many_numbers_as_rows(numbers, monkeypatch):
    open_it, rows = numbers
    ages = patients_apart(rows)
    # a steward who forgot min_rows: a component may be about one patient
    model = PPEMGaussianMixture(
        12,
        min_rows=1,
        means_init=10.0 * np.arange(12)[:, None] + 2.5,
        precisions_init=np.full((12, 1, 1), 0.3),
        weights_init=np.full(12, 1 / 12),
        backend="masking",
    )

    def fit(handle):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(handle)

    rows = open_it(2, "max_exact_numbers = 1", min_rows=1)
    assert code_of(fit, rows) == "budget-exceeded"
    # the twin: every component is a patient
    announce = Account.announce
    monkeypatch.setattr(Account, "announce", lambda self, n, most: announce(self, n))
    fit(rows)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), ages, atol=1e-3)


def test_noise_for_rows_shows_a_person_of_many(numbers, tmp_path, monkeypatch):
    open_it, rows = numbers
    # one patient of north has 20 of its 40 stays, and all that last ten days
    for name in NAMES:
        is_theirs = [name == "north" and i < 20 for i in range(40)]
        people = ["p7" if mine else f"{name}{i}" for i, mine in enumerate(is_theirs)]
        rows[name] = [[10.0 * mine, who] for mine, who in zip(is_theirs, people)]
    rules = 'individual = "who"\nbudget = {epsilon = 99.0, delta = 1e-3}'
    columns = {"days": '"float"', "who": '"key"'}

    def mean_days(handle, **persons):
        scaler = FederatedStandardScaler(epsilon=4.0, delta=1e-6, bounds=(0, 10))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return scaler.fit(handle, **persons).mean_[0]

    handle = open_it(rules=rules, columns=columns)
    assert code_of(mean_days, handle) == "not-allowed"
    # one stay in 141 people's, or none: the noise hides which
    assert mean_days(handle, individual="who") < 0.7
    # the twin: 20 stays in 160, with noise for one, at sites that were never asked
    for state in tmp_path.rglob("site.sqlite3"):
        state.unlink()
    without(monkeypatch, "persons_protected")
    assert mean_days(handle) > 0.7


def test_rows_and_persons_do_not_add_up_and_the_refusal_says_so(numbers):
    open_it, rows = numbers
    for name in NAMES:
        rows[name] = [[i, f"{name}{i // 2}"] for i in range(40)]
    columns = {"days": '"float"', "who": '"key"'}
    handle = open_it(rules="budget = {epsilon = 9.0}", columns=columns)
    scaler = FederatedStandardScaler(epsilon=1.0, bounds=(0, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler.fit(handle)
        with pytest.raises(PartyError, match="another unit of privacy") as e:
            scaler.fit(handle, individual="who")
        assert e.value.code == "other-unit"
        scaler.fit(handle)


def trust_cells(monkeypatch):
    """The twin: nobody counts what a column of few values tells."""
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])


def test_bins_around_one_patient(numbers, monkeypatch):
    open_it, rows = numbers
    oldest = max(rows["north"])[0]
    edges = np.array([-np.inf, oldest - 1e-6, oldest + 1e-6, np.inf])
    public = {"edges": [edges], "encode": "ordinal"}
    bins = FederatedKBinsDiscretizer._from_public_model(public, 1)
    bins.n_features_in_ = 1

    def count(handle):
        scaler = FederatedStandardScaler().fit(bins.transform(handle))
        first = scaler.mean_[0] * scaler.n_samples_
        second = (scaler.var_[0] + scaler.mean_[0] ** 2) * scaler.n_samples_
        # codes 0, 1, 2: two equations for how many have 1 and 2
        return 2 * first - second

    assert code_of(count, open_it()) == "unknown-step"
    # also bins of equal width, which anybody may choose
    edges[[0, -1]] = oldest - 3e-6, oldest + 3e-6
    assert code_of(count, open_it()) == "too-few-rows"
    trust_cells(monkeypatch)
    assert count(open_it()) == pytest.approx(1)


def test_bins_of_many_rows_are_answered(numbers):
    open_it, _ = numbers
    handle = open_it()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        binned = FederatedKBinsDiscretizer(2).fit(handle).transform(handle)
    scaler = FederatedStandardScaler().fit(binned)
    assert scaler.mean_[0] == pytest.approx(0.5, abs=0.02)


def regress_days(handle):
    """Regress days on age, of those whom a column of weights picks."""
    model = PrivateGLMMRegressor(min_rows=1)
    model.fit(handle._connection.rows(["age"]), y="days", sample_weight="picked")
    return [model.coef_[0], model.intercept_]


@pytest.mark.parametrize("n_picked", [1, 2])
def test_weights_that_leave_few_patients(numbers, monkeypatch, n_picked):
    open_it, rows = numbers
    columns = {"age": '"float"', "days": '"float"', "picked": '"float"'}
    table = np.random.default_rng(0).normal(60, 9, (4, 40, 2)).round(3)
    for name, held in zip(NAMES, table):
        weights = np.where(np.arange(40) < n_picked, 1.0, 1e-12)
        rows[name] = np.column_stack([held, weights]).tolist()
    assert code_of(regress_days, open_it(columns=columns)) == "too-few-rows"
    # the twin: the line through those patients, and nobody else
    trust_cells(monkeypatch)
    age, days = table[:, :n_picked].reshape(-1, 2).T
    line = regress_days(open_it(columns=columns))
    np.testing.assert_allclose(line, np.polyfit(age, days, 1), rtol=1e-4)


def test_a_description_tells_no_counts_as_means(numbers, monkeypatch):
    open_it, rows = numbers
    for name in NAMES:
        rows[name] = [["ny"[i == 7 and name == "north"]] for i in range(40)]

    def describe(*, as_numbers):
        handle = open_it(columns={"sick": '["n", "y"]'})
        if as_numbers:
            # the coordinator says that there are no categories
            handle.schema = {"sick": "float"}
        return handle.describe(quantiles=[])["sick"]

    assert describe(as_numbers=False).counts is None
    assert np.isnan(describe(as_numbers=True).mean)
    trust_cells(monkeypatch)
    assert describe(as_numbers=True).mean == pytest.approx(1 / 160)


def test_one_column_is_not_asked_twice(numbers, monkeypatch):
    open_it, _ = numbers
    handle = open_it()
    columns, *rest = handle._read_by()
    twice = {name: mine + mine for name, mine in columns.items()}
    monkeypatch.setattr(type(handle), "_read_by", lambda self: (twice, *rest))
    assert code_of(ask_sum, handle) == "refused"


def one_is_sick():
    """One patient of 40 has the disease: four of all."""
    return np.arange(40) == 7, np.arange(40) % 2 == 0


def one_is_sick_and_smokes():
    """Many are sick, many smoke, one does both."""
    sick = np.arange(40) < 20
    return sick, (np.arange(40) == 7) | (np.arange(40) >= 30)


@pytest.mark.parametrize("patients", [one_is_sick, one_is_sick_and_smokes])
def test_means_of_two_values_are_counts(numbers, monkeypatch, patients):
    open_it, rows = numbers
    sick, smokes = patients()
    for name in NAMES:
        rows[name] = [["ny"[a], int(b)] for a, b in zip(sick.astype(int), smokes)]
    columns = {"sick": '["n", "y"]', "smokes": '"int"'}

    def count(handle):
        pca, n = FederatedPCA().fit(handle), 4 * 40
        sums = n * pca.mean_
        axes = pca.components_
        covariance = axes.T * pca.explained_variance_ @ axes
        return np.append(sums, covariance[0, 1] * (n - 1) + sums.prod() / n)

    assert code_of(count, open_it(columns=columns)) == "too-few-rows"
    trust_cells(monkeypatch)
    truth = [sick.sum(), smokes.sum(), (sick & smokes).sum()]
    np.testing.assert_allclose(count(open_it(columns=columns)) / 4, truth, atol=1e-6)


def test_every_rule_says_what_it_is_for():
    assert all(rule.__doc__ for _, rule in RULES.values())
    assert {"min_rows", "min_cell_count"} <= set(Dataset.__dataclass_fields__)


def fit_scaler(rows, backend):
    return FederatedStandardScaler(backend=backend).fit(rows)


OTHER_KEYS = [
    CKKSBackend(preset="large"),
    PaillierBackend(key_size=2056),
]


@pytest.mark.parametrize("backend", OTHER_KEYS, ids=str)
def test_attack_parameters_of_keys_that_the_site_does_not_allow(numbers, backend):
    open_it, _ = numbers
    rows = open_it(rules='presets = {ckks = ["default", "fast"]}')
    with pytest.raises(PartyError) as caught:
        fit_scaler(rows, backend)
    assert caught.value.code == "not-allowed"


def test_attack_fewer_masks_than_the_site_wants(numbers):
    open_it, _ = numbers
    for rules, share in [("", 0.4), ('presets = {masking = ["all-pairs"]}', 0.5)]:
        with pytest.raises(PartyError) as caught:
            fit_scaler(open_it(rules=rules), MaskingBackend(max_colluders=share))
        assert caught.value.code == "not-allowed"
    fit_scaler(open_it(rules=rules), MaskingBackend(max_colluders=None))


@pytest.mark.parametrize("backend", [*OTHER_KEYS[:1], CKKSBackend("fast")], ids=str)
def test_without_the_rule_sites_take_any_parameters(numbers, backend, monkeypatch):
    open_it, _ = numbers
    without(monkeypatch, "strong_keys")
    fit_scaler(open_it(), backend)
