"""Rows with gaps: PPEM equals a plain EM that treats one row after the other."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.mixture import GaussianMixture

from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation, Runner
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._em import em
from skprivbn.mixture._gaps import bounded_moments, factor_of
from skprivbn.mixture._gaussian_steps import (
    Mixture,
    e_step,
    local_statistics,
    uniform_frame,
)
from skprivbn.mixture._noisy_em import (
    exact_statistics,
    round_rows,
    sensitivities,
)
from skprivbn.mixture._seeding import EMTerms, Given
from skprivbn.partition import HorizontalPartition, RowSource
from tests.federation.flare import hospitals
from tests.federation.hostile import HostileTerms
from tests.federation.site.loopback import connect, make_sites
from tests.mixture.conftest import assert_same_mixture, start_of

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
TYPES = ["full", "tied", "diag", "spherical"]
types = pytest.mark.parametrize("covariance_type", TYPES)
K, D = 3, 4


@cache
def oracle(kind):
    """Return what a plain EM makes of rows with gaps, and where it starts."""
    X, whole, _ = make_rows()
    start = start_of(whole, K, kind)
    return start, plain_em(X, kind, **start, n_iter=4)


def make_rows(n=100, share=0.25, seed=0):
    """Return rows of three components in four columns, with gaps at random."""
    rng = np.random.default_rng(seed)
    component = rng.integers(K, size=n)
    mix = rng.normal(size=(K, D, D))
    X = 4 * rng.normal(size=(K, D))[component]
    X += np.einsum("nij,nj->ni", mix[component], rng.normal(size=(n, D)))
    whole = X.copy()
    X[rng.random(X.shape) < share] = np.nan
    X[0] = np.nan
    return X, whole, rng.integers(4, size=n).astype(str)


def matrices(kind, covariances):
    """Return one matrix per component, as the oracle thinks of all types."""
    return {
        "full": lambda c: c,
        "tied": lambda c: np.array([c] * K),
        "diag": lambda c: np.array([np.diag(row) for row in c]),
        "spherical": lambda c: np.array([value * np.eye(D) for value in c]),
    }[kind](covariances)


def plain_em(X, kind, weights_init, means_init, precisions_init, n_iter):
    """Do EM with gaps, one row after the other: an oracle that shares no code."""
    weights, means = weights_init, means_init
    covariances = np.linalg.inv(matrices(kind, precisions_init))
    bounds = []
    for _ in range(n_iter):
        counts, firsts = np.zeros(K), np.zeros((K, D))
        seconds, bound = np.zeros((K, D, D)), 0.0
        for x in X:
            o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
            logs = np.log(weights)
            for k in range(K):
                if len(o):
                    part = covariances[k][np.ix_(o, o)]
                    z = x[o] - means[k][o]
                    log_det = np.linalg.slogdet(2 * np.pi * part)[1]
                    logs[k] -= (log_det + z @ np.linalg.solve(part, z)) / 2
            bound += logsumexp(logs) / len(X)
            for k, share in enumerate(np.exp(logs - logsumexp(logs))):
                filled, spread = x.copy(), np.zeros((D, D))
                part = np.linalg.inv(covariances[k][np.ix_(o, o)])
                slope = covariances[k][np.ix_(m, o)] @ part
                filled[m] = means[k][m] + slope @ (x[o] - means[k][o])
                spread[np.ix_(m, m)] = (
                    covariances[k][np.ix_(m, m)] - slope @ covariances[k][np.ix_(o, m)]
                )
                counts[k] += share
                firsts[k] += share * filled
                seconds[k] += share * (np.outer(filled, filled) + spread)
        bounds.append(bound)
        weights, means = counts / counts.sum(), firsts / counts[:, None]
        scatter = seconds - counts[:, None, None] * np.einsum(
            "ki,kj->kij", means, means
        )
        if kind == "tied":
            covariances = np.array([scatter.sum(axis=0) / counts.sum()] * K)
        else:
            covariances = scatter / counts[:, None, None]
        if kind in ("diag", "spherical"):
            covariances = covariances * np.eye(D)
        if kind == "spherical":
            traces = np.trace(covariances, axis1=1, axis2=2) / D
            covariances = traces[:, None, None] * np.eye(D)
        covariances = covariances + 1e-6 * np.eye(D)
    return weights, means, covariances, bounds


@types
@pytest.mark.parametrize("backend", ["masking", "plaintext", "ckks"])
def test_equals_a_plain_em(covariance_type, backend):
    X, _, party = make_rows()
    start, (weights, means, covariances, bounds) = oracle(covariance_type)
    model = PPEMGaussianMixture(
        K,
        covariance_type=covariance_type,
        backend=backend,
        missing="em",
        min_rows=1,
        tol=0,
        max_iter=4,
        **start,
    )
    with pytest.warns(UserWarning, match="did not converge"):
        model.fit(X, party=party)
    for found, expected in (
        (model.weights_, weights),
        (model.means_, means),
        (matrices(covariance_type, model.covariances_), covariances),
        (model.lower_bounds_, bounds),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


@types
def test_parties_find_what_pooled_rows_give(covariance_type):
    X, whole, party = make_rows()
    options = {"covariance_type": covariance_type, "missing": "em", "min_rows": 1}
    options |= start_of(whole, K, covariance_type)
    found = PPEMGaussianMixture(K, backend="masking", **options)
    pooled = PPEMGaussianMixture(K, **options).fit(X)
    assert_same_mixture(found.fit(X, party=party), pooled)
    assert np.diff(found.lower_bounds_).min() > 0


@pytest.mark.parametrize(
    "init_params", ["kmeans", "random", "local_em", "k-means++", "random_from_data"]
)
def test_every_start_knows_gaps(init_params):
    X, _, party = make_rows(200)
    model = PPEMGaussianMixture(
        2,
        init_params=init_params,
        missing="em",
        covariance_type="diag",
        random_state=0,
        tol=0.05,
    ).fit(X, party=party)
    assert model.converged_
    assert np.diff(model.lower_bounds_).min() > 0


@types
def test_without_gaps_nothing_changes(covariance_type, three_blobs):
    X, party = three_blobs
    options = {"covariance_type": covariance_type, "random_state": 0}
    plain = PPEMGaussianMixture(3, backend="masking", **options).fit(X, party=party)
    model = PPEMGaussianMixture(3, backend="masking", missing="em", **options)
    assert_same_mixture(model.fit(X, party=party), plain, atol=1e-12)


@types
def test_gaps_are_integrated_out(covariance_type):
    X, whole, _ = make_rows()
    peer = GaussianMixture(K, covariance_type=covariance_type, random_state=0)
    peer.fit(whole)
    model = PPEMGaussianMixture(
        K, covariance_type=covariance_type, missing="em", random_state=0
    ).fit(whole)
    kept = [0, 2]
    part = np.full_like(whole, np.nan)
    part[:, kept] = whole[:, kept]
    peer.means_, peer.weights_ = model.means_[:, kept], model.weights_
    factors = matrices(covariance_type, model.covariances_)[:, kept][:, :, kept]
    peer.covariance_type = "full"
    peer.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(factors))
    peer.n_features_in_ = 2
    expected = peer.score_samples(whole[:, kept])
    np.testing.assert_allclose(model.score_samples(part), expected, atol=1e-9)
    np.testing.assert_array_equal(model.predict(part), peer.predict(whole[:, kept]))
    np.testing.assert_allclose(
        model.predict_proba(part), peer.predict_proba(whole[:, kept]), atol=1e-9
    )
    assert model.score(X[[0]]) == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(model.predict_proba(X[[0]])[0], model.weights_)
    assert np.isfinite(model.bic(X))
    assert np.isfinite(model.sample(5)[0]).all()


def test_a_party_may_lack_a_column():
    X, whole, party = make_rows(400, share=0.0, seed=3)
    X[0] = whole[0]
    start = start_of(whole, K, "full")
    X[party == "0", 1] = np.nan
    model = PPEMGaussianMixture(K, missing="em", backend="masking", **start)
    model.fit(X, party=party)
    # the others' rows say how the column goes with the rest
    peer = GaussianMixture(K, **start).fit(whole)
    np.testing.assert_allclose(model.means_, peer.means_, atol=0.5)


@pytest.mark.parametrize("value", [None, np.nan, pd.NA])
def test_all_that_is_missing(value):
    X, _, party = make_rows(150)
    expected = PPEMGaussianMixture(2, missing="em", random_state=0, backend="masking")
    expected.fit(X, party=party)
    frame = pd.DataFrame(X, columns=list("abcd")).astype(object)
    frame = frame.where(frame.notna(), value)
    if value is pd.NA:
        frame = frame.astype("Float64")
    model = PPEMGaussianMixture(2, missing="em", random_state=0, backend="masking")
    model.fit(frame, party=party)
    np.testing.assert_array_equal(model.means_, expected.means_)
    np.testing.assert_array_equal(model.predict(frame), expected.predict(X))


def test_gaps_must_be_allowed():
    X, whole, _ = make_rows()
    with pytest.raises(ValueError, match="NaN in columns.* or you set missing='em'"):
        PPEMGaussianMixture(2).fit(X)
    with pytest.raises(ValueError, match="NaN in columns"):
        PPEMGaussianMixture(2).fit(whole).predict(X)
    whole[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        PPEMGaussianMixture(2, missing="em").fit(whole)


def test_blocks_of_rows_give_the_same():
    X, _, party = make_rows(200)
    options = {"missing": "em", "random_state": 0, "backend": "masking"}
    expected = PPEMGaussianMixture(2, **options).fit(X, party=party)
    blocks = {}
    for name in np.unique(party):
        rows = X[party == name]

        def read(rows=rows):
            return iter([rows[:7], rows[7:]])

        blocks[name] = RowSource(read, len(rows), list("abcd"))
    partition = HorizontalPartition(blocks)
    model = PPEMGaussianMixture(2, **options).fit(partition)
    np.testing.assert_allclose(model.means_, expected.means_, atol=1e-10)
    assert model.score(partition) == pytest.approx(expected.score(X), abs=1e-9)


def test_sites_fit_and_score_rows_with_gaps(tmp_path):
    X, ward, party, people = hospitals.make_rows()
    X[::5, 0] = X[1::7, 1] = np.nan
    hospitals.write_tables(tmp_path, X, ward, party, people)
    for table in tmp_path.glob("*/*.csv"):
        table.write_text(table.read_text().replace("nan", ""))
    sites = make_sites(tmp_path, hospitals.site_files())
    rows = connect(sites, "icu").rows(["a", "b"])
    options = {"means_init": [[0, 0], [5, 6], [9, 4]], "covariance_type": "diag"}
    options["random_state"] = 0
    model = PPEMGaussianMixture(3, missing="em", **options).fit(rows)
    expected = PPEMGaussianMixture(3, missing="em", **options).fit(X, party=party)
    np.testing.assert_allclose(model.means_, expected.means_, atol=1e-9)
    assert model.score(rows) == pytest.approx(expected.score(X), abs=1e-9)
    with pytest.raises(PartyError, match=r"\['a', 'b'\] have gaps"):
        PPEMGaussianMixture(3, **options).fit(rows)


def test_a_column_with_few_entries_is_refused():
    X, _, party = make_rows()
    X[4:, 2] = np.nan
    with pytest.raises(ValueError, match="a column has entries in fewer than min_rows"):
        PPEMGaussianMixture(2, missing="em", backend="masking").fit(X, party=party)
    X[:, 2] = np.nan
    with pytest.raises(ValueError, match="a column has entries in fewer"):
        PPEMGaussianMixture(2, missing="em").fit(X)


EM = EMTerms(
    n_components=2,
    covariance_type="diag",
    reg_covar=1e-6,
    max_iter=3,
    init_params="given",
    seeds=[0],
    given=Given(
        weights=np.full(2, 0.5),
        means=np.array([[0.0, 0.0], [9.0, 0.0]]),
        precisions=np.ones((2, 2)),
    ),
    lower_bound=-np.inf,
    tol=1e-3,
    covariance_update="exact",
    rotate_keys=False,
    min_rows=5,
    missing="em",
)


def one_entry():
    """Return rows of which one only, far from most, has an entry that few have."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    rows[40:, 0] += 9
    rows[40:, 1] = np.nan
    rows[50, 1] = 7.25
    return rows, np.arange(60) % 3


def test_attack_a_component_of_many_rows_with_one_entry():
    rows, party = one_entry()
    options = {"means_init": EM.given.means, "covariance_type": "diag", "tol": 1e-9}
    model = PPEMGaussianMixture(
        2,
        missing="em",
        weights_init=EM.given.weights,
        precisions_init=EM.given.precisions,
        **options,
    )
    with pytest.raises(ValueError, match="entries of a column"):
        model.fit(rows, party=party)


def test_attack_works_where_only_rows_are_counted(monkeypatch):
    rows, party = one_entry()
    monkeypatch.setattr(
        "skprivbn.mixture._em.entries", lambda X, has_gaps: np.ones((len(X), 1))
    )
    model = PPEMGaussianMixture(
        2,
        missing="em",
        backend="masking",
        covariance_type="diag",
        weights_init=EM.given.weights,
        means_init=EM.given.means,
        precisions_init=EM.given.precisions,
        tol=0,
        max_iter=60,
    )
    with pytest.warns(UserWarning, match="did not converge"):
        model.fit(rows, party=party)
    # nearly the one entry, and nearer with every iteration
    assert model.means_[1, 1] == pytest.approx(7.25, abs=0.5)


def test_told_centres_hide_columns_with_few_entries(monkeypatch):
    rows, party = one_entry()
    told, tell = [], Runner._tell

    def watched(runner, step, *words):
        told.extend(m["centres"] for m in step.messages.values() if "centres" in m)
        return tell(runner, step, *words)

    monkeypatch.setattr(Runner, "_tell", watched)
    model = PPEMGaussianMixture(2, missing="em", covariance_type="diag", random_state=0)
    with pytest.raises(ValueError, match="entries of a column"):
        model.set_params(backend="masking").fit(rows, party=party)
    far = np.vstack(told)
    far = far[far[:, 0] > 2]
    # each of three parties tells two others
    assert len(far) == 6
    np.testing.assert_array_equal(far[:, 1], 0)


@pytest.mark.parametrize("missing", ["skip", 1])
def test_attack_another_rule_for_gaps(missing):
    blocks = {name: {"X": np.zeros((9, 2))} for name in "abc"}
    with pytest.raises(PartyError):
        InProcessFederation(
            blocks, em, HostileTerms(EM, missing=missing), "masking"
        ).__enter__()


def boxed(kind):
    rng = np.random.default_rng(1)
    spread = np.array([0.05 * np.cov(rng.normal(size=(D, 20))) for _ in range(K)])
    covariances = {
        "full": spread,
        "tied": spread[0],
        "diag": np.einsum("kff->kf", spread),
        "spherical": spread[:, 0, 0],
    }[kind]
    means = rng.uniform(-0.9, 0.9, (K, D))
    mixture = Mixture.from_covariances(kind, np.full(K, 1 / K), means, covariances)
    rows = round_rows(np.clip(0.5 * rng.normal(size=(200, D)), -1, 1))
    rows[rng.random(rows.shape) < 0.4] = np.nan
    return rows, mixture, uniform_frame(kind, np.zeros((K, D)), np.ones(D))


@types
def test_private_sums_are_those_of_single_rows_within_the_sensitivity(covariance_type):
    rows, mixture, frame = boxed(covariance_type)
    shares = np.floor(e_step(rows, mixture)[1] * 2**14) / 2**14
    total = exact_statistics(rows, shares, frame, mixture)
    alone = [
        exact_statistics(rows[[i]], shares[[i]], frame, mixture)
        for i in range(len(rows))
    ]
    np.testing.assert_array_equal(total, np.sum(alone, axis=0))
    l1, l2 = sensitivities(covariance_type, D)
    sizes = np.array(alone) / 2**34
    assert np.abs(sizes).sum(axis=1).max() <= l1
    assert np.linalg.norm(sizes, axis=1).max() <= l2


def test_private_sums_are_the_exact_ones_where_nothing_is_clipped():
    rows, mixture, frame = boxed("full")
    mixture = Mixture.from_covariances(
        "full", mixture.weights, mixture.means / 3, mixture.covariances / 10
    )
    rows = round_rows(rows / 10)
    shares = np.floor(e_step(rows, mixture)[1] * 2**14) / 2**14
    found = exact_statistics(rows, shares, frame, mixture) / 2**34
    expected = local_statistics(rows, shares, frame, mixture)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_expected_moments_stay_in_the_box_whatever_the_mixture():
    seen = np.array([True, False, False])
    rows = np.array([[1.0, np.nan, np.nan], [-0.5, np.nan, np.nan]])
    for left in (1e300 * np.eye(2), np.full((2, 2), np.nan), np.zeros((2, 2))):
        means, squares = bounded_moments(
            rows, np.full(3, 0.5), np.array([[1e300, -1.0]]), left, seen
        )
        assert np.abs(means).max() <= 1
        assert np.abs(squares).max() <= 1


def test_a_matrix_on_the_edge_has_a_factor():
    ones = np.ones((3, 3))
    factor = factor_of(ones)
    np.testing.assert_allclose(factor @ factor.T, ones, atol=1e-7)
    assert np.all(np.triu(factor, 1) == 0)
    assert np.all(factor.diagonal() > 0)


def test_an_error_would_tell_of_a_gap():
    model = PPEMGaussianMixture(2, missing="error", epsilon=1.0, bounds=(-1, 1))
    with pytest.raises(ValueError, match="missing='error' is not available"):
        model.fit(np.zeros((9, 2)))


def test_noise_and_gaps():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(c, 1, size=(1500, 2)) for c in (-4, 4)])
    X[rng.random(X.shape) < 0.3] = np.nan
    party = np.arange(len(X)) % 3
    bounds = [-10, -10], [10, 10]
    options = {"epsilon": 4.0, "delta": 1e-6, "bounds": bounds, "max_iter": 6}
    model = PPEMGaussianMixture(
        2, missing="em", backend="masking", random_state=0, **options
    )
    model.fit(X, party=party)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [-4, 4], atol=0.5)
    # the middle of the bounds instead of the gaps makes other components
    filled = PPEMGaussianMixture(2, backend="masking", random_state=0, **options)
    filled.fit(X, party=party)
    assert (
        filled.covariances_[:, 0, 0].mean() > 1.5 * model.covariances_[:, 0, 0].mean()
    )
