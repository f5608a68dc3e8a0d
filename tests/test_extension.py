"""A distribution that is not this one: its estimators and its backend, everywhere.

The folder ``examples/extension``, installed into a temporary directory as by pip.
"""

import shutil
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.exceptions import BudgetExceededError, PartitionError, PartyError
from skprivbn.federation import _models
from skprivbn.federation.site import _host
from skprivbn.federation.site._account import Account
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.structure import FederatedGaussianBayesianNetwork
from tests.federation.flare.hospitals import (
    make_rows,
    outcome,
    site_files,
    write_tables,
)
from tests.federation.site.loopback import connect, make_sites, open_sites

SOURCE = Path(__file__).parents[1] / "examples" / "extension"
X, WARD, PARTY, PEOPLE = make_rows()
y = outcome(X)


@pytest.fixture
def extras(tmp_path, monkeypatch):
    """Install the distribution; return its package."""
    folder = tmp_path / "installed"
    shutil.copytree(SOURCE / "private_extras", folder / "private_extras")
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    info = folder / f"private_extras-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\n"
        f"Version: {project['version']}\n"
    )
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in entries.items())
            for group, entries in project["entry-points"].items()
        )
    )
    monkeypatch.syspath_prepend(folder)
    _models._all_announced.cache_clear()
    yield import_module("private_extras")
    for name in [n for n in sys.modules if n.startswith("private_extras")]:
        del sys.modules[name]
    _models._all_announced.cache_clear()


def federate(folder, *allowed, backend="ckks"):
    """Connect to three sites that allow something more."""
    write_tables(folder, X, WARD, PARTY, PEOPLE)
    more = "".join(f'    "{name}",\n' for name in allowed)
    texts = {
        name: text.replace("estimators = [\n", f"estimators = [\n{more}", 1).replace(
            "min_rows = 5\n", f'min_rows = 5\nbackends = ["masking", "{backend}"]\n', 1
        )
        for name, text in site_files().items()
    }
    texts = {name: 'results = "results"\n' + text for name, text in texts.items()}
    return connect(make_sites(folder, texts), "icu")


@pytest.mark.parametrize("backend", ["masking", "ckks", "pads"])
def test_estimators_and_a_backend_in_process(extras, backend):
    backend = extras.PadsBackend() if backend == "pads" else backend
    bayes = extras.FederatedNaiveBayes(backend).fit(X, y, party=PARTY)
    expected = GaussianNB().fit(X, y)
    np.testing.assert_allclose(bayes.theta_, expected.theta_, atol=1e-12)
    logistic = extras.FederatedLogisticRegression(backend=backend)
    logistic.fit(X, y, party=PARTY)
    expected = LogisticRegression(tol=1e-10).fit(X, y)
    np.testing.assert_allclose(logistic.coef_, expected.coef_, atol=1e-6)
    assert logistic.score(X, y) == expected.score(X, y)
    rows = {name: X[name == PARTY] for name in np.unique(PARTY)}
    beside = {name: y[name == PARTY] for name in np.unique(PARTY)}
    partition = HorizontalPartition(rows, y=beside)
    assert logistic.score(partition) == pytest.approx(expected.score(X, y))


def test_in_a_pipeline(extras):
    pipeline = make_pipeline(
        FederatedStandardScaler(), extras.FederatedLogisticRegression()
    )
    with config_context(enable_metadata_routing=True):
        pipeline.fit(X, y, party=PARTY)
    expected = LogisticRegression(tol=1e-10).fit(StandardScaler().fit_transform(X), y)
    np.testing.assert_allclose(pipeline[-1].coef_, expected.coef_, atol=1e-6)


def clusters_of(n_rows=6000):
    rng = np.random.default_rng(0)
    centres = np.array([[2.0, 3.0], [8.0, 7.0]])
    which = np.arange(n_rows) // 3 % 2
    return centres[which] + rng.laplace(scale=0.4, size=(n_rows, 2)), centres


def test_noise_in_process(extras):
    rows, centres = clusters_of()
    accountant = PrivacyAccountant(epsilon=5.0)
    model = extras.PrivateKMedians(
        epsilon=4.0, bounds=(0, 10), accountant=accountant
    ).fit(rows, party=np.arange(len(rows)) % 3)
    np.testing.assert_allclose(model.cluster_centers_, centres, atol=0.5)
    assert model.privacy_spent_.epsilon == accountant.spent().epsilon == 4.0
    assert model.predict([[1, 2], [9, 9]]).tolist() == [0, 1]
    with pytest.raises(BudgetExceededError):
        model.fit(rows, party=np.arange(len(rows)) % 3)


def test_noise_in_a_pipeline(extras):
    rows, centres = clusters_of()
    scaler = FederatedStandardScaler(epsilon=4.0, bounds=(0, 10))
    pipeline = make_pipeline(scaler, extras.PrivateKMedians(epsilon=4, bounds=(-2, 2)))
    with config_context(enable_metadata_routing=True):
        pipeline.fit(rows, party=np.arange(len(rows)) % 3)
    found = pipeline[0].inverse_transform(pipeline[1].cluster_centers_)
    np.testing.assert_allclose(found, centres, atol=0.6)


def test_more_steps_than_were_paid_for_are_refused(extras, monkeypatch):
    rows, _ = clusters_of(300)
    terms = sys.modules["private_extras._kmedians"].KMediansTerms
    # each step with the noise that all of them together were paid for
    monkeypatch.setattr(terms, "noise_of_a_step", terms.noise)
    model = extras.PrivateKMedians(epsilon=1.0, bounds=(0, 10))
    with pytest.raises(PartyError) as caught:
        model.fit(rows, party=np.arange(300) % 3)
    assert caught.value.code == "refused"


def test_noise_at_sites(extras, tmp_path):
    rows, _ = clusters_of(600)
    tables = {n: rows[i::3].tolist() for i, n in enumerate(("north", "south", "west"))}
    columns, name = {"a": '"float"', "b": '"float"'}, "PrivateKMedians"
    federation = open_sites(
        tmp_path,
        tables,
        columns,
        [f"{name} from private-extras==1.2.0"],
        "budget = {epsilon = 1.5}",
    )
    handle = federation.rows(["a", "b"])
    model = extras.PrivateKMedians(epsilon=1.0, bounds=(0, 10)).fit(handle)
    assert model.privacy_spent_.epsilon == 1.0
    assert model.cluster_centers_.shape == (2, 2)
    # the budget of the sites is spent
    again = extras.PrivateKMedians(epsilon=1.0, bounds=(0, 10))
    with pytest.raises(PartyError) as caught:
        again.fit(handle)
    assert caught.value.code == "budget-exceeded"


def test_a_backend_given_in_process_is_the_one_used(extras):
    asked = []

    class Watched(extras.PadsBackend):
        def setup(self, context):
            asked.append(context.name)
            return (yield from super().setup(context))

    extras.FederatedNaiveBayes(Watched()).fit(X, y, party=PARTY)
    assert sorted(asked) == sorted(set(PARTY))


def test_a_forged_total_of_this_backend_is_refused(extras):
    class Forging(extras.PadsBackend):
        def add_parts(self, columns):
            (part,) = super().add_parts(columns)
            return [bytes([part[0] ^ 1]) + part[1:]]

    with pytest.raises(PartyError) as caught:
        extras.FederatedLogisticRegression(backend=Forging()).fit(X, y, party=PARTY)
    assert caught.value.code == "not-authentic"


@pytest.mark.parametrize("backend", ["masking", "pads"])
def test_on_sites_the_result_is_the_same(extras, tmp_path, backend):
    federation = federate(
        tmp_path,
        "FederatedLogisticRegression from private-extras==1.2.0",
        "FederatedNaiveBayes from private-extras==1.2.0",
        backend="pads from private-extras==1.2.0",
    )
    rows = federation.rows(["a", "b"])
    backend = extras.PadsBackend() if backend == "pads" else backend
    logistic = extras.FederatedLogisticRegression(backend=backend)
    here = logistic.fit(X, y, party=PARTY).coef_
    at_sites = logistic.fit(rows, "died").coef_
    np.testing.assert_array_equal(at_sites, here)
    assert logistic.score(rows, "died") == pytest.approx(logistic.score(X, y))
    file = tmp_path / "north" / "results" / logistic.predict(rows).file
    *_, predicted = np.loadtxt(file, delimiter=",", skiprows=1, dtype=str).T
    expected = logistic.predict(X[PARTY == "north"]).astype(str)
    np.testing.assert_array_equal(predicted, expected)
    bayes = extras.FederatedNaiveBayes(backend)
    here = bayes.fit(X, y, party=PARTY).theta_
    np.testing.assert_array_equal(bayes.fit(rows, "died").theta_, here)


def test_a_site_that_does_not_allow_it_refuses(extras, tmp_path):
    federation = federate(tmp_path)
    with pytest.raises(PartyError) as caught:
        extras.FederatedNaiveBayes().fit(federation.rows(["a", "b"]), "died")
    assert caught.value.code == "not-allowed"
    other = federate(tmp_path, "FederatedNaiveBayes from private-extras==1.2.0")
    rows = other.rows(["a", "b"])
    extras.FederatedNaiveBayes().fit(rows, "died")
    for attempt in (
        lambda: extras.FederatedLogisticRegression().fit(rows, "died"),
        lambda: extras.FederatedNaiveBayes(extras.PadsBackend()).fit(rows, "died"),
    ):
        with pytest.raises(PartyError) as caught:
            attempt()
        assert caught.value.code == "not-allowed"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("FederatedNaiveBayes", "no such estimators"),
        ("FederatedNaiveBayes from private-extras==1.2.1", "version 1.2.0"),
        ("FederatedNaiveBayes from other==1.2.0", "no such estimators"),
        ("NaiveBayes from private-extras==1.2.0", "no such estimators"),
    ],
)
def test_what_is_not_installed_as_the_file_says_is_named(
    extras, tmp_path, name, message
):
    with pytest.raises(PartitionError, match=message):
        federate(tmp_path, name)


def open_small_sites(folder, n_columns=12, n_rows=24, rules=""):
    """Connect to three sites of few rows, whose files say nothing about details."""
    rng = np.random.default_rng(0)
    columns = {f"x{i}": '"float"' for i in range(n_columns)} | {"died": '"int"'}
    tables = {
        name: [[*rng.normal(size=n_columns), i % 2] for i in range(n_rows)]
        for name in ("north", "south", "west")
    }
    estimators = [
        "FederatedGaussianBayesianNetwork",
        "FederatedLogisticRegression from private-extras==1.2.0",
        "FederatedNaiveBayes from private-extras==1.2.0",
    ]
    federation = open_sites(folder, tables, columns, estimators, rules)
    return federation.rows(list(columns)[:-1])


@pytest.mark.parametrize("name", ["FederatedLogisticRegression", "FederatedNaiveBayes"])
def test_attack_an_estimator_that_does_not_say_how_much_it_tells(
    extras, tmp_path, monkeypatch, name
):
    """Its terms declare nothing: sites count what leaves."""
    rows = open_small_sites(tmp_path, rules="max_exact_numbers = 0.5")
    with pytest.raises(PartyError) as caught:
        FederatedGaussianBayesianNetwork().fit(rows)
    assert caught.value.code == "budget-exceeded"
    with pytest.raises(PartyError) as caught:
        getattr(extras, name)().fit(rows, "died")
    assert caught.value.code == "budget-exceeded"
    # the twin: nobody counts
    announce = Account.announce
    monkeypatch.setattr(Account, "announce", lambda self, n, most: announce(self, n))
    getattr(extras, name)().fit(rows, "died")


@pytest.mark.parametrize("most, is_told", [(3 / 24, False), (4 / 24, True)])
def test_numbers_that_leave_are_counted(extras, tmp_path, most, is_told):
    """In the end there are 3 coefficients and a number of iterations."""
    rows = open_small_sites(tmp_path, 2, rules=f"max_exact_numbers = {most}")
    if is_told:
        extras.FederatedLogisticRegression().fit(rows, "died")
        return
    with pytest.raises(PartyError) as caught:
        extras.FederatedLogisticRegression().fit(rows, "died")
    assert caught.value.code == "budget-exceeded"


def test_attack_sums_without_end(extras, tmp_path, monkeypatch):
    """Numbers that only sites read are bounded in each session."""
    rows = open_small_sites(tmp_path, 2)
    monkeypatch.setattr(_host, "MAX_SUMMED", 12 / 24 - 0.01)
    with pytest.raises(PartyError) as caught:
        extras.FederatedLogisticRegression().fit(rows, "died")
    assert caught.value.code == "too-detailed"
    # the twin
    monkeypatch.setattr(_host, "MAX_SUMMED", np.inf)
    extras.FederatedLogisticRegression().fit(rows, "died")
