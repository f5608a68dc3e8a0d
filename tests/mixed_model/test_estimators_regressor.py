"""Regressors and what several random effects add: spread, backends, refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.metrics import d2_tweedie_score, r2_score

from skprivbn.exceptions import PartyError, PrivacyLeakWarning
from skprivbn.federation import PartyRefusal, decode, encode
from skprivbn.federation._models import describe_model, rebuild_model
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
    _base,
    likelihood_ratio_test,
)
from skprivbn.partition import HorizontalPartition
from tests.mixed_model.limits import fit_with_limit

RNG = np.random.default_rng(3)
N = 400
X = RNG.normal(size=(N, 2)) * [1.0, 10.0] + [0.0, 50.0]
CENTRE = RNG.integers(8, size=N)
WARD = RNG.integers(3, size=N)
EFFECTS = RNG.normal(size=(8, 2)) * [0.6, 0.4]
PARTY = RNG.integers(3, size=N)
ETA = 0.3 + 0.5 * X[:, 0] - 0.01 * X[:, 1] + EFFECTS[CENTRE, 0]
ETA += EFFECTS[CENTRE, 1] * X[:, 0]
TARGETS = {
    "gaussian": ETA + RNG.normal(size=N),
    "poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "binomial": (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(float),
}
quiet = pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")


def fit(family, party=PARTY, cluster=CENTRE, **options):
    options = {"slopes": [0], "reml": False} | options
    model = PrivateGLMMRegressor(family, **options)
    return model.fit(X, TARGETS[family], cluster=cluster, party=party)


def assert_same(model, other, atol):
    for name in ("coef_", "intercept_", "coef_std_", "log_likelihood_"):
        ours, theirs = getattr(model, name), getattr(other, name)
        np.testing.assert_allclose(ours, theirs, atol=atol)
    for factor, matrix in other.random_effect_covariance_.items():
        ours = model.random_effect_covariance_[factor]
        np.testing.assert_allclose(ours, matrix, atol=atol)
    np.testing.assert_allclose(model.random_effects_, other.random_effects_, atol=atol)
    np.testing.assert_allclose(
        model.random_effects_std_, other.random_effects_std_, atol=atol
    )


@quiet
@pytest.mark.parametrize("family", TARGETS)
def test_how_rows_are_spread_makes_no_difference(family):
    shared = fit(family)
    for party in (CENTRE % 3, np.where(CENTRE < 4, 0, PARTY)):
        assert_same(fit(family, party), shared, atol=2e-6)


@quiet
@pytest.mark.parametrize(
    "family", ["gaussian", pytest.param("poisson", marks=pytest.mark.slow)]
)
def test_backends_agree(family):
    exact = fit(family)
    assert_same(fit(family, backend="ckks"), exact, atol=2e-4)


@quiet
def test_a_linear_model_takes_one_exchange_of_sums():
    model = fit("gaussian")
    sums = [e.operation for e in model.ledger_.entries if e.kind == "masked"]
    assert set(sums) == {
        "sizes of clusters, sums of features and target",
        "squares of features; first gradient and Hessian",
        "products of columns, by shared cluster",
    }
    closed = fit("gaussian", CENTRE % 3)
    n_trials = sum("trial variances" in e.operation for e in closed.ledger_.entries)
    assert n_trials / 6 < 15, "Newton's method on theta takes few rounds"
    assert closed.ledger_.n_rounds < 45


def test_closed_clusters_are_in_no_sum_of_products():
    """What a coordinator reads has no entry for clusters of one party."""
    sizes = {}
    for name, party in {
        "shared": PARTY,
        "alone": np.where(CENTRE < 5, 0, PARTY),
    }.items():
        with pytest.warns(PrivacyLeakWarning) if name == "alone" else nothing():
            model = fit("gaussian", party)
        sizes[name] = next(
            e.n_bytes
            for e in model.ledger_.entries
            if e.operation.startswith("products") and e.receiver == "coordinator"
        )
    # five clusters less: 3 products of two effects, and 2 times [X y] of 4 columns
    assert sizes["shared"] - sizes["alone"] == 5 * (3 + 2 * 4) * 14


class nothing:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


def test_sums_of_a_cluster_of_one_row_would_give_it_away():
    """Why clusters below min_rows are not opened: the broken twin of the next test."""
    cluster = np.where(np.arange(N) == 7, 99, CENTRE)
    z, row = np.ones(N), np.column_stack([X, TARGETS["gaussian"]])
    opened = (z[cluster == 99, None] * row[cluster == 99]).sum(axis=0)
    np.testing.assert_array_equal(opened, row[7])


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_small_shared_clusters_are_refused_or_pooled(family):
    cluster = CENTRE.astype(str)
    # of expectations, and so of weights, that are much the same
    alike = np.argsort(np.abs(ETA))[:8]
    cluster[alike] = ["tiny"] * 4 + ["small"] * 4
    party = PARTY.copy()
    party[alike] = [0, 1, 2, 0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="small_clusters='pool'"):
        fit(family, party, cluster)
    pooled = fit(family, party, cluster, small_clusters="pool")
    assert pooled.clusters_[-1] == "(other)" and len(pooled.clusters_) == 9
    merged = np.where(np.isin(cluster, ["tiny", "small"]), "zz", cluster)
    assert_same(pooled, fit(family, party, merged), atol=1e-6)
    assert any("pooled into one" in note for note in pooled.ledger_.notes)
    # eight rows together are too few: the next larger cluster joins them
    pooled = fit(family, party, cluster, small_clusters="pool", min_rows=20)
    sizes = dict(zip(*np.unique(cluster, return_counts=True)))
    joined = str(min(set(sizes) - {"tiny", "small"}, key=sizes.get))
    merged = np.where(np.isin(cluster, ["tiny", "small", joined]), "zz", cluster)
    assert_same(pooled, fit(family, party, merged, min_rows=20), atol=1e-6)
    assert any(f"{joined!r}" in note for note in pooled.ledger_.notes)
    with pytest.raises(ValueError, match="fewer than"):
        fit(family, party, cluster, small_clusters="pool", min_parties=4)


def test_a_party_insists_on_the_limits_itself(monkeypatch):
    # a researcher who does not mind gets no estimates
    monkeypatch.setattr(_base, "check_survey", lambda *arguments: None)
    cluster = np.where(np.arange(N) < 4, 99, CENTRE)
    party = np.where(cluster == 99, np.arange(N) % 3, PARTY)
    for family in ("gaussian", "poisson"):
        with pytest.raises(KeyError, match="estimates"):
            fit(family, party, cluster)


def test_crossed_effects_are_opened_with_a_warning_and_for_linear_models_only():
    frame = pd.DataFrame({"centre": CENTRE, "ward": WARD})
    options = {"slopes": None, "effect_params": {"crossed": True}}
    with pytest.warns(PrivacyLeakWarning, match="every pair of clusters"):
        model = fit("gaussian", cluster=frame, **options)
    assert list(model.random_effect_scale_) == ["centre", "ward"]
    with pytest.raises(ValueError, match="crossed effects are fitted for"):
        fit("poisson", cluster=frame, **options)


@quiet
@pytest.mark.parametrize("family", TARGETS)
def test_prediction_with_and_without_random_effects(family):
    frame = pd.DataFrame({"centre": CENTRE, "ward": WARD})
    model = fit(family, cluster=frame, slopes={"centre": [0]}, min_rows=1)
    eta = X @ model.coef_ + model.intercept_
    mean = {"gaussian": lambda e: e, "poisson": np.exp}.get(
        family, lambda e: 1 / (1 + np.exp(-e))
    )
    np.testing.assert_allclose(model.predict(X), mean(eta))
    b = model.random_effects_["centre"][CENTRE]
    inner = dict(zip(model.clusters_["ward"], model.random_effects_["ward"]))
    eta += b[:, 0] + b[:, 1] * X[:, 0]
    eta += [inner[f"{c}:{w}"] for c, w in zip(CENTRE, WARD)]
    np.testing.assert_allclose(model.predict(X, cluster=frame), mean(eta))
    with pytest.raises(ValueError, match="1 columns of labels"):
        model.predict(X, cluster=CENTRE)
    assert model.predict(X[:2], offset=[0.0, 1.0])[1] != model.predict(X[:2])[1]


def test_weights_are_repeated_rows():
    y, weights = TARGETS["binomial"], RNG.integers(1, 4, size=N)
    again = np.repeat(np.arange(N), weights)
    model = PrivateGLMMClassifier().fit(
        X, y, cluster=CENTRE, party=PARTY, sample_weight=weights
    )
    other = PrivateGLMMClassifier().fit(
        X[again], y[again], cluster=CENTRE[again], party=PARTY[again]
    )
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.coef_std_, other.coef_std_, atol=1e-6)
    assert model.log_likelihood_ == pytest.approx(other.log_likelihood_, abs=1e-6)


def test_likelihood_ratio_test():
    smaller, larger = (fit("gaussian", slopes=s) for s in (None, [0]))
    test = likelihood_ratio_test(smaller, larger)
    assert test.n_restrictions == 2 and test.p_value < 1e-4
    gain = larger.log_likelihood_ - smaller.log_likelihood_
    assert test.statistic == pytest.approx(2 * gain)
    with pytest.raises(ValueError, match="smaller model first"):
        likelihood_ratio_test(larger, smaller)
    restricted = fit("gaussian", slopes=None, reml=True)
    with pytest.raises(ValueError, match="reml=False"):
        likelihood_ratio_test(restricted, larger)
    with pytest.raises(ValueError, match="different rows or families"):
        likelihood_ratio_test(smaller, fit("poisson"))


def test_variance_components_are_a_table():
    model = fit("gaussian")
    components = model.variance_components()
    matrix = model.random_effect_covariance_["cluster"]
    scale = np.sqrt(np.diag(matrix))
    expected = matrix[0, 1] / scale.prod()
    assert components.correlations()[0, 1] == pytest.approx(expected)
    assert components.n_parameters == 4
    frame = components.to_frame()
    assert frame["Group"].tolist() == ["cluster", "", "Residual"]
    assert f"{expected:.2f}" in str(components)
    assert "Residual" in components._repr_html_()
    model.set_params(family="poisson", slopes=None)
    model.fit(X, TARGETS["poisson"], cluster=CENTRE, party=PARTY)
    assert "Residual" not in str(model.variance_components())


@pytest.mark.parametrize(
    "family, y, message",
    [
        ("poisson", TARGETS["gaussian"], "must be counts"),
        ("binomial", TARGETS["gaussian"], "proportions of trials"),
        ("gaussian", np.full(N, "a"), "must be numbers"),
        ("gaussian", np.full(N, np.nan), "NaN"),
    ],
)
def test_targets_that_do_not_fit_the_family(family, y, message):
    with pytest.raises(ValueError, match=message):
        PrivateGLMMRegressor(family).fit(X, y, cluster=CENTRE, party=PARTY)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"slopes": ["weight"]}, "no column of X"),
        ({"slopes": {"ward": [0]}}, "slopes= names the columns"),
        ({"quadrature_params": {"n_nodes": 9}}, "goes with one random effect"),
        ({"link": "logit"}, "does not go with poisson"),
    ],
)
def test_models_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        fit("poisson", **options)


def test_a_target_that_does_not_fit_stays_with_its_holder():
    thirds = {str(k): np.flatnonzero(k == PARTY) for k in range(3)}
    rows = HorizontalPartition(
        {name: X[index] for name, index in thirds.items()},
        y={name: TARGETS["gaussian"][index] for name, index in thirds.items()},
        cluster={name: CENTRE[index] for name, index in thirds.items()},
    )
    with pytest.raises(PartyError, match="do not fit"):
        PrivateGLMMRegressor("poisson").fit(rows)
    model = PrivateGLMMRegressor().fit(rows)
    assert model.score(rows) == pytest.approx(
        model.score(X, TARGETS["gaussian"], cluster=CENTRE), abs=1e-9
    )


@quiet
@pytest.mark.parametrize("family", TARGETS)
def test_a_score_of_parties_rows_is_that_of_pooled_rows(family):
    y, offset = TARGETS[family], 0.1 * X[:, 0]
    model = PrivateGLMMRegressor(family, slopes=[0], quadrature_params={"n_nodes": 1})
    model.fit(X, y, cluster=CENTRE, party=PARTY, offset=offset)
    thirds = {str(k): np.flatnonzero(k == PARTY) for k in range(3)}
    beside = {"y": y, "cluster": CENTRE, "offset": offset}
    rows = HorizontalPartition(
        {name: X[index] for name, index in thirds.items()},
        **{
            key: {name: values[index] for name, index in thirds.items()}
            for key, values in beside.items()
        },
    )
    here = model.score(X, y, cluster=CENTRE, offset=offset)
    assert model.score(rows) == pytest.approx(here, abs=1e-9)
    predicted = model.predict(X, cluster=CENTRE, offset=offset)
    measure = d2_tweedie_score if family == "poisson" else r2_score
    options = {"power": 1} if family == "poisson" else {}
    assert here == pytest.approx(measure(y, predicted, **options), abs=1e-9)


@quiet
def test_parties_apply_models_with_slopes_and_nested_effects():
    frame = pd.DataFrame({"centre": CENTRE.astype(str), "ward": WARD})
    model = PrivateGLMMRegressor(slopes={"centre": [0]})
    model.fit(X, TARGETS["gaussian"], cluster=frame, party=PARTY)
    again = rebuild_model(decode(encode(describe_model(model))), 2)
    block = {"X": X, "cluster": frame["centre"], "cluster_1": frame["ward"]}
    cluster = again._join_beside(block)["cluster"]
    expected = model.predict(X, cluster=frame)
    np.testing.assert_allclose(again.predict(X, cluster=cluster), expected)
    assert np.abs(expected - model.predict(X)).max() > 0.1
    wrong = describe_model(model)
    wrong["fitted"]["columns"][0][1] = 2
    with pytest.raises(PartyRefusal):
        rebuild_model(wrong, 2)


def fit_crossed(min_rows, **options):
    """A sample of its own for one row; the others meet every plate often."""
    plate, sample = CENTRE % 3, WARD.copy()
    sample[0] = 9
    sample[1:20] = 9
    plate[0], plate[1:20] = 2, 0
    model = PrivateGLMMRegressor(
        effect_params={"crossed": True}, slopes={"plate": [0]}, **options
    )
    columns = {"X": X, "y": TARGETS["gaussian"], "cluster": plate, "cluster_1": sample}
    return fit_with_limit(model, columns, PARTY, min_rows, ["plate", "sample"])


def test_attack_a_pair_of_crossed_clusters_with_one_row():
    """Sums of a feature over a pair would be that row's feature."""
    with pytest.raises(PartyError) as caught:
        fit_crossed(5)
    assert caught.value.code == "too-few-rows"


def test_twin_pairs_that_nobody_counts_give_a_row_away():
    heard = fit_crossed(1)
    secret = (X[0, 0] - X[:, 0].mean()) / X[:, 0].std()
    products = heard["products of columns, by shared cluster"]
    assert np.abs(products - secret).min() < 1e-9


@quiet
def test_small_clusters_of_several_factors_are_pooled():
    ward = WARD.copy()
    party = PARTY.copy()
    ward[[3, 5]], party[[3, 5]] = 7, [0, 1]
    ward[[11, 12, 13]], party[[11, 12, 13]] = 8, [0, 1, 2]
    centre = CENTRE.copy()
    centre[[3, 5, 11, 12, 13]] = 0
    frame = pd.DataFrame({"centre": centre.astype(str), "ward": ward.astype(str)})
    with pytest.raises(ValueError, match="0:7"):
        fit("gaussian", party, frame, slopes=None)
    pooled = fit("gaussian", party, frame, slopes=None, small_clusters="pool")
    assert pooled.clusters_["ward"].tolist().count("0:(other)") == 1
    merged = frame.replace({"ward": {"7": "(other)", "8": "(other)"}})
    expected = fit("gaussian", party, merged, slopes=None)
    assert pooled.log_likelihood_ == pytest.approx(expected.log_likelihood_, abs=1e-8)
    np.testing.assert_allclose(pooled.coef_, expected.coef_, atol=1e-8)
    effects = (
        dict(zip(m.clusters_["ward"], m.random_effects_["ward"]))
        for m in (pooled, expected)
    )
    assert next(effects) == pytest.approx(next(effects), abs=1e-7)


def marginal_density(model, X, y, weights):
    """Return the log-density of y at the estimates, restricted with `reml`.

    From the covariance matrix of all rows, as the textbook has it.
    """
    Z = np.equal.outer(CENTRE, model.clusters_).astype(float)
    V = model.random_effect_scale_**2 * Z @ Z.T
    V += np.diag(model.residual_scale_**2 / weights)
    columns = np.column_stack([np.ones(len(X)), X])
    mean = columns @ np.append(model.intercept_, model.coef_)
    value = multivariate_normal(mean, V).logpdf(y)
    if model.reml:
        information = columns.T @ np.linalg.solve(V, columns)
        value -= np.linalg.slogdet(information)[1] / 2
        value += columns.shape[1] * np.log(2 * np.pi) / 2
    return value


@pytest.mark.parametrize("reml", [False, True])
def test_the_likelihood_of_weighted_rows_is_the_density_at_the_estimates(reml):
    weights = np.exp(np.random.default_rng(0).normal(size=N))
    y = TARGETS["gaussian"]
    model = PrivateGLMMRegressor("gaussian", reml=reml)
    model.fit(X, y, cluster=CENTRE, party=PARTY, sample_weight=weights)
    value = marginal_density(model, X, y, weights)
    assert model.log_likelihood_ == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("explained", [0.0, 2e3])
def test_whether_a_fit_is_singular_does_not_depend_on_units(unit, explained):
    rng = np.random.default_rng(7)
    columns = rng.normal(size=(N, 2))
    noise = rng.normal(size=N)
    for effects, singular in ((rng.normal(size=8), False), (np.zeros(8), True)):
        y = columns @ [1.0, explained] + 0.36 * effects[CENTRE] + noise
        if singular:
            # clusters whose means are as like as can be
            y -= np.bincount(CENTRE, noise)[CENTRE] / np.bincount(CENTRE)[CENTRE]
        model = PrivateGLMMRegressor("gaussian")
        model.fit(columns, unit * y, cluster=CENTRE, party=PARTY)
        assert model.singular_ == singular
        assert ("singular" in str(model.summary())) == singular


@quiet
@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e6])
def test_precisions_in_another_unit_give_the_same_model(factor):
    def weighted(weights):
        model = PrivateGLMMRegressor("gaussian", slopes=[0])
        arguments = {"cluster": CENTRE, "party": np.where(CENTRE < 4, 0, PARTY)}
        return model.fit(X, TARGETS["gaussian"], sample_weight=weights, **arguments)

    weights = np.exp(np.random.default_rng(0).normal(size=N))
    model, other = weighted(factor * weights), weighted(weights)
    assert_same(model, other, atol=1e-5)
    sigma = np.sqrt(factor) * other.residual_scale_
    assert model.residual_scale_ == pytest.approx(sigma, rel=1e-6)
    assert model.singular_ == other.singular_


@quiet
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 2, 3, 5])
def test_linear_models_heed_max_iter(max_iter):
    # of clusters that one party holds alone, every step is a sum
    model = fit("gaussian", CENTRE % 3, max_iter=max_iter)
    assert model.n_iter_ == max_iter and not model.converged_
