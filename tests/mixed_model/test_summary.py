"""Tables as journals print them: ratios, intervals and p values by name."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.mixed_model import (
    GLMMSummary,
    LikelihoodRatioTest,
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
)

ESTIMATES, ERRORS = np.array([-0.5, 0.7, 0.02]), np.array([0.25, 0.1, 0.3])


def make_summary(ratio="Odds ratio", names=("(Intercept)", "dose", "age_60 & sex|f")):
    """Return a table of three effects, the second of which is not chance."""
    return GLMMSummary(
        kind="Logistic mixed model",
        classes=["no", "yes"],
        ratio=ratio,
        names=list(names),
        estimates=ESTIMATES,
        standard_errors=ERRORS,
        components=None,
        converged=True,
        singular=False,
        log_likelihood=-100.0,
        n_rows=300,
        n_clusters={},
        n_parties=3,
    )


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_ratios_are_exponentials_of_coefficients_and_of_their_intervals(level):
    frame = make_summary().to_frame(exponentiate=True, conf_int=True, level=level)
    ends = {0.95: ["2.5 %", "97.5 %"], 0.9: ["5 %", "95 %"]}[level]
    assert list(frame) == ["Odds ratio", *ends, "z value", "Pr(>|z|)"]
    half = ndtri((1 + level) / 2) * ERRORS
    np.testing.assert_allclose(frame["Odds ratio"], np.exp(ESTIMATES))
    np.testing.assert_allclose(frame[ends[0]], np.exp(ESTIMATES - half))
    np.testing.assert_allclose(frame[ends[1]], np.exp(ESTIMATES + half))
    p = 2 * ndtr(-np.abs(ESTIMATES / ERRORS))
    np.testing.assert_allclose(frame["Pr(>|z|)"], p)


def test_intervals_have_names():
    summary = make_summary()
    low, high = summary.conf_int()["dose"]
    assert (low + high) / 2 == pytest.approx(0.7)
    assert (high - low) / 2 == pytest.approx(1.959964 * 0.1)
    ratio = summary.conf_int(exponentiate=True)["dose"]
    assert ratio == pytest.approx((np.exp(low), np.exp(high)))


def test_text_for_a_journal():
    frame = make_summary().to_frame(exponentiate=True, conf_int=True, digits=2)
    assert list(frame) == ["Odds ratio", "95 % CI", "p"]
    assert frame.loc["dose"].tolist() == ["2.01", "1.66 to 2.45", "<0.001"]
    assert frame.loc["(Intercept)"].tolist() == ["0.61", "0.37 to 0.99", "0.046"]
    markdown = make_summary().to_markdown(exponentiate=True, conf_int=True)
    assert markdown.splitlines()[2:4] == [
        "| (Intercept) | 0.61 | 0.37 to 0.99 | 0.046 |",
        "| dose | 2.01 | 1.66 to 2.45 | <0.001 |",
    ]
    plain = make_summary().to_frame(digits=3)
    assert plain.loc["dose"].tolist() == ["0.700", "<0.001"]


def test_tables_of_latex_and_markdown_show_names_as_they_are():
    latex = make_summary().to_latex(exponentiate=True, digits=1)
    assert latex.splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & Odds ratio & p \\",
        r"\midrule",
        r"(Intercept) & 0.6 & 0.046 \\",
        r"dose & 2.0 & $<$0.001 \\",
        r"age\_60 \& sex|f & 1.0 & 0.947 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    markdown = make_summary().to_markdown()
    assert markdown.splitlines()[0] == "|  | Estimate | p |"
    assert markdown.splitlines()[-1] == r"| age\_60 & sex\|f | 0.02 | 0.947 |"


@pytest.mark.parametrize("least, decimals", [(0.01, 4), (0.00101, 4), (0.00099, 5)])
def test_the_smallest_error_keeps_two_digits_below_the_others(least, decimals):
    estimates, errors = np.array([-12345.6, 0.7, 0.02]), np.array([25.0, 0.1, least])
    summary = replace(make_summary(), estimates=estimates, standard_errors=errors)
    *_, first, _, last = str(summary).splitlines()
    assert f"{estimates[0]:.{decimals}f}" in first
    assert f"{least:.{decimals}f}" in last
    ends = [
        line.index(f"{e:.{decimals}f}") + len(f"{e:.{decimals}f}")
        for line, e in zip((first, last), (errors[0], errors[2]))
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "p, text", [(0.0, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (0.25, "0.250")]
)
def test_small_p_values_are_said_to_be_small(p, text):
    assert str(LikelihoodRatioTest(4.0, 1, p)).endswith(f"p {text}")


def test_what_has_no_ratio_says_so():
    summary = make_summary(ratio=None)
    for ask in (summary.to_frame, summary.conf_int):
        with pytest.raises(ValueError, match="exponentiate=True makes odds"):
            ask(exponentiate=True)


@pytest.mark.parametrize(
    "model, ratio",
    [
        (PrivateGLMMClassifier(), "Odds ratio"),
        (PrivateGLMMClassifier(link="cloglog"), "Hazard ratio"),
        (PrivateGLMMClassifier(link="probit"), None),
        (PrivateGLMMRegressor("poisson"), "Rate ratio"),
        (PrivateGLMMRegressor(), None),
    ],
)
def test_features_have_their_names_also_in_a_pipeline(model, ratio):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 2)), columns=["dose", "age"])
    cluster, party = rng.integers(6, size=300), rng.choice(["a", "b", "c"], size=300)
    y = (frame["dose"] + rng.normal(size=6)[cluster] + rng.normal(size=300) > 0) * 1
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), model)
        pipe.fit(frame, y, cluster=cluster, party=party)
    fitted = pipe[-1]
    assert fitted.summary().names == ["(Intercept)", "x0", "x1"]
    summary = fitted.summary(pipe[:-1].get_feature_names_out())
    assert summary.names == ["(Intercept)", "dose", "age"]
    assert summary.ratio == ratio
    with pytest.raises(ValueError, match="feature_names has 1 names.*2 columns"):
        fitted.summary(["dose"])
