"""Sums that hang on few rows: a filter made of an offset, at sites, and its twin."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import runner
from skprivbn.federation.gate import effective_rows, with_rows
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixed_model._clusters import weigh
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.site.loopback import connect, make_sites
from tests.federation.test_gate_shares import without_shares
from tests.mixed_model.limits import fit_with_limit

NAMES = ("north", "south", "west")
SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]

[datasets.icu]
path = "icu.csv"
min_rows = 10
min_cell_count = 1
max_exact_fits = 20
estimators = ["FederatedStandardScaler", "PrivateGLMMClassifier",
    "PrivateGLMMRegressor"]

[datasets.icu.columns]
age = "float"
days = "float"
died = "int"
falls = "int"
bill = "float"
credit = "float"
ward = ["a", "b", "c", "d"]
"""


# on other rows than these the search ends before, or elsewhere
@pytest.fixture(params=[0, 2, 3])
def hospitals(tmp_path, request):
    """Return rows at three hospitals, and those of the only patient without a bill."""
    rng, n = np.random.default_rng(request.param), 240
    bill = rng.lognormal(7, 1, n).round(2) + 50
    bill[17] = 0
    table = pd.DataFrame(
        {
            "age": rng.normal(60, 12, n).round(1),
            "days": rng.normal(9, 2, n).round(2),
            "died": (rng.random(n) < 0.4).astype(int),
            "falls": rng.poisson(0.5, n),
            "bill": bill,
            "credit": -bill,
            "ward": [*"abcd"] * (n // 4),
        }
    )
    for i, name in enumerate(NAMES):
        (tmp_path / name).mkdir()
        own = table[np.arange(n) // 4 % 3 == i]
        own.to_csv(tmp_path / name / "icu.csv", index=False)
    connection = connect(make_sites(tmp_path, dict.fromkeys(NAMES, SITE_FILE)), "icu")
    return connection, table.loc[17]


def read_days(connection, age, model, **columns):
    """Read how many days the patient stayed whose age is known, from a fit's results.

    With a bill as an offset, only that patient's features are in the Hessian:
    Newton's steps from zero, and so the coefficients, are multiples of these.
    """
    rows = connection.rows(["age", "days"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, **columns)
        scale = FederatedStandardScaler().fit(rows).scale_
    features = np.ravel(model.coef_) * scale**2
    return features[1] / features[0] * age


ATTACKS = {
    "classes": (PrivateGLMMClassifier, {"y": "died", "offset": "bill"}),
    "counts": (PrivateGLMMRegressor, {"y": "falls", "offset": "credit"}),
}


def attacker(estimator):
    kwargs = {"family": "poisson"} if estimator is PrivateGLMMRegressor else {}
    return estimator(fit_intercept=False, **kwargs)


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_an_offset_that_leaves_weight_to_one_patient(hospitals, attack):
    connection, patient = hospitals
    estimator, columns = ATTACKS[attack]
    with pytest.raises(PartyError) as caught:
        read_days(connection, patient["age"], attacker(estimator), **columns)
    assert caught.value.code == "too-few-rows"
    assert any("units" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("attack", ATTACKS)
def test_twin_without_a_count_of_weights_the_patient_is_read(
    hospitals, attack, monkeypatch
):
    monkeypatch.setattr(runner, "check_rows", lambda total, n, *rest: total[:n])
    without_shares(monkeypatch)
    connection, patient = hospitals
    estimator, columns = ATTACKS[attack]
    days = read_days(connection, patient["age"], attacker(estimator), **columns)
    assert days == pytest.approx(patient["days"], rel=1e-5)


def test_attack_an_offset_that_leaves_weight_to_one_patient_of_a_ward():
    # all rows together are enough, and so are those of the other wards
    rng, n = np.random.default_rng(0), 240
    ward, party = np.arange(n) % 4, np.arange(n) // 4 % 3
    X, y = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    offset = np.where(ward == 1, 40.0, 0.0)
    offset[17] = 0.0
    columns = {"X": X, "y": y, "cluster": ward, "offset": offset}
    model = PrivateGLMMClassifier(fit_intercept=False)
    for n_nodes in (1, 25):
        model.set_params(quadrature_params={"n_nodes": n_nodes})
        with pytest.raises(PartyError) as caught:
            fit_with_limit(model, columns, party, 5)
        assert caught.value.code == "too-few-rows"
        # the twin, and an offset in another unit
        fit_with_limit(model, columns, party, 1)
        fit_with_limit(model, columns | {"offset": offset / 40}, party, 5)


def test_offsets_as_they_should_be_are_welcome():
    rng, n = np.random.default_rng(0), 240
    X, party = rng.normal(size=(n, 2)), np.arange(n) % 3
    exposure = rng.uniform(0.1, 10, n)
    model = PrivateGLMMRegressor("poisson")
    with pytest.warns(UserWarning, match="no cluster"):
        model.fit(X, rng.poisson(exposure), party=party, offset=np.log(exposure))
    assert model.converged_


def test_rows_that_are_alone_have_nobody_to_hide_from():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 1)), np.array([0.0, 2.0, 1.0, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateGLMMRegressor("poisson").fit(X, y)
    assert model.converged_


def count_rows(parts):
    """Return effective numbers of rows, given the weights of each party."""
    total = sum(with_rows(np.zeros(0), part, 0) for part in parts)
    # in the fixed point of the sums
    return effective_rows(np.rint(total * 2.0**56) / 2.0**56, 0, parts[0])


def test_effective_rows_are_kishs_and_add_up_over_parties():
    rng = np.random.default_rng(0)
    weights, category = rng.exponential(size=90), rng.integers(3, size=90)
    opened = np.array([True, False, True])
    found = count_rows(
        [weigh([(weights[i::3], 1.0)], [(category[i::3], opened)]) for i in range(3)]
    )
    for value, chosen in zip(found, (category >= 0, category == 0, category == 2)):
        w = weights[chosen]
        assert value == pytest.approx(w.sum() ** 2 / (w**2).sum())


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_weights_of_any_size_are_counted_in_what_is_typical_of_them(size):
    weights = np.full(100, size)
    assert count_rows([weigh([(weights, size)])]) == pytest.approx(100)
    weights[1:] = 0
    assert count_rows([weigh([(weights, size)])]) == pytest.approx(1)
    # lost in the fixed point, they are few at least
    assert count_rows([weigh([(np.full(100, 1e-9), 1.0)])]) < 5


def test_a_search_ends_where_few_rows_have_weight():
    # one feature tells the classes apart but for two rows in the middle
    rng, n = np.random.default_rng(0), 240
    X = rng.normal(size=(n, 1))
    y = (X[:, 0] > 0).astype(int)
    middle = np.argsort(np.abs(X[:, 0]))[:2]
    y[middle] = 1 - y[middle]
    columns = {"X": X, "y": y}
    model = PrivateGLMMClassifier()
    party = np.arange(n) % 3
    free, limited = (fit_with_limit(model, columns, party, k, ()) for k in (1, 30))
    assert free["result"]["estimates"]["problem"] != "few"
    assert limited["result"]["estimates"]["problem"] == "few"
    slopes = [found["result"]["estimates"]["fixed"][1] for found in (free, limited)]
    assert slopes[0] > slopes[1] > 0
