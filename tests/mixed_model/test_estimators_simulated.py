"""Three hundred simulated studies: nothing diverges, and nothing better is missed.

The result is compared with the model without effects and with a dense grid over the
scale. Here are some of the three hundred; ``benchmarks/study_glmm.py`` runs all
of them, and stored lme4's answers to thirty.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.mixed_model.studies import SCALES, draw, fit, marginal, without_effects

LME4 = json.loads((Path(__file__).parent / "lme4" / "studies.json").read_text())


def assert_nothing_better(model, X, y, cluster):
    beta = model.coef_[0]
    # a rare class may be told apart by a feature of the clusters
    separated = np.isnan(model.coef_std_).any()
    assert separated or (np.abs(beta).max() < 20 and model.random_effect_scale_ < 20)
    predictor = X @ beta + model.intercept_
    for scale in (model.random_effect_scale_, *SCALES):
        other = marginal(scale, predictor, y, cluster)
        assert model.log_likelihood_ > other - 1e-4
    assert model.log_likelihood_ > without_effects(X, y) - 1e-4


@pytest.mark.parametrize(
    "seed",
    [
        0,
        2,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (3, 4, 5, 6, 7, 21, 300)),
    ],
)
def test_nothing_is_better(seed):
    X, y, cluster, party = draw(seed)
    assert_nothing_better(fit(X, y, cluster, party), X, y, cluster)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(int(seed), marks=[pytest.mark.slow] * (i > 1))
        for i, seed in enumerate(LME4)
    ],
)
def test_as_good_as_lme4_and_flagged_where_it_flags(seed):
    answer = LME4[str(seed)]
    model = fit(*draw(seed))
    assert model.log_likelihood_ > answer["log_likelihood"] - 1e-4
    if answer["singular"]:
        assert model.singular_


@pytest.mark.parametrize("seed", [75, pytest.param(167, marks=pytest.mark.slow), 129])
def test_wide_effects_take_no_more_rounds_than_others(seed):
    """Nodes out of place made log-likelihoods 1.0 too high, or took 82 rounds."""
    X, y, cluster, party = draw(seed)
    model = fit(X, y, cluster, party)
    assert model.random_effect_scale_ > 2.5
    assert model.ledger_.n_rounds <= 25 and model.converged_
    predictor = X @ model.coef_[0] + model.intercept_
    pooled = marginal(model.random_effect_scale_, predictor, y, cluster)
    assert model.log_likelihood_ == pytest.approx(pooled, abs=1e-5)
