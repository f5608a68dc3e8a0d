"""The estimator against a pooled fit, over parties, backends and odd data."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_expit
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivbn.exceptions import PartitionError, PartyError, PrivacyLeakWarning
from skprivbn.mixed_model import PrivateGLMMClassifier, _base
from skprivbn.mixed_model._program import generalised_mixed_model
from skprivbn.mixed_model._quadrature import Rows, log_likelihood_table
from skprivbn.mixed_model._terms import family_of
from skprivbn.partition import HorizontalPartition
from skprivbn.preprocessing import FederatedOneHotEncoder, FederatedStandardScaler
from tests.mixed_model.pooled import fit, posterior_moments, simulate

STUDY = simulate()
SEED = {"random_state": 0}
NODES = {"quadrature_params": [{"n_nodes": 9}, {"n_nodes": 15}]}


@pytest.fixture(scope="module")
def pooled():
    return fit(STUDY.X, STUDY.y, STUDY.cluster)


@pytest.fixture(scope="module")
def fitted():
    return PrivateGLMMClassifier().fit(STUDY.X, STUDY.y, **STUDY.arguments)


def parameters(model):
    return np.concatenate(
        [model.intercept_, model.coef_[0], [model.random_effect_scale_]]
    )


def standard_errors(model):
    return np.append(model.intercept_std_, model.coef_std_)


def assert_same_fit(model, other, atol):
    np.testing.assert_allclose(parameters(model), parameters(other), atol=atol)
    np.testing.assert_allclose(model.covariance_, other.covariance_, atol=atol)
    np.testing.assert_allclose(model.log_likelihood_, other.log_likelihood_, atol=atol)
    for name in ("random_effects_", "random_effects_std_"):
        ours, theirs = getattr(model, name), getattr(other, name)
        np.testing.assert_allclose(ours, theirs, atol=2 * atol)


def test_quadrature_equals_the_pooled_fit(fitted, pooled):
    expected, errors, log_likelihood = pooled
    np.testing.assert_allclose(parameters(fitted), expected, atol=1e-4)
    np.testing.assert_allclose(standard_errors(fitted), errors[:-1], rtol=1e-4)
    assert fitted.log_likelihood_ == pytest.approx(log_likelihood, abs=1e-5)
    mean, deviation = posterior_moments(expected, STUDY.X, STUDY.y, STUDY.cluster)
    np.testing.assert_allclose(fitted.random_effects_, mean, atol=1e-3)
    np.testing.assert_allclose(fitted.random_effects_std_, deviation, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"level_two": True},
        {"sigma": 3.0, "n_clusters": 30},
        {"n_rows": 150, "n_clusters": 50, "sigma": 1.0},
        {"n_rows": 1500, "n_clusters": 4},
    ],
    ids=["feature of centres", "large effects", "small centres", "large centres"],
)
@pytest.mark.slow
def test_quadrature_on_other_studies(options):
    study = simulate(**options, seed=1)
    with pytest.warns(PrivacyLeakWarning, match="one party"):
        model = PrivateGLMMClassifier().fit(study.X, study.y, cluster=study.cluster)
    expected, errors, log_likelihood = fit(study.X, study.y, study.cluster)
    np.testing.assert_allclose(parameters(model), expected, atol=1e-3)
    np.testing.assert_allclose(standard_errors(model), errors[:-1], rtol=2e-3)
    assert model.log_likelihood_ == pytest.approx(log_likelihood, abs=1e-3)


@pytest.mark.slow
def test_metropolis_is_near_the_pooled_fit(pooled):
    model = PrivateGLMMClassifier("metropolis", max_iter=10, metropolis_params=SEED)
    model.fit(STUDY.X, STUDY.y, **STUDY.arguments)
    expected, errors, log_likelihood = pooled
    # far less than the standard errors, of 0.1 (slopes) and more
    np.testing.assert_allclose(model.coef_[0], expected[1:-1], atol=5e-3)
    shift = model.coef_[0] @ STUDY.X.mean(axis=0) - expected[1:-1] @ STUDY.X.mean(
        axis=0
    )
    assert model.intercept_[0] + shift == pytest.approx(expected[0], abs=0.03)
    assert model.random_effect_scale_ == pytest.approx(expected[-1], abs=0.03)
    np.testing.assert_allclose(standard_errors(model), errors[:-1], rtol=0.01)
    assert model.log_likelihood_ == pytest.approx(log_likelihood, abs=0.05)
    n_steps = model.n_iter_ * (1000 + 200)
    assert model.ledger_.n_rounds < n_steps / 20


@pytest.mark.slow
def test_metropolis_at_full_size():
    study = simulate(1500, 30, 5, seed=2)
    model = PrivateGLMMClassifier("metropolis", metropolis_params=SEED)
    model.fit(study.X, study.y, **study.arguments)
    exact = PrivateGLMMClassifier().fit(study.X, study.y, **study.arguments)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=5e-3)
    difference = parameters(model) - parameters(exact)
    assert np.abs(difference[[0, -1]]).max() < 0.03


def split(kind):
    rng = np.random.default_rng(5)
    if kind == "by cluster":
        return STUDY.cluster % 3
    if kind == "uneven":
        # the first party lacks half of the clusters, the last holds few rows
        party = rng.choice(3, p=[0.45, 0.45, 0.1], size=len(STUDY.y))
        return np.where(STUDY.cluster < 8, np.maximum(party, 1), party)
    return np.zeros(len(STUDY.y), dtype=int)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("kind", ["by cluster", "uneven", "one party"])
def test_how_rows_are_spread_makes_no_difference(fitted, kind):
    model = PrivateGLMMClassifier().fit(
        STUDY.X, STUDY.y, cluster=STUDY.cluster, party=split(kind)
    )
    assert_same_fit(model, fitted, atol=1e-6)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_metropolis_does_not_depend_on_the_parties_either():
    chains = {"n_draws": 200, "n_burn_in": 50}
    options = {"max_iter": 2, "metropolis_params": chains | SEED}
    models = [
        PrivateGLMMClassifier("metropolis", **options).fit(
            STUDY.X, STUDY.y, cluster=STUDY.cluster, party=party
        )
        for party in (STUDY.party, split("by cluster"))
    ]
    assert_same_fit(*models, atol=1e-6)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize(
    "backend", ["ckks", pytest.param("paillier", marks=pytest.mark.slow), "plaintext"]
)
def test_backends_agree(backend):
    study = simulate(120, 4, 3)
    models = [
        PrivateGLMMClassifier(quadrature_params={"n_nodes": 9}, backend=name).fit(
            study.X, study.y, **study.arguments
        )
        for name in (backend, "masking")
    ]
    assert_same_fit(*models, atol=1e-6)


def test_without_clusters_it_is_logistic_regression():
    with pytest.warns(UserWarning, match="plain regression"):
        model = PrivateGLMMClassifier().fit(STUDY.X, STUDY.y, party=STUDY.party)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000)
    Z = (STUDY.X - STUDY.X.mean(axis=0)) / STUDY.X.std(axis=0)
    theirs.fit(Z, STUDY.y)
    np.testing.assert_allclose(
        model.coef_ * STUDY.X.std(axis=0), theirs.coef_, atol=1e-4
    )
    assert model.random_effect_scale_ == 0 and len(model.random_effects_) == 0
    assert "Logistic regression" in str(model.summary())


def test_clusters_that_do_not_differ():
    study = simulate(n_rows=200, n_clusters=2, seed=1)
    model = PrivateGLMMClassifier().fit(study.X, study.y, **study.arguments)
    assert model.random_effect_scale_ == pytest.approx(0, abs=1e-3)
    assert "singular" in str(model.summary())
    assert np.all(np.isfinite(standard_errors(model)))


def test_separable_rows_are_said():
    X = np.linspace(-1, 1, 60)[:, None]
    y, party, cluster = (X[:, 0] > 0).astype(int), np.arange(60) % 3, np.arange(60) % 5
    with pytest.warns(ConvergenceWarning, match="features separate the classes"):
        model = PrivateGLMMClassifier().fit(X, y, cluster=cluster, party=party)
    assert model.score(X, y) == 1
    assert np.all(np.isnan(model.coef_std_))


def test_collinear_features_are_said():
    X = np.column_stack([STUDY.X, STUDY.X[:, 0]])
    with pytest.warns(ConvergenceWarning, match="features are collinear"):
        model = PrivateGLMMClassifier().fit(X, STUDY.y, **STUDY.arguments)
    assert model.coef_[0, 0] == pytest.approx(model.coef_[0, 3], abs=1e-6)


def test_constant_features_have_no_coefficient(fitted):
    X = np.insert(STUDY.X, 1, 1e5 + 0.1, axis=1)
    with pytest.warns(UserWarning, match=r"\['x1'\] do not vary"):
        model = PrivateGLMMClassifier().fit(X, STUDY.y, **STUDY.arguments)
    assert model.coef_[0, 1] == 0 and np.isnan(model.coef_std_[0, 1])
    rest = [0, 2, 3]
    np.testing.assert_allclose(model.coef_[0, rest], fitted.coef_[0], atol=1e-6)
    np.testing.assert_allclose(model.coef_std_[0, rest], fitted.coef_std_[0], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, fitted.intercept_, atol=1e-5)


def test_labels_may_be_text(fitted):
    y = np.where(STUDY.y == 1, "sick", "healthy")
    cluster = np.char.add("centre ", STUDY.cluster.astype(str))
    model = PrivateGLMMClassifier().fit(STUDY.X, y, cluster=cluster, party=STUDY.party)
    np.testing.assert_allclose(model.coef_, fitted.coef_, atol=1e-8)
    assert model.classes_.tolist() == ["healthy", "sick"]
    effects = dict(zip(model.clusters_, model.random_effects_))
    expected = {f"centre {c}": e for c, e in enumerate(fitted.random_effects_)}
    assert effects == pytest.approx(expected, abs=1e-8)
    predicted = model.predict(STUDY.X, cluster=cluster)
    assert set(predicted) == {"healthy", "sick"}


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_a_cluster_with_one_row(fitted):
    cluster = STUDY.cluster.copy()
    cluster[0] = 99
    model = PrivateGLMMClassifier().fit(
        STUDY.X, STUDY.y, cluster=cluster, party=STUDY.party
    )
    assert model.clusters_[-1] == 99
    shrunken = abs(model.random_effects_[-1])
    assert 0 < shrunken < model.random_effect_scale_
    expected, *_ = fit(STUDY.X, STUDY.y, cluster)
    np.testing.assert_allclose(parameters(model), expected, atol=1e-4)


def spoil(**changes):
    arguments = {"X": STUDY.X, "y": STUDY.y, **STUDY.arguments}
    return {k: v.astype(float) for k, v in arguments.items()} | changes


@pytest.mark.parametrize(
    "arguments, message",
    [
        (spoil(X=np.where(STUDY.X > 140, np.nan, STUDY.X)), "NaN"),
        (spoil(y=np.where(STUDY.X[:, 0] > 1, np.nan, STUDY.y)), "NaN"),
        (spoil(cluster=np.where(STUDY.X[:, 0] > 1, np.nan, 0)), "missing labels"),
        (spoil(y=STUDY.cluster % 3), "Only binary"),
        (spoil(y=np.ones(len(STUDY.y))), "1 class"),
        (spoil(y=None), "requires y"),
        (spoil(cluster=STUDY.cluster[:-1]), "cluster has .* give one per row"),
        (spoil(cluster="centre"), "cluster='centre' is one value"),
    ],
    ids="X y cluster three-classes one-class no-y length name".split(),
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrivateGLMMClassifier().fit(**arguments)


def test_small_clusters_spread_over_parties_are_refused():
    cluster = STUDY.cluster.copy()
    cluster[:4], party = 99, STUDY.party.copy()
    party[:4] = [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"\[99\].*min_rows=5"):
        PrivateGLMMClassifier().fit(STUDY.X, STUDY.y, cluster=cluster, party=party)
    PrivateGLMMClassifier(min_rows=4).fit(
        STUDY.X, STUDY.y, cluster=cluster, party=party
    )
    with pytest.raises(ValueError, match="min_parties=5"):
        PrivateGLMMClassifier(min_parties=5).fit(STUDY.X, STUDY.y, **STUDY.arguments)


def test_who_can_tell_clusters_apart_is_said():
    party = np.where(STUDY.cluster == 3, 0, STUDY.party)
    party = np.where(STUDY.cluster == 4, np.arange(len(party)) % 2, party)
    with pytest.warns(PrivacyLeakWarning) as caught:
        model = PrivateGLMMClassifier().fit(
            STUDY.X, STUDY.y, cluster=STUDY.cluster, party=party
        )
    one, two = (str(warning.message) for warning in caught)
    assert "[3] are held by one party" in one and one in model.ledger_.notes
    assert "[4] are held by two parties" in two and two in model.ledger_.notes


def test_effects_of_one_partys_clusters_can_be_withheld(fitted):
    party = np.where(STUDY.cluster == 3, 0, STUDY.party)
    model = PrivateGLMMClassifier(release_effects="shared")
    model.fit(STUDY.X, STUDY.y, cluster=STUDY.cluster, party=party)
    assert np.flatnonzero(np.isnan(model.random_effects_)).tolist() == [3]
    rest = np.arange(15) != 3
    np.testing.assert_allclose(
        model.random_effects_[rest], fitted.random_effects_[rest], atol=1e-6
    )
    log_odds = model.decision_function(STUDY.X[:1], cluster=[3])
    np.testing.assert_allclose(log_odds, model.decision_function(STUDY.X[:1]))


def test_public_clusters_hide_who_holds_which():
    arguments = {"y": STUDY.y, **STUDY.arguments}
    model = PrivateGLMMClassifier(clusters=range(20)).fit(STUDY.X, **arguments)
    assert len(model.clusters_) == 20
    np.testing.assert_array_equal(model.random_effects_[15:], 0)
    np.testing.assert_allclose(
        model.random_effects_std_[15:], model.random_effect_scale_
    )
    with pytest.raises(ValueError, match=r"clusters= does not list: \[14\]"):
        PrivateGLMMClassifier(clusters=range(14)).fit(STUDY.X, **arguments)


def test_prediction_uses_the_clusters_effects(fitted):
    X, cluster = STUDY.X[:50], STUDY.cluster[:50]
    log_odds = X @ fitted.coef_[0] + fitted.intercept_
    np.testing.assert_allclose(fitted.decision_function(X), log_odds)
    log_odds = log_odds + fitted.random_effects_[cluster]
    np.testing.assert_allclose(fitted.decision_function(X, cluster=cluster), log_odds)
    p = fitted.predict_proba(X, cluster=cluster)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-log_odds)))
    np.testing.assert_allclose(
        fitted.predict_log_proba(X, cluster=cluster), np.log(p), atol=1e-12
    )
    np.testing.assert_allclose(
        fitted.decision_function(X, cluster=["unheard of"] * 50),
        fitted.decision_function(X),
    )
    with pytest.raises(ValueError, match="49 values for 50 rows"):
        fitted.predict(X, cluster=cluster[:-1])


def test_summary_is_a_table(fitted):
    summary = fitted.summary()
    text = str(summary)
    for words in ("(Intercept)", "Std. Error", "Pr(>|z|)", "AIC", "cluster 15"):
        assert words in text
    frame = summary.to_frame()
    z = np.append(fitted.intercept_, fitted.coef_) / standard_errors(fitted)
    np.testing.assert_allclose(frame["z value"], z)
    low, high = np.transpose(list(summary.conf_int().values()))
    np.testing.assert_allclose((high - low) / 2, 1.959964 * standard_errors(fitted))
    assert summary.aic == pytest.approx(10 - 2 * fitted.log_likelihood_)
    assert "<table>" in summary._repr_html_()


def test_names_of_features_are_in_the_summary():
    frame = pd.DataFrame(STUDY.X, columns=["dose", "sex", "weight"])
    model = PrivateGLMMClassifier().fit(frame, STUDY.y, **STUDY.arguments)
    assert "weight" in str(model.summary())


def test_summary_names_classes_and_clusters_and_says_if_the_search_did_not_end():
    answers = np.where(STUDY.y == STUDY.y.max(), "yes", "no")
    arguments = STUDY.arguments | {"cluster": pd.DataFrame({"ward": STUDY.cluster})}
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        hasty = PrivateGLMMClassifier(max_iter=1).fit(STUDY.X, answers, **arguments)
    text = str(hasty.summary())
    assert "y: 'yes' against 'no'" in text and "clusters: ward 15" in text
    assert "did not converge" in text


def test_columns_of_all_labels_are_collinear_and_the_encoder_can_drop_one():
    labels = np.array(["low", "high"])[(STUDY.X[:, :1] > 0).astype(int)]
    encoder = FederatedOneHotEncoder(categories=[["low", "high"]])
    encoder.fit(labels, party=STUDY.party)
    with pytest.warns(ConvergenceWarning, match="drop='first'"):
        PrivateGLMMClassifier().fit(
            encoder.transform(labels), STUDY.y, **STUDY.arguments
        )
    rows = encoder.set_params(drop="first").transform(labels)
    model = PrivateGLMMClassifier().fit(rows, STUDY.y, **STUDY.arguments)
    assert np.all(np.isfinite(standard_errors(model)))


def partition(*keys):
    parts = {str(k): np.flatnonzero(STUDY.party == k) for k in range(4)}
    values = {"y": STUDY.y, "cluster": STUDY.cluster}
    return HorizontalPartition(
        {name: STUDY.X[index] for name, index in parts.items()},
        **{
            key: {name: values[key][index] for name, index in parts.items()}
            for key in keys
        },
    )


def test_partition_carries_everything(fitted):
    model = PrivateGLMMClassifier().fit(partition("y", "cluster"))
    assert_same_fit(model, fitted, atol=1e-9)
    with pytest.raises(PartitionError, match="no y"):
        PrivateGLMMClassifier().fit(partition("cluster"))
    with pytest.raises(PartitionError, match="beside a partition"):
        PrivateGLMMClassifier().fit(partition("y"), STUDY.y)


def test_columns_of_a_partition_keep_their_names():
    names = [f"x{i}" for i in range(STUDY.X.shape[1])]
    frame = pd.DataFrame(STUDY.X, columns=names).assign(
        died=STUDY.y, ward=STUDY.cluster
    )
    rows = HorizontalPartition.from_rows(frame, STUDY.party)
    model = PrivateGLMMClassifier().fit(rows, y="died", cluster="ward")
    assert model.factors_ == ["ward"] and "ward " in str(model.summary())
    assert model.score(rows, y="died", cluster="ward") > 0.5
    with pytest.raises(ValueError, match=r"X has \['ward'\] beside .* name what it is"):
        model.score(rows, y="died")
    with pytest.raises(PartitionError, match="no y: name its column"):
        PrivateGLMMClassifier().fit(rows, cluster="ward")


def test_a_party_with_unknown_clusters_refuses():
    model = PrivateGLMMClassifier(clusters=range(14))
    with pytest.raises(PartyError, match="do not fit"):
        model.fit(partition("y", "cluster"))
    assert not hasattr(model, "coef_")


def test_cluster_and_party_are_routed():
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FederatedStandardScaler(), PrivateGLMMClassifier())
        pipeline.fit(STUDY.X, STUDY.y, **STUDY.arguments)
        with_effects = pipeline.predict_proba(STUDY.X, cluster=STUDY.cluster)
        assert not np.allclose(with_effects, pipeline.predict_proba(STUDY.X))
        search = GridSearchCV(PrivateGLMMClassifier(), NODES, cv=2)
        search.fit(STUDY.X, STUDY.y, **STUDY.arguments)
    assert len(search.best_estimator_.clusters_) == 15


@pytest.mark.parametrize("backend", ["masking", "ckks"])
def test_the_ledger_says_what_was_told(backend):
    study = simulate(200, 6, 3)
    model = PrivateGLMMClassifier(backend=backend).fit(
        study.X, study.y, **study.arguments
    )
    kinds = {entry.kind for entry in model.ledger_.entries}
    hidden = "ciphertext" if backend == "ckks" else "masked"
    assert kinds <= {"public", "sealed", hidden}
    facts = [fact for fact in model.ledger_.facts() if "log-likelihoods" in fact.what]
    assert {fact.kind for fact in facts if fact.who == "coordinator"} == {hidden}
    assert {fact.who for fact in facts if fact.is_total} == {"all parties"}


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_clusters_of_one_party_are_in_no_table():
    """What a coordinator reads of a table has no column for them."""
    party = np.where(STUDY.cluster < 10, 0, STUDY.party)
    sizes = {}
    for name, holder in {"shared": STUDY.party, "alone": party}.items():
        model = PrivateGLMMClassifier(max_iter=1, backend="masking")
        with pytest.warns(ConvergenceWarning):
            model.fit(STUDY.X, STUDY.y, cluster=STUDY.cluster, party=holder)
        sizes[name] = [
            entry.n_bytes
            for entry in model.ledger_.entries
            if entry.operation == "log-likelihoods, gradient and Hessians"
            and entry.receiver == "coordinator"
        ][0]
    # ten clusters less, of 25 nodes, 2 derivatives and 4 products, of 14 bytes each
    assert sizes["shared"] - sizes["alone"] == 10 * (25 + 2 + 4) * 14


def test_a_table_of_one_row_would_give_the_row_away():
    """Why clusters of one party, and small ones, stay out of the tables."""
    secret_predictor, secret_class = 0.8371, 1.0
    one = np.ones((1, 1))
    events, category = np.array([secret_class]), np.array([0])
    row = Rows(family_of("binomial"), one, one, events, one[0], 0 * one[0], category, 1)
    nodes = np.linspace(-2, 2, 9)[None]
    table = log_likelihood_table(row, np.array([secret_predictor, 1.0]), nodes)[0]
    table -= table[4]

    def misfit(predictor, label):
        guess = log_expit((2 * label - 1) * (predictor + nodes[0]))
        return np.sum((guess - guess[4] - table) ** 2)

    found = [minimize_scalar(misfit, args=(label,)) for label in (0, 1)]
    assert np.argmin([result.fun for result in found]) == secret_class
    assert found[1].x == pytest.approx(secret_predictor, abs=1e-4)


def test_a_party_insists_on_the_limits_itself(monkeypatch):
    # a researcher who does not mind gets no estimates
    monkeypatch.setattr(_base, "check_survey", lambda *arguments: None)
    cluster = np.where(np.arange(len(STUDY.y)) < 4, 99, STUDY.cluster)
    party = np.where(cluster == 99, np.arange(len(STUDY.y)) % 4, STUDY.party)
    with pytest.raises(KeyError, match="estimates"):
        PrivateGLMMClassifier().fit(STUDY.X, STUDY.y, cluster=cluster, party=party)


def test_a_target_that_is_no_class_stays_with_its_holder():
    rows = HorizontalPartition(
        {"a": STUDY.X[:9], "b": STUDY.X[9:20], "c": STUDY.X[20:30]},
        y={"a": STUDY.X[:9, 0], "b": STUDY.X[9:20, 0], "c": STUDY.X[20:30, 0]},
    )
    with pytest.warns(UserWarning), pytest.raises(PartyError, match="do not fit"):
        PrivateGLMMClassifier().fit(rows)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_too_few_nodes_are_said():
    study = simulate(n_rows=400, n_clusters=40, sigma=8.0, seed=1)
    with pytest.warns(UserWarning, match="too few, try .*75"):
        PrivateGLMMClassifier(min_rows=1).fit(study.X, study.y, **study.arguments)


def test_nearly_collinear_features_are_fitted_without_a_warning():
    noise = 1e-4 * np.random.default_rng(0).normal(size=len(STUDY.y))
    X = np.column_stack([STUDY.X, STUDY.X[:, 0] + noise])
    model = PrivateGLMMClassifier().fit(X, STUDY.y, **STUDY.arguments)
    assert np.all(np.isfinite(model.coef_std_)) and model.coef_std_[0, 3] > 100


@pytest.mark.parametrize(
    "name",
    ["n_draws", "n_burn_in", "batch_size", "random_state", "arrangement", "crossed"]
    + ["correlated", "random_intercept", "n_quadrature", "tol"],
)
def test_old_parameters_name_the_new_ones(name):
    with pytest.raises(TypeError, match="write (metropolis|effect|quadrature)_params="):
        PrivateGLMMClassifier(**{name: 10})
    chains = {name: -1}
    model = PrivateGLMMClassifier("metropolis", metropolis_params=chains)
    with pytest.raises(ValueError, match="metropolis_params"):
        model.fit(STUDY.X, STUDY.y, **STUDY.arguments)


def test_who_learns_what_fits_ten_lines(fitted):
    sums = [one.what for one in generalised_mixed_model.rounds()]
    assert max(len(what.split()) for what in sums) <= 10
    lines = str(fitted.ledger_.who_learns_what()).splitlines()
    assert len(lines) - len(["header", "rule"]) <= 10


def test_the_old_name_names_the_new_one():
    with pytest.raises(ImportError, match="now named PrivateGLMMClassifier"):
        from skprivbn.mixed_model import PrivateGLMM  # noqa: F401
