"""lme4 as oracle: its own data sets and simulated ones, answers stored beside.

``lme4/answers.R`` made the answers. lme4 stops where its optimiser is content: up to
1e-5 short in the parameters, and its Hessian is by finite differences.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor

CASES = json.loads((Path(__file__).parent / "lme4" / "answers.json").read_text())[
    "cases"
]
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def frame(case):
    return pd.DataFrame(CASES[case]["rows"])


def dummies(values):
    levels = sorted(set(values))
    return pd.DataFrame({f"is {v}": (values == v).astype(float) for v in levels[1:]})


def holders(n_rows, spread):
    """Who holds each row: mixed over three, or all of them one party's."""
    rng = np.random.default_rng(n_rows)
    return rng.choice(["north", "south", "west"], n_rows) if spread else None


def assert_like(model, case, name, *, groups, errors=1e-4, saturated=0.0):
    """Compare with lme4's answer; `groups` are its names of our factors."""
    answer = CASES[case]["fits"][name]
    fixed = np.append(model.intercept_, model.coef_)
    ses = np.append(model.intercept_std_, model.coef_std_)
    if not model.fit_intercept:
        fixed, ses = fixed[1:], ses[1:]
    scale = np.ravel(answer["errors"])
    assert np.abs((fixed - answer["fixed"]) / scale).max() < 1e-4
    np.testing.assert_allclose(ses, scale, rtol=errors)
    expected = answer["log_likelihood"] + saturated
    assert model.log_likelihood_ == pytest.approx(expected, abs=1e-5)
    assert model.log_likelihood_ > expected - 1e-6
    components = pd.DataFrame(answer["components"])
    ours = model.variance_components()
    for factor, group in groups.items():
        theirs = components[components["grp"].isin([group, f"{group}.1"])]
        deviations = theirs[theirs["var2"].isna()]["sdcor"].to_numpy(float)
        mine = np.sqrt(np.diag(model.random_effect_covariance_[factor]))
        np.testing.assert_allclose(mine, deviations, rtol=2e-4, atol=2e-4)
        correlation = theirs[~theirs["var2"].isna()]["sdcor"].to_numpy(float)
        if len(correlation):
            np.testing.assert_allclose(
                ours.correlations(factor)[0, 1], correlation, atol=1e-3
            )
    if "Residual" in set(components["grp"]):
        residual = components.set_index("grp").loc["Residual", "sdcor"]
        assert model.residual_scale_ == pytest.approx(residual, rel=1e-4)
    assert model.singular_ == answer["singular"]
    assert model.summary().n_parameters == answer["n_parameters"]
    return answer


def effects_like(model, answer, group, atol, factor=None):
    labels = answer["labels"][group]
    clusters, effects = model.clusters_, model.random_effects_
    if factor is not None:
        clusters, effects = clusters[factor], effects[factor]
    order = [str(label) for label in clusters]
    theirs = np.array(answer["effects"][group])[[labels.index(o) for o in order]]
    ours = np.asarray(effects).reshape(len(order), -1)
    np.testing.assert_allclose(ours, theirs, atol=atol)
    return order


def deviation_like(model, answer, group, rtol):
    theirs = answer["spread"][group]
    labels = answer["labels"][group]
    theirs = np.array(theirs).reshape(len(labels), -1)
    order = [labels.index(str(label)) for label in model.clusters_]
    ours = np.asarray(model.random_effects_std_).reshape(len(labels), -1)
    np.testing.assert_allclose(ours, theirs[order], rtol=rtol)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("kind", ["ml", "reml"])
@pytest.mark.parametrize(
    "name, options",
    [
        ("slopes", {"slopes": ["Days"]}),
        ("uncorrelated", {"slopes": ["Days"], "effect_params": {"correlated": False}}),
        ("intercepts", {}),
        (
            "only_slopes",
            {"slopes": ["Days"], "effect_params": {"random_intercept": False}},
        ),
    ],
)
def test_sleepstudy(name, options, kind, spread):
    rows = frame("sleepstudy")
    model = PrivateGLMMRegressor(reml=kind == "reml", min_rows=1, **options)
    model.fit(
        rows[["Days"]],
        rows["Reaction"],
        cluster=rows["Subject"],
        party=holders(len(rows), spread),
    )
    answer = assert_like(
        model, "sleepstudy", f"{name}_{kind}", groups={"cluster": "Subject"}
    )
    effects_like(model, answer, "Subject", atol=1e-2)
    if answer["spread"]["Subject"] is not None:
        deviation_like(model, answer, "Subject", rtol=1e-3)


@pytest.mark.parametrize("kind", ["ml", "reml"])
@pytest.mark.parametrize("case", ["Dyestuff", "Dyestuff2"])
def test_one_variance_or_none(case, kind):
    rows = frame(case)
    X = np.zeros((len(rows), 1))
    model = PrivateGLMMRegressor(reml=kind == "reml", min_rows=1)
    with pytest.warns(UserWarning, match="do not vary"):
        model.fit(
            X,
            rows["Yield"],
            cluster=rows["Batch"],
            party=holders(len(rows), True),
        )
    answer = CASES[case]["fits"][kind]
    assert model.intercept_ == pytest.approx(answer["fixed"], rel=1e-7)
    assert model.intercept_std_ == pytest.approx(answer["errors"], rel=1e-4)
    assert model.log_likelihood_ == pytest.approx(answer["log_likelihood"], abs=1e-6)
    scale = answer["components"][0]["sdcor"]
    assert model.random_effect_scale_ == pytest.approx(scale, rel=1e-4, abs=1e-3)
    assert model.singular_ == answer["singular"]
    assert ("singular" in str(model.summary())) == answer["singular"]


def intercept_only(case, kind, target, factors, crossed, spread):
    rows = frame(case)
    model = PrivateGLMMRegressor(
        reml=kind == "reml", effect_params={"crossed": crossed}, min_rows=1
    )
    with pytest.warns(UserWarning, match="do not vary"):
        model.fit(
            np.zeros((len(rows), 1)),
            rows[target],
            cluster=rows[factors],
            party=holders(len(rows), spread),
        )
    return model, CASES[case]["fits"][kind]


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("kind", ["ml", "reml"])
@pytest.mark.parametrize(
    "case, target, factors, crossed, groups",
    [
        ("Penicillin", "diameter", ["plate", "sample"], True, ["plate", "sample"]),
        ("Pastes", "strength", ["batch", "cask"], False, ["batch", "cask:batch"]),
    ],
)
def test_two_factors(case, target, factors, crossed, groups, kind, spread):
    model, answer = intercept_only(case, kind, target, factors, crossed, spread)
    assert model.intercept_ == pytest.approx(answer["fixed"], rel=1e-7)
    assert model.intercept_std_ == pytest.approx(answer["errors"], rel=1e-4)
    assert model.log_likelihood_ == pytest.approx(answer["log_likelihood"], abs=1e-6)
    scales = {c["grp"]: c["sdcor"] for c in answer["components"]}
    for factor, group in zip(factors, groups):
        scale = model.random_effect_scale_[factor]
        assert scale == pytest.approx(scales[group], rel=1e-4)
    assert model.residual_scale_ == pytest.approx(scales["Residual"], rel=1e-4)
    effects_like(model, answer, groups[0], 1e-3, factors[0])
    labels = [str(label).split(":") for label in model.clusters_[factors[1]]]
    names = answer["labels"][groups[1]]
    order = [names.index(":".join(reversed(path))) for path in labels]
    theirs = np.array(answer["effects"][groups[1]])[order, 0]
    np.testing.assert_allclose(model.random_effects_[factors[1]], theirs, atol=1e-3)


def binomial_saturated(k, m):
    """What lme4 leaves out of the log-likelihood with nAGQ > 1: the best there is."""
    from scipy.stats import binom

    return binom.logpmf(k, m, k / m).sum()


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("name", ["laplace", "quadrature", "probit", "cloglog"])
def test_cbpp(name, spread):
    rows = frame("cbpp")
    k, m = rows["incidence"], rows["size"]
    model = PrivateGLMMRegressor(
        "binomial",
        link=name if name in ("probit", "cloglog") else None,
        quadrature_params={"n_nodes": 1 if name == "laplace" else 25},
        min_rows=1,
    )
    model.fit(
        dummies(rows["period"]),
        k / m,
        cluster=rows["herd"],
        party=holders(len(rows), spread),
        sample_weight=m,
    )
    saturated = 0.0 if name == "laplace" else binomial_saturated(k, m)
    answer = assert_like(
        model, "cbpp", name, groups={"cluster": "herd"}, saturated=saturated
    )
    if name == "laplace":
        effects_like(model, answer, "herd", atol=1e-4)
        deviation_like(model, answer, "herd", rtol=1e-3)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("name", ["laplace", "quadrature", "nested"])
def test_grouseticks(name, spread):
    from scipy.stats import poisson

    rows = frame("grouseticks")
    X = pd.concat([dummies(rows["YEAR"]), rows[["cHEIGHT"]]], axis=1)
    y = rows["TICKS"]
    factors = ["LOCATION", "BROOD"] if name == "nested" else ["BROOD"]
    model = PrivateGLMMRegressor(
        "poisson",
        quadrature_params={"n_nodes": 25 if name == "quadrature" else 1},
        min_rows=1,
    )
    party = rows["LOCATION"].astype(int) % 3 if name == "nested" and spread else None
    if name != "nested":
        party = holders(len(rows), spread)
    model.fit(X, y, cluster=rows[factors], party=party)
    groups = {"BROOD": "BROOD"}
    if name == "nested":
        groups = {"LOCATION": "LOCATION", "BROOD": "BROOD:LOCATION"}
    saturated = poisson.logpmf(y, y).sum() if name == "quadrature" else 0.0
    assert_like(model, "grouseticks", name, groups=groups, saturated=saturated)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize(
    "name, options",
    [
        ("slopes", {"slopes": ["x"]}),
        ("uncorrelated", {"slopes": ["x"], "effect_params": {"correlated": False}}),
        ("intercepts", {}),
        ("no_intercept", {"fit_intercept": False}),
        ("two_levels", {}),
    ],
)
def test_classes(name, options, spread):
    rows = frame("made")
    factors = ["centre", "ward"] if name == "two_levels" else ["centre"]
    y = rows["nested"] if name == "two_levels" else rows["died"]
    model = PrivateGLMMClassifier(min_rows=1, **options)
    model.fit(
        rows[["x", "z"]],
        y,
        cluster=rows[factors],
        party=holders(len(rows), spread),
    )
    groups = {"centre": "centre"}
    if name == "two_levels":
        groups["ward"] = "ward:centre"
    assert_like(model, "made", name, groups=groups)


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("name", ["counts", "counts_quadrature"])
def test_counts_with_an_exposure(name, spread):
    from scipy.stats import poisson

    rows = frame("made")
    y = rows["count"]
    model = PrivateGLMMRegressor(
        "poisson", slopes=["x"] if name == "counts" else None, min_rows=1
    )
    model.fit(
        rows[["x", "z"]],
        y,
        cluster=rows["centre"],
        party=holders(len(rows), spread),
        offset=np.log(rows["exposure"]),
    )
    saturated = 0.0 if name == "counts" else poisson.logpmf(y, y).sum()
    assert_like(model, "made", name, groups={"cluster": "centre"}, saturated=saturated)
