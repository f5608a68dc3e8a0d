"""Columns at sites: what they answer under noise, trust and charge; what is wrong."""

import json
import shutil
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import gate
from skprivbn.federation.site import _block, _host
from skprivbn.federation.site._account import Account
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.privacy import DistributedNoise
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    PrivateK2StructureLearner,
)
from skprivbn.structure.gaussian import _columns
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites, open_sites


@pytest.fixture
def data():
    return make_rows()


@pytest.fixture
def open_federation(tmp_path, data):
    def open_it(**options):
        write_tables(tmp_path, *data)
        return connect(make_sites(tmp_path, site_files(**options)), "icu")

    return open_it


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_sites_trust_half_of_all_to_add_noise_to_tables(open_federation, data):
    sites = open_federation(budget="budget = {epsilon = 2.0}")
    columns = sites.columns(list(data[3]), keys="person", reveal_membership=True)
    states = [2] * len(columns.feature_names)
    learner = PrivateK2StructureLearner(max_parents=1, epsilon=1.0, states=states)
    assert learner.fit(columns).privacy_spent_.epsilon == 1.0
    with pytest.raises(PartyError, match="refuses"):
        learner.set_params(min_honest=2).fit(columns)


def test_mappings_by_site_are_refused_as_arguments_of_columns(open_federation):
    sites = open_federation()
    with pytest.raises(PartitionError, match="columns= takes names of columns.*owner="):
        sites.columns({"north": ["smoker"], "south": ["cough"]})
    with pytest.raises(PartitionError, match="keys= takes names of columns"):
        sites.columns(keys={"north": "person", "south": "person"})


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(
        DistributedNoise, "share", lambda noise, shape: np.zeros(shape, dtype=int)
    )


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_private_tables_of_remote_columns(open_federation, data, no_noise):
    """A gap at a site counts as the first state: a refusal would tell of it."""
    people = data[3]
    exact = np.zeros((2, 2), dtype=int)
    people["cough"][0] = 0
    np.add.at(exact, (people["smoker"], people["cough"]), 1)
    people["cough"] = people["cough"].astype(object)
    people["cough"][0] = ""
    sites = open_federation(budget="budget = {epsilon = 2.0}")
    columns = sites.columns(list(people), keys="person", reveal_membership=True)
    learner = DPCGMLearner([("smoker", "cough")], states=[2] * 3).fit(columns)
    np.testing.assert_array_equal(learner.noisy_tables_["smoker", "cough"], exact)
    assert learner.ledger_.releases[0].protects == "values"
    assert learner.sample(5).shape == (5, 3)
    with pytest.raises(PartyError, match="refuses"):
        learner.set_params(min_honest=2).fit(columns)
    network = PrivateK2StructureLearner(max_parents=1, epsilon=1.0, states=[2] * 3)
    assert network.fit(columns).n_samples_ == exact.sum()
    with pytest.raises(PartyError, match="budget"):
        learner.set_params(min_honest=None).fit(columns)


LEARNERS = {
    "k2": PrivateK2StructureLearner(ordering=[0, 1]),
    "both kinds": FederatedBayesianNetwork(),
}
FORGETFUL = LEARNERS | {
    "collective": CollectiveBayesianNetwork(),
    "gaussian": FederatedGaussianBayesianNetwork(),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize(
    "spelling, claims, code, columns",
    [
        ("{}", lambda i: i % 2, None, ()),
        ("0{}", lambda i: i % 2, "few-common", ()),
        ("{}", lambda i: i % 2 + 0.5, "invalid-data", ("claims",)),
        ("{}", lambda i: int(i < 4), "too-detailed", ("claims",)),
    ],
)
def test_what_is_wrong_with_columns_is_said(
    tmp_path, learner, spelling, claims, code, columns
):
    rows = range(60)
    tables = {
        "bank": [[f"DE{i}", i % 3 % 2] for i in rows],
        "insurer": [[f"DE{spelling.format(i)}", claims(i)] for i in rows],
    }
    kinds = {
        name: {"person": '"key"', column: '"float"'}
        for name, column in (("bank", "late"), ("insurer", "claims"))
    }
    names = [type(learner).__name__ for learner in LEARNERS.values()]
    federation = open_sites(tmp_path, tables, kinds, names)
    X = federation.columns(keys="person", reveal_membership=True)
    if code is None:
        assert learner.fit(X).n_samples_ == 60
        return
    with pytest.raises(PartyError) as caught:
        learner.fit(X)
    assert (caught.value.code, caught.value.columns) == (code, columns)


@pytest.mark.parametrize("learner", FORGETFUL.values(), ids=FORGETFUL)
def test_whoever_forgot_the_keys_is_told_and_asks_again(tmp_path, learner):
    """Of records that are not aligned nothing is told, and nothing remembered."""
    flags = np.random.default_rng(0).integers(0, 2, (2, 300)).tolist()
    tables = {
        "bank": [[f"DE{i}", late] for i, late in enumerate(flags[0])],
        "insurer": [[f"DE{i}", claims] for i, claims in enumerate(flags[1][:-1])],
    }
    kinds = {
        name: {"person": '"key"', column: '"float"'}
        for name, column in (("bank", "late"), ("insurer", "claims"))
    }
    federation = open_sites(tmp_path, tables, kinds, [type(learner).__name__])
    with pytest.raises(PartyError, match="say keys=") as caught:
        learner.fit(federation.columns())
    assert caught.value.code == "not-aligned"
    columns = federation.columns(keys="person", reveal_membership=True)
    assert learner.fit(columns).n_samples_ == 299


def score_one_person(folder):
    """Score columns under a network that is even but for what one person has.

    Returns what the score tells, and the truth.
    """
    rows = np.arange(300)
    known = np.column_stack([rows % 7, rows % 43 % 6, rows % 8])
    claims = np.random.default_rng(0).integers(0, 2, 300)
    assert (known == known[7]).all(axis=1).sum() == 1
    names, sizes = ["u", "v", "w", "claims"], [7, 6, 8, 2]
    kinds = [json.dumps([str(label) for label in range(n)]) for n in sizes]
    federation = open_sites(
        folder,
        {"bank": known.tolist(), "insurer": claims[:, None].tolist()},
        {"bank": dict(zip(names[:3], kinds)), "insurer": {"claims": kinds[3]}},
        ["PrivateK2StructureLearner"],
    )
    columns = federation.columns()
    learner = PrivateK2StructureLearner(ordering=names, max_parents=1).fit(columns)
    # what was learnt may be scored
    learner.score(columns)
    tables = {name: np.full(n, 1 / n) for name, n in zip(names, sizes)}
    tables["claims"] = np.full(sizes, 0.5)
    even = -300 * np.log(sizes).sum()
    tables["claims"][tuple(known[7])] = [0.9, 0.1]
    parents = dict.fromkeys(names, []) | {"claims": names[:3]}
    states = learner.network_.states
    learner.network_ = BayesianNetwork(names, states, parents, tables)
    told = 300 * learner.score(columns) - even
    return told, np.log([1.8, 0.2][claims[7]])


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_attack_a_made_up_network_scores_one_person(tmp_path):
    with pytest.raises(PartyError) as caught:
        score_one_person(tmp_path)
    assert caught.value.code == "unknown-step"


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_without_asking_where_networks_come_from_the_person_is_read(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(_block, "check_models", lambda *arguments: None)
    told, expected = score_one_person(tmp_path)
    assert told == pytest.approx(expected, abs=1e-3)


SCORED = {
    "collective": CollectiveBayesianNetwork(alpha=0.25),
    "k2": PrivateK2StructureLearner(ordering=[0, 1]),
    "gaussian": FederatedGaussianBayesianNetwork("bic"),
}


@pytest.mark.filterwarnings("ignore:this is the second fit")
@pytest.mark.parametrize("learner", SCORED.values(), ids=SCORED)
def test_networks_that_sites_have_learnt_are_scored(tmp_path, learner):
    rng = np.random.default_rng(0)
    late = rng.integers(0, 2, 300)
    claims = np.where(rng.random(300) < 0.8, late, 1 - late)
    if learner is SCORED["gaussian"]:
        late, claims = late + rng.normal(size=300), claims + rng.normal(size=300)
    tables = {"bank": late[:, None].tolist(), "insurer": claims[:, None].tolist()}
    kinds = {"bank": {"late": '"float"'}, "insurer": {"claims": '"float"'}}
    federation = open_sites(tmp_path, tables, kinds, [type(learner).__name__])
    columns = federation.columns()
    model = clone(learner).fit(columns)
    expected = model.score(np.column_stack([late, claims]))
    assert model.score(columns) == pytest.approx(expected, abs=1e-4)
    model.network_ = replace(model.network_, **change(model))
    with pytest.raises(PartyError) as caught:
        model.score(columns)
    assert caught.value.code == "unknown-step"


def change(model):
    """Return a part of a network that is a little other than what was found."""
    network = model.network_
    if hasattr(network, "cpts"):
        node = network.nodes[-1]
        table = network.cpts[node] * [0.99, 1.0]
        table /= table.sum(axis=-1, keepdims=True)
        return {"cpts": network.cpts | {node: table}}
    return {"variances": network.variances * 1.01}


def read_from_alike(folder, monkeypatch):
    """Fit; the bank, whose columns differ in the first record, reads the insurer's."""
    first, claims = np.random.default_rng(0).normal(size=(2, 300))
    second, read = first + (np.arange(300) == 0), []
    tables = {
        "bank": np.column_stack([first, second]).tolist(),
        "insurer": claims[:, None].tolist(),
    }
    kinds = {
        "bank": {"first": '"float"', "second": '"float"'},
        "insurer": {"claims": '"float"'},
    }
    honest = _columns.can_be_correlations
    monkeypatch.setattr(
        _columns,
        "can_be_correlations",
        lambda found: read.append(found) or honest(found),
    )
    names = ["FederatedGaussianBayesianNetwork"]
    columns = open_sites(folder, tables, kinds, names).columns()
    FederatedGaussianBayesianNetwork().fit(columns)
    # the insurer's scale is part of the result
    of_bank = read[0][:2, 2] * [first.std(), second.std()]
    return 300 * (of_bank[1] - of_bank[0]) * claims.std() + claims.mean(), claims[0]


def test_attack_products_of_two_columns_that_differ_in_one_record(
    tmp_path, monkeypatch
):
    with pytest.raises(PartyError) as caught:
        read_from_alike(tmp_path, monkeypatch)
    assert (caught.value.party, caught.value.code) == ("bank", "too-few-rows")
    assert caught.value.columns == ("first", "second")


def test_without_looking_at_combinations_the_record_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "check_shares", lambda *arguments: None)
    value, expected = read_from_alike(tmp_path, monkeypatch)
    assert value == pytest.approx(expected, abs=0.05)


def read_from_two_fits(folder, n_gone, keys=("person", "person")):
    """Fit twice; between the fits the bank leaves out its first records.

    Returns what the two answers differ by, and the insurer's values of these records.
    """
    late, claims = np.random.default_rng(0).normal(size=(2, 300))
    tables = {
        name: [[f"DE{i}", value] for i, value in enumerate(column)]
        for name, column in (("bank", late), ("insurer", claims))
    }
    kinds = {
        "bank": {"person": '"key"', "late": '"float"'},
        "insurer": {"person": '"key"', "claims": '"float"'},
    }
    names, totals = ["FederatedGaussianBayesianNetwork"], []
    federation = open_sites(folder, tables, kinds, names)
    bank = folder / "bank" / "icu.csv"
    for n_left_out, key in zip((0, n_gone), keys):
        lines = bank.read_text().splitlines()
        bank.write_text("\n".join([lines[0], *lines[1 + n_left_out :]]) + "\n")
        # who deviates does not remember what was asked
        shutil.rmtree(bank.parent / "skprivbn_state", ignore_errors=True)
        columns = federation.columns(keys=key, reveal_membership=True)
        found = FederatedGaussianBayesianNetwork().fit(columns)
        assert found.n_samples_ == 300 - n_left_out
        totals.append(found.n_samples_ * found.network_.mean[1])
    return totals[0] - totals[1], claims[:n_gone].sum()


@pytest.mark.filterwarnings("ignore:this is the second fit")
@pytest.mark.parametrize("keys", [("person", "person"), (None, "person")])
def test_attack_a_peer_that_leaves_one_record_out_of_the_second_fit(tmp_path, keys):
    with pytest.raises(PartyError) as caught:
        read_from_two_fits(tmp_path, 1, keys)
    assert (caught.value.party, caught.value.code) == ("insurer", "changed-little")


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_without_comparing_common_records_the_bank_reads_one(tmp_path, monkeypatch):
    monkeypatch.setattr(Account, "hold_records", lambda self, joined=None: None)
    value, expected = read_from_two_fits(tmp_path, 1)
    assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.filterwarnings("ignore:this is the second fit")
@pytest.mark.parametrize("n_gone", [0, 20])
def test_the_same_common_records_and_many_others_are_answered(tmp_path, n_gone):
    value, expected = read_from_two_fits(tmp_path, n_gone)
    assert value == pytest.approx(expected, abs=1e-9)


def test_common_records_that_are_gone_when_they_are_remembered(tmp_path, monkeypatch):
    hold = Account.hold_records

    def lose_a_record(self, joined=None):
        path = tmp_path / "insurer" / "icu.csv"
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines[:-1]) + "\n")
        hold(self, joined)

    monkeypatch.setattr(Account, "hold_records", lose_a_record)
    with pytest.raises(PartyError) as caught:
        read_from_two_fits(tmp_path, 0)
    assert (caught.value.party, caught.value.code) == ("insurer", "busy")


def join_by_labels(folder):
    """Join by labels, of which the bank leaves one out in the second fit."""
    labels = [f"DE{i}" for i in range(300)]
    values = np.random.default_rng(0).normal(size=(2, 300))
    columns = {"bank": "late", "insurer": "claims"}
    tables = {
        name: list(map(list, zip(labels, column)))
        for name, column in zip(columns, values.tolist())
    }
    kinds = {
        name: {"person": json.dumps(labels), column: '"float"'}
        for name, column in columns.items()
    }
    names, found = ["FederatedGaussianBayesianNetwork"], []
    X = open_sites(folder, tables, kinds, names).columns(list(columns.values()))
    # the package would not ask so
    X.keys, X.has_keys, X.reveal_membership = "person", True, True
    bank = folder / "bank" / "icu.csv"
    for n_left_out in range(2):
        lines = bank.read_text().splitlines()
        bank.write_text("\n".join([lines[0], *lines[1 + n_left_out :]]) + "\n")
        shutil.rmtree(bank.parent / "skprivbn_state", ignore_errors=True)
        found.append(FederatedGaussianBayesianNetwork().fit(X).n_samples_)
    return found


def test_attack_records_joined_by_a_column_that_is_no_key(tmp_path):
    with pytest.raises(PartyError) as caught:
        join_by_labels(tmp_path)
    assert caught.value.code == "unknown-dataset"


@pytest.mark.filterwarnings("ignore:this is the second fit")
def test_without_asking_for_keys_labels_join_one_record_less(tmp_path, monkeypatch):
    monkeypatch.setattr(_host, "_may_be", lambda role, kind: True)
    # one defence alone: records are not found again by labels, and not remembered
    with pytest.raises(PartyError) as caught:
        join_by_labels(tmp_path)
    assert caught.value.code == "busy"
    monkeypatch.setattr(Account, "hold_records", lambda self, joined=None: None)
    assert join_by_labels(tmp_path) == [300, 299]


def count_of_two_holders(folder, n_both):
    """Fit a Gaussian network of flags; return how many have both, off its moments."""
    late = np.arange(300) < 60
    claims = (np.arange(300) >= 60 - n_both) & (np.arange(300) < 130)
    tables = {
        name: [[int(flag), round(x, 3)] for flag, x in zip(flags, noise)]
        for name, flags, noise in zip(
            ("bank", "insurer"),
            (late, claims),
            np.random.default_rng(0).normal(size=(2, 300)),
        )
    }
    kinds = {
        "bank": {"late": '"float"', "income": '"float"'},
        "insurer": {"claims": '"float"', "premium": '"float"'},
    }
    names = ["FederatedGaussianBayesianNetwork"]
    columns = open_sites(folder, tables, kinds, names).columns()
    # every edge, so that the network has all moments
    required = list(combinations(columns.feature_names, 2))
    found = FederatedGaussianBayesianNetwork(
        "bic", search_params={"required_edges": required}
    ).fit(columns)
    network, flags = found.network_, [0, 2]
    products = network.covariance + np.outer(network.mean, network.mean)
    return 300 * products[np.ix_(flags, flags)][0, 1]


@pytest.mark.parametrize("n_both", [0, 5])
def test_flags_that_enough_records_have_together_are_told(tmp_path, n_both):
    assert count_of_two_holders(tmp_path, n_both) == pytest.approx(n_both, abs=0.05)


def test_attack_a_small_count_read_off_a_covariance_of_two_holders(tmp_path):
    with pytest.raises(PartyError) as caught:
        count_of_two_holders(tmp_path, 3)
    assert caught.value.code == "too-few-rows"
    assert caught.value.columns in [("late",), ("claims",)]


def test_without_looking_on_shares_the_covariance_counts(tmp_path, monkeypatch):
    def nothing(me, talk, links, own):
        yield from ()

    monkeypatch.setattr(_columns, "refuse_small_pairs", nothing)
    assert count_of_two_holders(tmp_path, 3) == pytest.approx(3, abs=0.05)
