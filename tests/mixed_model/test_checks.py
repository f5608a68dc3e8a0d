"""Awkward input: what is wrong is said, by the name of the argument."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.mixed_model import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.partition import HorizontalPartition
from tests.mixed_model.studies import SCALES, marginal

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
N = 200


@pytest.fixture(scope="module")
def rows():
    """Rows, clusters, holders, and targets of every kind."""
    rng = np.random.default_rng(3)
    X, cluster = rng.normal(size=(N, 2)), rng.integers(6, size=N)
    eta = X @ [1.0, -0.5] + rng.normal(size=6)[cluster]
    return {
        "X": X,
        "cluster": cluster,
        "party": rng.integers(3, size=N),
        "classes": (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(int),
        "numbers": eta + rng.normal(size=N),
        "counts": rng.poisson(np.exp(eta / 2)),
        "beds": rng.integers(3, size=N),
    }


def fit(model, rows, target, **changes):
    """Fit with some of the arguments changed."""
    arguments = {"cluster": rows["cluster"], "party": rows["party"], **changes}
    X, y = arguments.pop("X", rows["X"]), arguments.pop("y", rows[target])
    return model.fit(X, y, **arguments)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"cluster": "ward"}, r"cluster='ward' is one value.*cluster=X\['ward'\]"),
        ({"offset": "exposure"}, "offset='exposure' is one value"),
        ({"sample_weight": "w"}, "sample_weight='w' is one value"),
        ({"cluster": np.zeros(N)}, "cluster has the same label in all rows"),
        ({"offset": np.full(N, np.nan)}, "offset has NaN or infinity"),
        ({"offset": np.full(N, np.inf)}, "offset has NaN or infinity"),
        ({"offset": np.full(N, "a")}, "offset must be numbers"),
        ({"offset": np.full(N, "1.5")}, "offset must be numbers"),
        ({"offset": np.full(N, "1.5", dtype=object)}, "offset must be numbers"),
        ({"offset": np.full(N, "2020", "datetime64[D]")}, "offset must be numbers"),
        ({"offset": np.ones(N - 1)}, "offset has 199 values for 200 rows"),
        ({"sample_weight": np.full(N, np.nan)}, "sample_weight has NaN or infinity"),
        ({"sample_weight": np.full(N, "a")}, "sample_weight must be numbers"),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values for 200 rows"),
        ({"y": np.zeros(N)}, "y has 1 class.*two are needed"),
    ],
)
def test_values_beside_rows(rows, changes, message):
    with pytest.raises(ValueError, match=message):
        fit(PrivateGLMMClassifier(), rows, "classes", **changes)


@pytest.mark.parametrize(
    "options, changes, message",
    [
        ({}, {"y": np.ones(N)}, "y is the same in all rows"),
        ({}, {"cluster": np.arange(N)}, "cluster has another label in every row"),
        ({"slopes": [1, 1]}, {}, "slopes names a column twice"),
        ({"slopes": [True]}, {}, "slopes names True, which is no column"),
        ({"slopes": [0]}, {"cluster": None}, "and cluster be given"),
        (
            {"slopes": [2]},
            {"X": np.column_stack([np.eye(N, 2), np.ones(N)])},
            "slopes names 'x2', which does not vary",
        ),
        (
            {"family": "binomial"},
            {"y": np.zeros(N), "sample_weight": np.ones(N - 1)},
            "sample_weight has 199 values for 200 rows",
        ),
        (
            {},
            {"cluster": pd.DataFrame(np.ones((N, 2)), columns=["a", "a"])},
            "cluster has two columns of one name",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:no cluster was given")
def test_models_that_rows_cannot_tell(rows, options, changes, message):
    with pytest.raises(ValueError, match=message):
        fit(PrivateGLMMRegressor(**options), rows, "numbers", **changes)


def test_classes_of_clusters_with_one_row_are_warned_of(rows):
    changes = {"cluster": np.arange(N), "party": None}
    with pytest.warns(UserWarning, match="cluster has another label in every row"):
        fit(PrivateGLMMClassifier(max_iter=1), rows, "classes", **changes)


@pytest.mark.parametrize(
    "model, target",
    [
        (PrivateGLMMRegressor(effect_params={"crossed": True}), "numbers"),
        (PrivateGLMMRegressor(), "numbers"),
        (PrivateGLMMRegressor(family="poisson"), "counts"),
    ],
)
def test_factors_that_are_the_same_are_warned_of(rows, model, target):
    """Their variances add up to that of one of them, however they are divided."""
    same = pd.DataFrame({"ward": rows["cluster"], "nurse": -rows["cluster"]})
    with pytest.warns(UserWarning, match="'nurse' have the same groups of rows"):
        two = fit(model, rows, target, cluster=same).random_effect_covariance_
    one = fit(clone(model), rows, target).random_effect_scale_
    assert sum(two.values()) == pytest.approx(one**2, rel=1e-2)


@pytest.mark.filterwarnings("error:.*have the same groups of rows")
def test_factors_of_equal_sizes_are_not_the_same(rows):
    """Two ways to halve the rows have the same numbers of rows in common."""
    halves = np.arange(N) % 2, np.arange(N) // 2 % 2
    y = rows["numbers"] + 3 * halves[0] + 5 * halves[1]
    model = PrivateGLMMRegressor(effect_params={"crossed": True})
    fit(model, rows, "numbers", y=y, cluster=np.column_stack(halves))
    assert not model.singular_


def test_a_column_of_ones_can_be_the_intercept(rows):
    usual = fit(PrivateGLMMRegressor(), rows, "numbers")
    ones = np.column_stack([np.ones(N), rows["X"]])
    model = PrivateGLMMRegressor(fit_intercept=False)
    other = fit(model, rows, "numbers", X=ones)
    fixed = np.append(usual.intercept_, usual.coef_)
    np.testing.assert_allclose(other.coef_, fixed, rtol=1e-6)
    np.testing.assert_allclose(other.coef_std_[1:], usual.coef_std_, rtol=1e-6)
    assert other.log_likelihood_ == pytest.approx(usual.log_likelihood_, rel=1e-9)


def test_what_a_party_may_mean_is_said(rows):
    index = {name: rows["party"] == i for i, name in enumerate("abc")}
    blocks = {name: rows["X"][mine] for name, mine in index.items()}
    beside = {
        key: {name: rows[of][mine] for name, mine in index.items()}
        for key, of in (("y", "classes"), ("cluster", "cluster"))
    }
    gaps = {name: np.full(mine.sum(), np.nan) for name, mine in index.items()}
    model = PrivateGLMMClassifier()
    with pytest.raises(PartyError) as caught:
        model.fit(HorizontalPartition(blocks, **beside, offset=gaps))
    assert "offset has NaN" in caught.value.__notes__[0]
    assert "offset or sample_weight has gaps" in caught.value.__notes__[1]
    unknown = {name: np.full(mine.sum(), None) for name, mine in index.items()}
    with pytest.raises(PartyError, match="not go on.*'y'.* have gaps") as caught:
        model.fit(HorizontalPartition(blocks, **beside | {"y": unknown}))
    assert "leave out rows without an outcome" in caught.value.__notes__[0]
    with pytest.raises(PartitionError, match="offset lacks the values of party 'b'"):
        HorizontalPartition(blocks, **beside, offset={"a": gaps["a"]})
    beside["ward"] = beside.pop("cluster")
    with pytest.warns(UserWarning, match="no cluster was given.*ward"):
        model.fit(HorizontalPartition(blocks, **beside))


def test_columns_of_cluster_are_found_by_name(rows):
    frame = pd.DataFrame({"ward": rows["cluster"], "bed": rows["beds"]})
    model = PrivateGLMMRegressor(min_rows=1)
    model = fit(model, rows, "numbers", cluster=frame)
    expected = model.predict(rows["X"], cluster=frame)
    swapped = model.predict(rows["X"], cluster=frame[["bed", "ward"]])
    np.testing.assert_array_equal(swapped, expected)
    np.testing.assert_array_equal(
        model.predict(rows["X"], cluster=frame.to_numpy()), expected
    )
    with pytest.raises(ValueError, match=r"\['a', 'b'\], the model was fitted to"):
        model.predict(rows["X"], cluster=frame.set_axis(["a", "b"], axis=1))


def test_what_is_scored_goes_with_the_rows(rows):
    model = fit(PrivateGLMMClassifier(), rows, "classes")
    regressor = fit(PrivateGLMMRegressor("poisson"), rows, "counts")
    X, y = rows["X"], rows["classes"]
    for wrong, message in (
        ({"y": None}, "requires y"),
        ({"y": y[:3]}, "y has 3 values for 200 rows"),
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values"),
        ({"offset": np.full(N, np.nan)}, "offset has NaN"),
        ({"cluster": "ward"}, "cluster='ward' names a column, and X is no dataframe"),
    ):
        for fitted in (model, regressor):
            with pytest.raises(ValueError, match=message):
                fitted.score(X, **{"y": y, **wrong})
    with pytest.raises(ValueError, match="y has the label '[01]', the fit had"):
        model.score(X, y.astype(str))


def test_a_table_with_names_is_split_fitted_predicted_and_scored(rows):
    frame = pd.DataFrame(rows["X"], columns=["age", "dose"])
    frame["ward"], frame["hospital"] = rows["cluster"], rows["party"]
    labels = np.array(["no", "yes"])[rows["classes"]]
    frame["died"] = pd.Categorical(labels, categories=["no", "yes"])
    partition = HorizontalPartition.from_rows(frame, party="hospital")
    assert partition.feature_names == ["age", "dose", "ward", "died"]
    whole = HorizontalPartition.from_rows(frame.assign(died=rows["classes"])[["died"]])
    assert whole.beside({"y": "died"})._blocks["all"]["y"].dtype.kind == "i"
    model = PrivateGLMMClassifier(slopes="age").fit(partition, y="died", cluster="ward")
    known = PrivateGLMMClassifier(slopes=["age"]).fit(
        frame[["age", "dose"]],
        frame["died"],
        cluster=frame[["ward"]],
        party=frame["hospital"],
    )
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-12)
    assert model.summary().names == known.summary().names
    new = frame[["age", "ward", "dose"]].iloc[::-1]
    np.testing.assert_allclose(
        model.predict_proba(new, cluster="ward"),
        known.predict_proba(new[["age", "dose"]], cluster=new["ward"]),
        rtol=1e-9,
    )
    columns = ["age", "dose", "died", "ward"]
    assert model.score(frame[columns], "died", cluster="ward") == known.score(
        frame[columns[:2]], frame["died"], cluster=frame["ward"]
    )
    with pytest.raises(PartitionError, match="party='site' is no column of X, which"):
        HorizontalPartition.from_rows(frame, party="site")
    with pytest.raises(ValueError, match=r"fit to HorizontalPartition.from_rows\(X"):
        model.fit(frame[columns[:2]], labels, party="hospital")


@pytest.mark.parametrize("order", [["no", "yes"], ["yes", "maybe", "no"]])
def test_the_last_declared_class_is_modelled_as_in_r(rows, order):
    labels = np.array(["no", "yes"])[rows["classes"]]
    frame = pd.DataFrame({"dose": rows["X"][:, 0], "died": labels})
    usual = PrivateGLMMClassifier().fit(frame[["dose"]], labels, party=rows["party"])
    frame["died"] = pd.Categorical(labels, categories=order)
    blocks = {f"p{k}": frame[rows["party"] == k] for k in range(3)}
    sign = 1 if order == ["no", "yes"] else -1
    for X, y, party in (
        (HorizontalPartition(blocks), "died", None),
        (frame[["dose"]], frame["died"], rows["party"]),
    ):
        model = PrivateGLMMClassifier().fit(X, y, party=party)
        assert model.classes_.tolist() == [label for label in order if label != "maybe"]
        np.testing.assert_allclose(model.coef_, sign * usual.coef_, rtol=1e-6)
        expected = usual.predict_proba(frame[["dose"]])[:, ::sign]
        np.testing.assert_allclose(model.predict_proba(frame[["dose"]]), expected)
        assert model.score(frame[["dose"]], labels) == usual.score(
            frame[["dose"]], labels
        )


def test_counts_of_nothing_are_not_called_classes(rows):
    model = PrivateGLMMRegressor("poisson")
    with pytest.warns(ConvergenceWarning, match="y has no events"):
        fit(model, rows, "counts", y=np.zeros(N))


def test_a_flat_start_is_said(rows):
    model = PrivateGLMMClassifier(fit_intercept=False, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="flat where the search started"):
        fit(model, rows, "classes", offset=np.full(N, 50.0))


@pytest.mark.parametrize(
    "model, target",
    [
        (PrivateGLMMClassifier(), "classes"),
        (PrivateGLMMClassifier(link="probit"), "classes"),
        (PrivateGLMMClassifier(link="cloglog"), "classes"),
        (PrivateGLMMRegressor("poisson", slopes=[0]), "counts"),
    ],
)
@pytest.mark.parametrize("shift", [50.0, -50.0])
def test_a_large_offset_goes_into_the_intercept(rows, model, target, shift):
    offset = np.linspace(-1, 1, N)
    usual = fit(model, rows, target, offset=offset)
    expected = {
        "intercept_": usual.intercept_ - shift,
        "coef_": usual.coef_,
        "coef_std_": usual.coef_std_,
        "random_effects_": usual.random_effects_,
        "log_likelihood_": usual.log_likelihood_,
    }
    moved = fit(model, rows, target, offset=offset + shift)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(moved, name), value, rtol=1e-6, atol=1e-6)
    assert moved.converged_


def test_offsets_that_have_nothing_to_do_with_the_classes(rows):
    offset = 10 * np.random.default_rng(0).normal(size=N)
    # two rows of a cluster have nearly all of its weight
    model = PrivateGLMMClassifier(min_rows=1)
    model = fit(model, rows, "classes", offset=offset)
    assert model.converged_
    seen = rows["classes"], rows["cluster"]
    predictor = model.intercept_ + rows["X"] @ model.coef_[0] + offset
    scale = model.random_effect_scale_
    here = marginal(scale, predictor, *seen)
    # adaptive quadrature on pooled rows
    assert model.log_likelihood_ == pytest.approx(here, abs=0.01)
    for other in SCALES:
        assert marginal(other, predictor, *seen) < here + 1e-4


def test_that_there_is_no_noise_is_said_with_what_to_use():
    words = "PrivateGLMMClassifier has no .*PrivateGLMMRegressor.*DPCGMLearner"
    with pytest.raises(TypeError, match=words):
        PrivateGLMMClassifier(epsilon=1.0)


@pytest.mark.parametrize(
    "key, values",
    [
        ("y", [0, 1, 2]),
        ("y", [0.5, 1.5, 0.5]),
        ("offset", ["1", "2", "3"]),
        ("sample_weight", [1.0, -1.0, 1.0]),
        ("sample_weight", [1.0, np.inf, 1.0]),
    ],
)
def test_parties_refuse_what_a_fit_on_rows_at_hand_would(rows, key, values):
    names = list("abc")
    index = [rows["party"] == i for i in range(3)]
    beside = {"y": rows["classes"], "cluster": rows["cluster"]}
    beside[key] = np.resize(values, N)
    beside = {
        part: {name: column[mine] for name, mine in zip(names, index)}
        for part, column in beside.items()
    }
    blocks = {name: rows["X"][mine] for name, mine in zip(names, index)}
    with pytest.raises(PartyError) as caught:
        PrivateGLMMClassifier().fit(HorizontalPartition(blocks, **beside))
    assert caught.value.code == "invalid-data"


def test_clusters_of_two_holders_that_pooling_does_not_help(rows):
    """With two holders each, and three wanted, no cluster is left to join."""
    alone = rows["cluster"] == 5
    party = np.where(alone, 2, rows["party"] % 2)
    model = PrivateGLMMClassifier(min_parties=3)
    message = r"4\] have fewer than min_parties=3 holders: .* pooling does not help"
    with pytest.raises(ValueError, match=message):
        fit(model, rows, "classes", party=party)
    model.set_params(small_clusters="pool")
    message = r"'\(other\)'\] \(pooled: \['0', .* pooling does not help"
    with pytest.raises(ValueError, match=message):
        fit(model, rows, "classes", party=party)
    message = "fewer than min_rows=40 rows: .* small_clusters='pool' gives"
    with pytest.raises(ValueError, match=message):
        fit(PrivateGLMMClassifier(min_rows=40), rows, "classes")


def test_an_exposure_is_no_offset(rows, recwarn):
    months = 1.0 + np.arange(N) % 24
    model = PrivateGLMMRegressor("poisson")
    fit(model, rows, "counts", offset=np.log(months))
    assert not [w for w in recwarn if "logarithm" in str(w.message)]
    with pytest.warns(UserWarning, match="give the logarithm of the exposure"):
        fit(model, rows, "counts", offset=months)


@pytest.mark.parametrize("nested", [False, True])
def test_numbers_of_clusters_stay_numbers_beside_pooled_ones(rows, nested):
    few = np.arange(N) < 8
    cluster = np.where(few, 8 + np.arange(N) % 2, rows["cluster"])
    if nested:
        cluster = np.column_stack([(np.arange(N) // 8) % 2, cluster])
    model = PrivateGLMMRegressor(small_clusters="pool")
    fit(model, rows, "numbers", cluster=cluster)
    clusters = model.clusters_["cluster_1"] if nested else model.clusters_
    kept = [label for label in clusters if "(other)" not in str(label)]
    assert 2 <= len(kept) < len(clusters) and nested == isinstance(kept[0], str)
    effects = model.predict(rows["X"], cluster=cluster) - model.predict(rows["X"])
    assert np.mean(effects != 0) > 0.5
