"""What a site allows, refuses, charges and writes down, on any engine."""

import importlib
import pkgutil
import warnings
from base64 import b64decode, b64encode
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import skprivbn
from skprivbn.crypto.certificates import vouch
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import (
    Program,
    decode,
    encode,
)
from skprivbn.federation._models import PROTOCOLS, announced
from skprivbn.federation.site import _question
from skprivbn.federation.site._file import Dataset, SiteFile
from skprivbn.federation.site._site import MEET
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedStandardScaler,
)
from skprivbn.privacy import PrivacyAccountant
from skprivbn.programs import MomentsTerms, moments
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    PrivateK2StructureLearner,
)
from tests.federation.flare.hospitals import (
    MARKER,
    make_rows,
    outcome,
    site_files,
    write_tables,
)
from tests.federation.hostile import HostileTerms
from tests.federation.site.loopback import (
    JOB,
    Authority,
    LoopbackSession,
    audit,
    charges,
    connect,
    make_sites,
)

BUDGET = "budget = {epsilon = 1.0, delta = 1e-5}"


@pytest.fixture
def data():
    return make_rows()


@pytest.fixture
def open_federation(tmp_path, data):
    def open_it(dataset="icu", **options):
        write_tables(tmp_path, *data)
        return connect(make_sites(tmp_path, site_files(**options)), dataset)

    return open_it


def shape(ledger):
    """What a ledger says, without the terms, which name remote data."""
    # sites also count who moved between clusters
    longer = ("cluster_sizes", "cluster_sums", "start")
    return [
        (
            e.operation,
            e.sender,
            e.receiver,
            None if e.operation in longer else e.n_bytes,
            e.kind,
            e.tells,
        )
        for e in ledger.entries
        if e.operation != "session.join" or e.receiver == "coordinator"
    ]


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_a_remote_fit_is_the_fit_in_process(open_federation, data, backend):
    X, _, party, _ = data
    model = PPEMGaussianMixture(3, backend=backend, random_state=0)
    rows = open_federation().rows(["a", "b"])
    model.fit(rows)
    expected = PPEMGaussianMixture(3, backend=backend, random_state=0)
    expected.fit(X, party=party)
    np.testing.assert_allclose(model.means_, expected.means_, rtol=1e-9)
    np.testing.assert_allclose(model.covariances_, expected.covariances_, rtol=1e-7)
    assert list(model.feature_names_in_) == ["a", "b"]
    if backend == "masking":  # CKKS keys compress to random lengths
        assert shape(model.ledger_) == shape(expected.ledger_)
    assert model.score(rows) == pytest.approx(expected.score(X), abs=1e-9)


def test_remote_columns_give_the_structure_in_process(open_federation, data):
    people = data[3]
    federation = open_federation()
    columns = federation.columns(list(people), keys="person", reveal_membership=True)
    assert columns.owners == {"smoker": "north", "asthma": "north", "cough": "south"}
    remote = PrivateK2StructureLearner(max_parents=1).fit(columns)
    local = PrivateK2StructureLearner(
        parties={"north": [0, 1], "south": [2]}, max_parents=1
    ).fit(np.column_stack(list(people.values())))
    np.testing.assert_array_equal(remote.adjacency_matrix_, local.adjacency_matrix_)
    assert remote.parents_["cough"] == ["smoker"]
    remote = FederatedGaussianBayesianNetwork("bic").fit(
        federation.columns(list(people))
    )
    local = FederatedGaussianBayesianNetwork(
        "bic", parties={"north": [0, 1], "south": [2]}
    ).fit(np.column_stack(list(people.values())))
    # of equivalent networks, rounding chooses one
    np.testing.assert_array_equal(remote.cpdag_, local.cpdag_)


def test_categories_that_no_record_has_are_known_all_the_same(tmp_path, data):
    people = data[3] | {"asthma": np.zeros_like(data[3]["asthma"])}
    write_tables(tmp_path, *data[:3], people)
    columns = connect(make_sites(tmp_path, site_files()), "icu").columns(list(people))
    model = CollectiveBayesianNetwork(random_state=0).fit(columns)
    assert model.network_.states["asthma"] == (0, 1)


def test_categories_and_columns_beside_the_rows(open_federation, data):
    X, ward, party, _ = data
    federation = open_federation()
    with pytest.raises(PartitionError, match="asthma.*differently"):
        federation.rows()
    rows = federation.rows(["a", "b", "ward"])
    scaler = FederatedStandardScaler().fit(rows)
    expected = FederatedStandardScaler().fit(np.column_stack([X, ward]), party=party)
    np.testing.assert_allclose(scaler.mean_, expected.mean_, rtol=1e-12)
    with pytest.raises(PartitionError, match="y must be the name of a column"):
        rows.checked({"y": ward}, as_float=True, finite=True)
    with pytest.raises(PartitionError, match="keys, which name people"):
        rows.checked({"cluster": "person"}, as_float=True, finite=True)


def test_outcomes_clusters_and_series_are_columns_at_the_sites(open_federation, data):
    X, ward, party, _ = data
    labels = np.array(["surgery", "medicine"])[ward]
    rows = open_federation().rows(["a", "b"])
    remote, local = PrivateGLMMClassifier(), PrivateGLMMClassifier()
    remote.fit(rows, y="died", cluster="ward")
    local.fit(X, outcome(X), cluster=labels, party=party)
    np.testing.assert_allclose(remote.coef_, local.coef_, rtol=1e-6)
    remote, local = FederatedDynotears(max_iter=2), FederatedDynotears(max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remote.fit(rows, series="ward")
        local.fit(X, series=np.char.add(party, labels), party=party)
    np.testing.assert_allclose(remote.weights_, local.weights_, atol=1e-9)


def test_a_site_does_not_show_keys_whatever_the_coordinator_thinks(open_federation):
    federation = open_federation()
    rows = RemoteRows(federation, "icu", federation.sites, {"a": "float", "b": "float"})
    rows.aligned = {"cluster": "person", "y": "died"}
    with pytest.raises(PartyError) as caught:
        rows.federate(moments, MomentsTerms("none")).__enter__()
    assert caught.value.code == "unknown-dataset"


def test_rows_stay_where_they_are(open_federation):
    rows = open_federation().rows(["a", "b"])
    with pytest.raises(PartitionError, match="stay at the sites"):
        np.asarray(rows)
    with pytest.raises(PartitionError, match="do not disclose their numbers of rows"):
        len(rows)
    model = FederatedGaussianBayesianNetwork().fit(rows)
    with pytest.raises(
        PartitionError, match="needs local rows. Take score and predict"
    ):
        model.network_.predict(rows)
    with pytest.raises(PartitionError, match="RemoteRows.*columns held"):
        PrivateK2StructureLearner().fit(rows)
    with pytest.raises(PartitionError, match="'remark'"):
        open_federation().rows(["a", "remark"])


def test_refusals(open_federation, tmp_path):
    with pytest.raises(PartyError, match="no such dataset"):
        open_federation("other")
    federation = open_federation()
    rows = federation.rows(["a", "b"])
    with (
        pytest.warns(UserWarning, match="plaintext"),
        pytest.raises(PartyError, match="does not allow this estimator or backend"),
    ):
        FederatedStandardScaler(backend="plaintext").fit(rows)
    texts = site_files()
    text = {n: t.replace("min_rows = 5", "min_rows = 61") for n, t in texts.items()}
    few = connect(make_sites(tmp_path, text), "icu").rows(["a", "b"])
    with pytest.raises(PartyError, match="fewer rows"):
        FederatedStandardScaler().fit(few)
    text = {n: t.replace("parties = 2", "parties = 4") for n, t in texts.items()}
    lonely = connect(make_sites(tmp_path, text), "icu").rows(["a", "b"])
    with pytest.raises(PartyError, match="roster is smaller"):
        FederatedStandardScaler().fit(lonely)


def test_an_estimator_that_the_file_does_not_name_is_refused(tmp_path, data):
    write_tables(tmp_path, *data)
    files = {
        name: text.replace('    "PPEMGaussianMixture",\n', "")
        for name, text in site_files().items()
    }
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    model = PPEMGaussianMixture(2)
    with pytest.raises(PartyError, match="does not allow") as caught:
        model.fit(rows)
    assert caught.value.code == "not-allowed"
    assert not hasattr(model, "means_")
    last = audit(tmp_path, "north")[-1]
    assert (last["event"], last["outcome"]) == ("refused", "not-allowed")
    assert last["protocol"].endswith("_em:em")


def test_options_that_show_rows_need_the_sites_consent(tmp_path, data):
    write_tables(tmp_path, *data)
    texts = site_files()
    model = PPEMGaussianMixture(
        2, init_params="random_from_data", max_iter=1, tol=10.0, random_state=0
    )
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["a", "b"])
    with (
        pytest.warns(UserWarning, match="shows 2 rows"),
        pytest.raises(PartyError, match="does not allow"),
    ):
        model.fit(rows)
    allow = ("min_rows = 5", "allow_rows = true")
    texts = {name: text.replace(*allow) for name, text in texts.items()}
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["a", "b"])
    with (
        pytest.warns(UserWarning, match="shows 2 rows"),
        pytest.warns(ConvergenceWarning),
    ):
        model.fit(rows)
    assert model.n_iter_ == 1


def test_exact_fits_are_counted_per_version_of_the_data(tmp_path, data):
    write_tables(tmp_path, *data)
    texts = site_files(max_exact_fits=2)
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["a", "b"])
    for _ in range(2):
        FederatedStandardScaler().fit(rows)
    # also for another coordinator's session, which starts new processes
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["a"])
    with pytest.raises(PartyError, match="used up"):
        FederatedStandardScaler().fit(rows)
    # other rows are no new version, nor is a new version of the same rows
    newer = {n: t.replace("min_r", 'version = "2"\nmin_r', 1) for n, t in texts.items()}
    newer = connect(make_sites(tmp_path, newer), "icu").rows(["a", "b"])
    with pytest.raises(PartyError, match="used up"):
        FederatedStandardScaler().fit(newer)
    write_tables(tmp_path, *make_rows(seed=1))
    with pytest.raises(PartyError, match="used up"):
        FederatedStandardScaler().fit(rows)
    FederatedStandardScaler().fit(newer)


def test_rounds_of_a_fit_are_limited(tmp_path, data):
    write_tables(tmp_path, *data)
    limited = "max_exact_fits = 9\nmax_rounds = 6"
    files = {
        name: text.replace("max_exact_fits = 9", limited)
        for name, text in site_files(max_exact_fits=9).items()
    }
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    FederatedStandardScaler().fit(rows)
    mixture = PPEMGaussianMixture(2, tol=0, max_iter=10, backend="masking")
    with pytest.raises(PartyError, match="more rounds"):
        mixture.fit(rows)


def test_alignments_of_records_are_counted(tmp_path, data):
    # who may align again and again, with keys of its choice, finds out who is there
    write_tables(tmp_path, *data)
    sites = make_sites(tmp_path, site_files(max_exact_fits=1))
    sites = {name: sites[name] for name in ("north", "south")}
    columns = connect(sites, "icu").columns(
        ["smoker", "cough"], keys="person", reveal_membership=True
    )
    learner = PrivateK2StructureLearner(max_parents=1).fit(columns)
    assert learner.n_samples_ == 60
    with pytest.raises(PartyError, match="used up"):
        learner.fit(columns)


def noisy_estimators():
    bounds = ([-5, -5], [15, 15])
    return [
        FederatedStandardScaler(epsilon=0.5, delta=1e-6, bounds=bounds),
        FederatedKBinsDiscretizer(epsilon=0.5, delta=1e-6, bounds=bounds),
        FederatedGaussianBayesianNetwork(epsilon=0.5, delta=1e-6, bounds=bounds),
        PPEMGaussianMixture(
            2, epsilon=0.5, delta=1e-6, bounds=bounds, max_iter=2, random_state=0
        ),
    ]


@pytest.mark.parametrize(
    "estimator", noisy_estimators(), ids=lambda e: type(e).__name__
)
def test_noisy_fits_are_charged_to_the_sites_budget(tmp_path, data, estimator):
    write_tables(tmp_path, *data)
    files = site_files(max_exact_fits=0, budget=BUDGET)
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(rows)
    asked = [e for e in audit(tmp_path, "west") if e["event"] == "asked"]
    assert asked[-1]["epsilon"] == pytest.approx(0.5)
    (charge,) = charges(tmp_path, "west")
    assert (charge["epsilon"], charge["unit"]) == (pytest.approx(0.5), "rows")
    # what is left does not pay for a third fit, whoever asks
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PartyError, match="used up"):
            for _ in range(3):
                estimator.set_params(epsilon=0.9).fit(rows)
    with pytest.raises(PartyError, match="used up"):
        FederatedStandardScaler().fit(rows)


def test_noisy_tables_are_charged(tmp_path, data):
    write_tables(tmp_path, *data)
    files = site_files(max_exact_fits=0, budget=BUDGET)
    rows = connect(make_sites(tmp_path, files), "icu").rows(["ward"])
    model = DPCGMLearner(epsilon=0.5, cliques=[(0,)], states=[(0, 1)])
    model.fit(rows)
    asked = [e for e in audit(tmp_path, "west") if e["event"] == "asked"]
    assert asked[-1]["epsilon"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"min_honest": 3},
        {"min_honest": 0},
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": -1.0},
        {"unit": 1},
    ],
)
def test_noise_that_is_worth_less_than_it_claims_is_refused(open_federation, change):
    rows = open_federation(budget=BUDGET).rows(["a", "b"])
    bounds = np.array([[-5.0, -5.0], [15.0, 15.0]])
    terms = HostileTerms(
        MomentsTerms("none", bounds, epsilon=0.5, delta=1e-6), **change
    )
    with pytest.raises(PartyError) as caught:
        rows.federate(moments, terms, "masking").__enter__()
    assert caught.value.operation == "session.join"


def test_noise_is_paid_for_by_the_budget(tmp_path, data):
    write_tables(tmp_path, *data)
    files = site_files(max_exact_fits=0, budget=BUDGET)
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a"])
    terms = MomentsTerms("none", np.array([[-5.0], [15.0]]), epsilon=0.5, delta=1e-6)
    with rows.federate(moments, terms, "masking") as federation:
        federation.run()


def test_two_names_of_a_file_share_what_it_allows(tmp_path, data):
    write_tables(tmp_path, *data)
    (tmp_path / "north" / "link.csv").symlink_to(tmp_path / "north" / "stays.csv")
    texts = site_files(max_exact_fits=1, budget=BUDGET)
    for name, text in texts.items():
        start, end = text.index("[datasets.icu]"), text.index("[datasets.broken]")
        again = text[start:end].replace("datasets.icu", "datasets.again")
        if name == "north":
            again = again.replace("stays.csv", "link.csv")
        texts[name] = text + again
    sites = make_sites(tmp_path, texts)
    FederatedStandardScaler().fit(connect(sites, "icu").rows(["a"]))
    rows = connect(sites, "again").rows(["a"])
    with pytest.raises(PartyError, match="'north'.*used up"):
        FederatedStandardScaler().fit(rows)
    account = PrivacyAccountant(epsilon=9.0)
    noisy = FederatedStandardScaler(epsilon=0.7, bounds=(-5, 15), accountant=account)
    noisy.fit(rows)
    with pytest.raises(PartyError, match="'north'.*used up"):
        noisy.fit(connect(sites, "icu").rows(["a"]))
    differing = texts["south"].replace("epsilon = 1.0", "epsilon = 9.0", 1)
    (tmp_path / "site.toml").write_text(differing)
    with pytest.raises(PartitionError, match="the same file"):
        SiteFile.load(tmp_path / "site.toml")


def test_limits_of_sites_are_the_limits_of_fits(tmp_path, data):
    write_tables(tmp_path, *data)
    texts = site_files()
    texts["south"] = texts["south"].replace("min_rows = 5", "min_rows = 55")
    texts["west"] = texts["west"].replace("min_parties = 2", "min_parties = 3")
    federation = connect(make_sites(tmp_path, texts), "icu")
    rows = federation.rows(["a", "b"])
    # each of the three sites has 60 rows, enough for one cluster
    model = PPEMGaussianMixture(4, backend="masking", random_state=0)
    with pytest.raises(ValueError, match="min_rows=55"):
        model.fit(rows)
    glmm = PrivateGLMMClassifier(min_parties=2)
    with pytest.raises(PartyError, match="fewer rows"):
        glmm.fit(rows, y="died", cluster="ward")
    # whoever leaves the limits as they were is refused
    federation._introduction.limits = {}
    with pytest.raises(PartyError, match="'south'.*does not allow"):
        model.fit(rows)
    with pytest.raises(PartyError, match="does not allow"):
        glmm.fit(rows, y="died", cluster="ward")


def test_a_site_may_want_persons_protected_not_rows(tmp_path, data):
    write_tables(tmp_path, *data)
    texts = {
        name: text.replace("min_rows = 5", 'individual = "person"\nmin_rows = 5', 1)
        for name, text in site_files(budget=BUDGET).items()
    }
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward"])
    options = {"epsilon": 0.1, "cliques": [(0,)], "states": [(0, 1)]}
    DPCGMLearner(**options, contribution="clip").fit(rows, individual="person")
    for refused in (
        DPCGMLearner(**options),
        FederatedStandardScaler(epsilon=0.1, delta=1e-6, bounds=(0, 1)),
    ):
        with pytest.raises(PartyError, match="does not allow"):
            refused.fit(rows)
    # a coordinator names the column where the protocol ignores it
    named = rows.checked({"individual": "person"}, as_float=True, finite=True)
    terms = MomentsTerms("none", np.array([[0.0], [1.0]]), epsilon=0.1, delta=1e-6)
    with pytest.raises(PartyError, match="does not allow"):
        named.federate(moments, terms, "masking").__enter__()
    terms = replace(terms, protects="individuals")
    with named.federate(moments, terms, "masking") as federation:
        federation.run()
    # terms that bound persons whom nobody names
    with pytest.raises(PartyError, match="does not allow"):
        rows.federate(moments, terms, "masking").__enter__()
    scaler = FederatedStandardScaler(epsilon=0.1, delta=1e-6, bounds=(0, 1))
    scaler.fit(rows, individual="person")
    # the twin: a site without the rule lets noise for rows pass as noise for persons,
    # if its account has not counted persons before
    (tmp_path / "twin").mkdir()
    write_tables(tmp_path / "twin", *data)
    fresh = connect(make_sites(tmp_path / "twin", texts), "icu").rows(["ward"])
    with pytest.MonkeyPatch.context() as patched:
        patched.delitem(_question.RULES, "persons_protected")
        with pytest.raises(PartyError, match="budget"):
            FederatedStandardScaler(**scaler.get_params()).fit(rows)
        FederatedStandardScaler(**scaler.get_params()).fit(fresh)
    wrong = texts["north"].replace('individual = "person"', 'individual = "ward"')
    (tmp_path / "site.toml").write_text(wrong)
    with pytest.raises(PartitionError, match='declared as "key"'):
        SiteFile.load(tmp_path / "site.toml")


def raise_marker(self, columns, beside):
    raise ValueError(f"row 3 holds {MARKER}")


def warn_marker(self, columns, beside):
    warnings.warn(f"row 3 holds {MARKER}", stacklevel=1)
    raise MemoryError(MARKER)


@pytest.mark.filterwarnings("ignore:row 3")
@pytest.mark.parametrize("read", [None, raise_marker, warn_marker])
def test_no_text_of_an_error_leaves_a_site(tmp_path, data, monkeypatch, read):
    write_tables(tmp_path, *data)
    federation = connect(make_sites(tmp_path, site_files()), "broken")
    if read is not None:
        monkeypatch.setattr(Dataset, "read_rows", read)
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(federation.rows())
    assert caught.value.code == ("too-large" if read is warn_marker else "invalid-data")
    said = b"".join(federation._relay.session.transcript)
    log = (tmp_path / "north" / "skprivbn_audit.jsonl").read_text()
    assert MARKER.encode() not in said
    assert MARKER not in log + str(caught.value) + repr(caught.value.__context__)


class Impostor(LoopbackSession):
    """A relay that puts an identity of its own between the sites."""

    authority = None

    def do_app_command(self, job_id, command, data):
        if data["topic"] == MEET:
            vouchers = decode(b64decode(data["bodies"][0]))["vouchers"]
            for name in data["sites"]:
                other = next(peer for peer in vouchers if peer != name)
                forged = vouchers | {other: self.forge(other, vouchers[other])}
                body = encode({"vouchers": forged})
                data["sites"][name] = len(data["bodies"])
                data["bodies"].append(b64encode(body).decode())
        return super().do_app_command(job_id, command, data)

    def forge(self, name, voucher):
        return voucher | {"identity": Identity().public}


class OtherRoot(Impostor):
    """Has certificates of another root, for the right names."""

    def forge(self, name, voucher):
        certificate, key = Authority().issue(name)
        return vouch(certificate, key, Identity().public, JOB)


@pytest.mark.parametrize("relay", [Impostor, OtherRoot])
def test_a_relay_in_the_middle_is_noticed(tmp_path, data, relay):
    write_tables(tmp_path, *data)
    with pytest.raises(PartyError) as caught:
        connect(make_sites(tmp_path, site_files()), "icu", relay)
    assert caught.value.code == "not-authentic"


def test_a_roster_of_sites_that_never_met_is_refused(open_federation):
    federation = open_federation()
    rows = federation.rows(["a", "b"])
    rows.names = ("north", "south", "ghost")
    federation._relay.session.sites["ghost"] = federation._relay.session.sites["west"]
    with pytest.raises(PartyError) as caught:
        FederatedStandardScaler().fit(rows)
    assert caught.value.code == "not-authentic"


def test_leaving_ends_the_fit_at_the_sites(open_federation):
    federation = open_federation()
    rows = federation.rows(["a", "b"])
    fit = rows.federate(moments, MomentsTerms("none"), "masking")
    with fit:
        pass
    with pytest.raises(PartyError, match="refuses"):
        fit.run()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("min_parties = 2", "min_parties = 0"), "min_parties must be"),
        (("min_rows = 5", "min_rows = 0"), "min_rows must be"),
        (("min_rows = 5", "rows = 5"), "unknown entries"),
        (('a = "float"', 'a = "double"'), "column 'a' must be one of"),
        (('"FederatedPCA",', '"Unknown",'), "no such estimators"),
        (("min_rows = 5", 'backends = ["plaintext"]'), "backends must hide"),
        (("min_rows = 5", 'backends = "masking"'), "backends must be a list"),
        (("min_rows = 5", 'backends = ["party-masking"]'), "is now 'masking'"),
        (("min_rows = 5", "min_rows = "), "not valid TOML"),
        (('path = "stays.csv"', ""), "missing entries"),
    ],
)
def test_a_wrong_site_file_says_what_is_wrong(tmp_path, change, message):
    path = tmp_path / "site.toml"
    path.write_text(site_files()["north"].replace(*change))
    with pytest.raises(PartitionError, match=message):
        SiteFile.load(path)


def test_the_table_of_estimators_is_complete():
    listed = {
        program
        for estimator in announced(PROTOCOLS).values()
        for program in estimator.load().protocols
    }
    found = set()
    for info in pkgutil.walk_packages(skprivbn.__path__, "skprivbn."):
        if not info.name.endswith((".engine", ".__main__")):
            module = importlib.import_module(info.name)
            found |= {v for v in vars(module).values() if isinstance(v, Program)}
    assert found <= listed, "an estimator must name it in its `protocols`"
