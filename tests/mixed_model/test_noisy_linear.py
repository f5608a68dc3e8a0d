"""Linear mixed models from one noisy release."""

import numpy as np
import pandas as pd
import pytest

from skprivbn.mixed_model import PrivateGLMMRegressor, likelihood_ratio_test
from skprivbn.mixed_model._noisy_linear import (
    FINER,
    Statistics,
    fit_noisy,
)
from skprivbn.partition import HorizontalPartition
from tests.privacy.before_noise import numbers_before_noise
from tests.privacy.test_audit_neighbours import assert_alike

N_CLUSTERS = 12
BOUNDS = [(-4.0, 4.0), (0.0, 10.0), (-6.0, 8.0)]
FIXED = np.array([1.0, 0.5, -0.3])


def draw(rng, n_rows, sizes=None):
    """Return rows, targets and clusters of a study."""
    X = np.column_stack([rng.normal(size=n_rows), rng.uniform(0, 10, size=n_rows)])
    cluster = rng.choice(N_CLUSTERS, size=n_rows, p=sizes)
    effects = 0.5 * rng.normal(size=N_CLUSTERS)
    y = FIXED[0] + X @ FIXED[1:] + effects[cluster] + rng.normal(size=n_rows)
    return X, y, cluster


def private(**options):
    options = {"epsilon": 1.0, "delta": 1e-6, "bounds": BOUNDS} | options
    return PrivateGLMMRegressor(clusters=range(N_CLUSTERS), **options)


STUDY = draw(np.random.default_rng(0), 3_000)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("reml", [True, False])
def test_with_hardly_any_noise_it_is_the_exact_fit(reml, delta):
    """Whose oracle is lme4; rows within the bounds are rounded on a grid."""
    X, y, cluster = STUDY
    party = np.arange(len(y)) % 3
    y = np.clip(y, *BOUNDS[-1])
    exact = PrivateGLMMRegressor(reml=reml).fit(X, y, cluster=cluster, party=party)
    noisy = private(epsilon=1e5, delta=delta, reml=reml)
    noisy.fit(X, y, cluster=cluster, party=party)
    for name in ("coef_", "intercept_", "random_effects_", "random_effects_std_"):
        close = pytest.approx(getattr(exact, name), rel=1e-3, abs=1e-3)
        assert getattr(noisy, name) == close, name
    for name in ("random_effect_scale_", "residual_scale_", "n_samples_"):
        assert getattr(noisy, name) == pytest.approx(getattr(exact, name), rel=1e-3)
    # a bootstrap of 200 draws
    assert noisy.coef_std_ == pytest.approx(exact.coef_std_, rel=0.25)
    assert noisy.predict(X[:5], cluster=cluster[:5]) == pytest.approx(
        exact.predict(X[:5], cluster=cluster[:5]), abs=0.01
    )


def test_what_the_noise_is_added_to_are_products_and_sums_by_cluster():
    X, y, cluster = (part[:50] for part in STUDY)
    model = private()
    found = numbers_before_noise(model, X, {"y": y, "cluster": cluster})
    low, high = np.transpose(BOUNDS)
    Z = np.column_stack([X, y])
    Z = np.clip((Z - (low + high) / 2) / ((high - low) / 2), -1, 1)
    products, sums = (Z.T @ Z)[np.triu_indices(3)], np.zeros((N_CLUSTERS, 4))
    np.add.at(sums, cluster, np.column_stack([np.ones(50), Z]))
    expected = np.append(products, FINER * sums)
    assert found / 2**30 == pytest.approx(expected, abs=1e-2)


def test_the_release_is_reported_and_paid_for():
    X, y, cluster = STUDY
    model = private(epsilon=2.0).fit(X, y, cluster=cluster)
    assert (model.privacy_spent_.epsilon, model.privacy_spent_.delta) == (2.0, 1e-6)
    told = [number.what for number in model.noise_report_.numbers]
    assert told[:3] == ["number of rows", "intercept", "coefficient of 'x0'"]
    assert model.noise_report_.kind == "gaussian"
    assert "log-likelihood" not in str(model.summary())
    with pytest.raises(ValueError, match="the test needs log-likelihoods"):
        likelihood_ratio_test(model, model)
    # an exact fit forgets what a private one has spent
    model.set_params(epsilon=None, bounds=None)
    model.fit(X, y, cluster=cluster, party=np.arange(len(y)) % 3)
    assert not hasattr(model, "noise_report_") and model.log_likelihood_ < 0


def test_clusters_that_noise_drowns_are_named_and_have_no_effect():
    X, y, cluster = STUDY
    with pytest.warns(UserWarning, match=r"clusters \[99\] have no more rows"):
        model = private(epsilon=5.0).set_params(clusters=[*range(N_CLUSTERS), 99])
        model.fit(X, y, cluster=cluster)
    assert model.random_effects_[-1] == 0
    assert model.random_effects_std_[-1] == pytest.approx(model.random_effect_scale_)
    assert model.random_effect_scale_ > 0


def test_bounds_by_name_have_one_of_the_target():
    X, y, cluster = STUDY
    X = pd.DataFrame(X, columns=["age", "dose"])
    bounds = dict(zip(["age", "dose", "y"], BOUNDS))
    model = private(bounds=bounds, epsilon=1e4).fit(X, y, cluster=cluster)
    assert model.coef_ == pytest.approx(FIXED[1:], abs=0.1)
    del bounds["y"]
    with pytest.raises(ValueError, match=r"bounds lacks columns \['y'\]"):
        private(bounds=bounds).fit(X, y, cluster=cluster)


@pytest.mark.parametrize(
    "options, beside, words",
    [
        ({"family": "poisson"}, {}, "every iteration.*DPCGMLearner"),
        ({"family": "binomial"}, {}, "every iteration.*DPCGMLearner"),
        ({"slopes": [0]}, {}, "slopes is not available with epsilon"),
        ({"effect_params": {}}, {}, "effect_params is not available"),
        ({"fit_intercept": False}, {}, "fit_intercept=False is not available"),
        ({"release_effects": "shared"}, {}, "release_effects='shared' is not"),
        ({}, {"offset": np.zeros(3_000)}, "offset is not available"),
        ({}, {"sample_weight": np.ones(3_000)}, "sample_weight is not available"),
        ({}, {"cluster": None}, "one column of cluster labels.*got 0"),
        ({}, {"cluster": np.ones((3_000, 2))}, "cluster labels.*got 2"),
        ({"clusters": None}, {}, r"epsilon needs clusters=\[...\]"),
        ({"clusters": [1]}, {}, "at least two labels"),
        ({"clusters": [1, "1"]}, {}, "no two of them alike"),
        ({"bounds": None}, {}, "epsilon needs public bounds"),
    ],
)
def test_what_no_noise_is_made_for_is_refused(options, beside, words):
    X, y, cluster = STUDY
    with pytest.raises(ValueError, match=words):
        private().set_params(**options).fit(X, y, **{"cluster": cluster} | beside)


def test_a_partition_with_persons():
    X, y, cluster = (part[:300] for part in STUDY)
    parts = {name: slice(i, i + 100) for name, i in zip("abc", (0, 100, 200))}
    partition = HorizontalPartition(
        {name: X[rows] for name, rows in parts.items()},
        y={name: y[rows] for name, rows in parts.items()},
        cluster={name: cluster[rows] for name, rows in parts.items()},
        individual={name: np.arange(100) // 2 for name in parts},
    )
    model = private(epsilon=1e5).fit(partition)
    assert model.noise_report_.protects == "individuals"
    assert model.n_samples_ == pytest.approx(150, abs=1)


ODD = [
    (1.0, "c"),
    (np.nan, "a"),
    (np.inf, None),
    (0.5, np.nan),
    ("x", 7),
    (None, ("a", 1)),
    (10**400, ["a"]),
    (1j, b"a"),
    (pd.NA, True),
]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("who", [False, True])
def test_targets_and_labels_of_any_kind_are_hidden(delta, who, monkeypatch):
    """Neighbours differ by a row, or five of a person, of strange values."""

    monkeypatch.setattr("skprivbn.mixed_model._noisy_linear.N_DRAWS", 3)

    def world(*odd):
        n = 12 + len(odd)
        y, cluster = np.empty((2, n), dtype=object)
        y[:12], cluster[:12] = np.linspace(-1, 1, 12), ["a", "b"] * 6
        for i, (target, label) in enumerate(odd):
            y[12 + i], cluster[12 + i] = target, label
        beside = {"y": y, "cluster": cluster}
        if who:
            beside["individual"] = np.minimum(np.arange(n), 12)
        return np.ones((n, 1)), beside

    model = PrivateGLMMRegressor(
        clusters=["a", "b"], epsilon=1.0, delta=delta, bounds=(-1.0, 1.0)
    )
    more = [world(*[odd] * (5 if who else 1)) for odd in ODD]
    # a person may be in several clusters
    more += [world((1.0, "a"), (-1.0, "b"), (1.0, "c"))] if who else []
    assert_alike(model, world(), *more)


def test_the_twin_in_which_a_person_counts_by_the_row():
    rows = np.ones((12, 1)), {"y": np.ones(12), "cluster": ["a", "b"] * 6}
    more = np.ones((17, 1)), {"y": np.ones(17), "cluster": ["a", "b"] * 6 + ["a"] * 5}
    model = PrivateGLMMRegressor(clusters=["a", "b"], epsilon=1.0, bounds=(-1.0, 1.0))
    with pytest.raises(AssertionError, match=r"5\.0"):
        assert_alike(model, rows, more)


def test_estimates_do_not_lean_as_noise_grows():
    """Noise in sums of clusters would add to effects, and shrink coefficients."""
    rng, found = np.random.default_rng(1), []
    low, high = np.transpose(BOUNDS)
    for _ in range(40):
        X, y, cluster = draw(rng, 20_000)
        Z = np.column_stack([X, y])
        Z = np.clip((Z - (low + high) / 2) / ((high - low) / 2), -1, 1)
        sums = np.zeros((N_CLUSTERS, 4))
        np.add.at(sums, cluster, np.column_stack([np.ones(len(y)), Z]))
        noise = np.triu(40 * rng.normal(size=(3, 3)))
        given = Statistics(
            Z.T @ Z + noise + np.triu(noise, 1).T,
            sums + 40 / FINER * rng.normal(size=sums.shape),
            40.0,
        )
        fit = fit_noisy(given, True)
        scale = (high - low) / 2
        found.append([*fit.fixed[1:] * scale[-1] / scale[:-1], fit.scale * scale[-1]])
    bias = np.mean(found, axis=0) - [*FIXED[1:], 0.5]
    errors = np.std(found, axis=0) / 40**0.5
    assert np.all(np.abs(bias) < 4 * errors + 0.01)


def test_standard_errors_count_the_noise():
    X, y, cluster = STUDY
    wide = private(epsilon=0.5).fit(X, y, cluster=cluster)
    narrow = private(epsilon=5.0).fit(X, y, cluster=cluster)
    party = np.arange(len(y)) % 3
    exact = PrivateGLMMRegressor().fit(X, y, cluster=cluster, party=party)
    assert np.all(wide.coef_std_ > 3 * narrow.coef_std_)
    assert np.all(narrow.coef_std_ > 1.2 * exact.coef_std_)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
def test_intervals_cover_the_truth(epsilon):
    rng, inside = np.random.default_rng(2), []
    for _ in range(60):
        X, y, cluster = draw(rng, 10_000)
        model = private(epsilon=epsilon).fit(X, y, cluster=cluster)
        low, high = np.transpose(list(model.summary().conf_int().values()))
        inside.append((low <= FIXED) & (high >= FIXED))
    # of 180 intervals, of which three hang together
    assert 0.88 <= np.mean(inside) <= 1.0
