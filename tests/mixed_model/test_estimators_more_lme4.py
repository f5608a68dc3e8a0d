"""lme4 as oracle on more data: its own, what R ships, and effects that are wide.

``lme4/more.R`` made the answers. Nothing here was used to build the estimators.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson

from skprivbn.mixed_model import PrivateGLMMRegressor

CASES = json.loads((Path(__file__).parent / "lme4" / "more.json").read_text())["cases"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)


def fit(case, party=None, **options):
    """Fit what lme4 was asked."""
    X = pd.DataFrame(case["X"], columns=case["columns"])
    named = dict(case["options"])
    slopes = named.pop("slopes", None)
    model = PrivateGLMMRegressor(
        case["family"],
        slopes=slopes if slopes is None else [slopes],
        quadrature_params={"n_nodes": case["n_quadrature"]},
        reml=case["reml"],
        min_rows=1,
        effect_params=named,
        **options,
    )
    clusters = pd.DataFrame(case["clusters"])
    return model.fit(X, case["y"], cluster=clusters, party=party)


def spread_rows(case):
    """Who holds each row: all clusters are mixed over three parties."""
    n_rows = len(case["y"])
    return np.random.default_rng(n_rows).choice(["north", "south", "west"], n_rows)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"wide"}))
def test_like_lme4(name, mixed):
    case = CASES[name]
    model = fit(case, spread_rows(case) if mixed else None)
    fixed = np.append(model.intercept_, model.coef_)
    errors = np.append(model.intercept_std_, model.coef_std_)
    assert np.abs((fixed - case["fixed"]) / case["errors"]).max() < 1e-4
    # lme4 takes its Hessians by finite differences
    np.testing.assert_allclose(errors, case["errors"], rtol=1e-3)
    expected = case["log_likelihood"]
    if case["family"] == "poisson" and case["n_quadrature"] > 1:
        # what lme4 leaves out of log-likelihoods with nAGQ > 1: the best there is
        expected += poisson.logpmf(case["y"], case["y"]).sum()
    assert model.log_likelihood_ == pytest.approx(expected, abs=2e-5, rel=1e-9)
    nested = len(case["clusters"]) > 1 and "crossed" not in case["options"]
    for number, (factor, matrix) in enumerate(model.random_effect_covariance_.items()):
        # lme4 names an inner factor "inner:outer", and a second term "factor.1"
        theirs = [
            d["sdcor"]
            for d in case["deviations"]
            if (
                ":" in d["grp"]
                if nested and number
                else d["grp"].split(".")[0] == factor
            )
        ]
        ours = np.sqrt(np.diag(matrix))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert model.singular_ == case["singular"]


def test_wide_effects():
    """Here 25 nodes err by 0.005: two searches end that little apart."""
    case = CASES["wide"]
    model = fit(case, spread_rows(case))
    assert model.log_likelihood_ == pytest.approx(case["log_likelihood"], abs=1e-4)
    (theirs,) = (d["sdcor"] for d in case["deviations"])
    assert model.random_effect_scale_ == pytest.approx(theirs, rel=1e-3)
