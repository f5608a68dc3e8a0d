"""Differential privacy of PPEMGaussianMixture."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from skprivbn.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivbn.federation import Me
from skprivbn.mixture import PPEMGaussianMixture, _noisy_em
from skprivbn.mixture._gaussian_steps import (
    local_statistics,
    n_statistics,
    uniform_frame,
)
from skprivbn.mixture._noisy_em import (
    PrivateEMTerms,
    exact_cells,
    exact_statistics,
    maximise_noisy,
    noisy_em,
    round_rows,
    round_sums,
    sensitivities,
)
from skprivbn.mixture._seeding import Given
from skprivbn.partition import HorizontalPartition
from skprivbn.privacy import PrivacyAccountant

TYPES = ["full", "tied", "diag", "spherical"]
types = pytest.mark.parametrize("covariance_type", TYPES)


@pytest.fixture
def many_rows():
    rng = np.random.default_rng(0)
    truth = np.arange(9000) % 3
    centres = np.array([[-6.0, -6.0], [0.0, 6.0], [7.0, -3.0]])
    return centres[truth] + rng.normal(size=(9000, 2)), truth, np.arange(9000) % 5


def private(n_components=3, **parameters):
    settings = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "bounds": (-12, 12),
        "max_iter": 8,
        "backend": "masking",
        "random_state": 0,
    }
    return PPEMGaussianMixture(n_components, **{**settings, **parameters})


@types
@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_no_row_changes_the_sums_by_more_than_the_sensitivity(
    covariance_type, n_features
):
    rng = np.random.default_rng(1)
    corners = rng.choice([-1.0, 1.0], size=(50, n_features))
    rows = np.vstack([corners, rng.uniform(-1, 1, size=(50, n_features))])
    frame = uniform_frame(
        covariance_type, np.zeros((3, n_features)), np.ones(n_features)
    )
    l1, l2 = sensitivities(covariance_type, n_features)
    norms = []
    for row in rows:
        for responsibilities in np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 5)]):
            change = local_statistics(row[None], responsibilities[None], frame)
            norms.append((np.abs(change).sum(), np.linalg.norm(change)))
    worst = np.max(norms, axis=0)
    # never more, and reached at the corners of the box
    np.testing.assert_allclose(worst, [l1, l2], rtol=1e-12)


def private_terms(**changes):
    return PrivateEMTerms(
        **{
            "n_components": 2,
            "covariance_type": "diag",
            "reg_covar": 1e-6,
            "max_iter": 1,
            "init_params": "kmeans",
            "seeds": [0],
            "given": Given(),
            "epsilon": 1.0,
            "delta": 0.0,
            "bounds": np.array([[-1.0, -1.0], [1.0, 1.0]]),
            "min_honest": None,
            **changes,
        }
    )


@types
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_rounding_is_inside_the_calibrated_sensitivity(covariance_type, delta):
    terms = private_terms(
        n_components=3, covariance_type=covariance_type, max_iter=4, delta=delta
    )
    noise, grid = terms.noise(n_features=2, n_parties=5), terms.grid(2)
    rng = np.random.default_rng(0)
    frame = uniform_frame(covariance_type, np.zeros((3, 2)), np.ones(2))
    rows = round_rows(np.vstack([rng.uniform(-1, 1, size=(30, 2)), np.ones((1, 2))]))
    responsibilities = rng.dirichlet(np.ones(3), size=31)
    responsibilities[-1] = [1.0, 0.0, 0.0]
    before, after = (
        round_sums(exact_statistics(rows[:n], responsibilities[:n], frame), grid)
        for n in (30, 31)
    )
    change = after - before
    order = 1 if delta == 0 else 2
    # five releases, four iterations and the start: L1 norms add up, L2 squares
    releases = 5 ** (1 / order)
    assert releases * np.linalg.norm(change, order) <= noise.sensitivity
    assert len(change) == n_statistics(covariance_type, 3, 2)
    cells = rng.uniform(-1, 1, size=(30, 2))
    before, after = (
        round_sums(exact_cells(rows[:n], cells, np.ones(n)), grid) for n in (30, 31)
    )
    assert releases * np.linalg.norm(after - before, order) <= noise.sensitivity


@types
def test_sums_are_exact_so_that_a_row_changes_its_own_part_only(covariance_type):
    rng = np.random.default_rng(2)
    n, d = 3001, 100  # more than one block
    frame = uniform_frame(covariance_type, np.zeros((2, d)), np.ones(d))
    rows = round_rows(rng.choice([-1.0, 1.0, 1 / 3], size=(n, d)))
    # the last bits of these add up to more than one
    responsibilities = rng.dirichlet(np.ones(2), size=n) * (1 + 2e-16)
    with_row, without, alone = (
        exact_statistics(rows[part], responsibilities[part], frame)
        for part in (slice(None), slice(n - 1), slice(n - 1, n))
    )
    assert with_row.dtype == np.int64
    np.testing.assert_array_equal(with_row - without, alone)
    shuffled = rng.permutation(n)
    np.testing.assert_array_equal(
        exact_statistics(rows[shuffled], responsibilities[shuffled], frame), with_row
    )
    l1, l2 = sensitivities(covariance_type, d)
    for i in range(20):
        change = exact_statistics(rows[[i]], responsibilities[[i]], frame)
        change = [int(c) for c in change]
        assert sum(map(abs, change)) <= int(l1) << 34
        assert sum(c * c for c in change) <= round(l2**2) << 68
    # it tells what floating-point sums tell, up to rounding of rows and shares
    sums = local_statistics(rows, responsibilities, frame)
    np.testing.assert_allclose(with_row / 2**34, sums, atol=n * 2**-13 * d)


def test_sums_of_cells_are_exact():
    rng = np.random.default_rng(3)
    cells = rng.uniform(-1, 1, size=(20, 3))
    rows = round_rows(rng.uniform(-1, 1, size=(500, 3)))
    with_row, without, alone = (
        exact_cells(rows[part], cells, np.ones(len(rows[part])))
        for part in (slice(None), slice(499), slice(499, 500))
    )
    np.testing.assert_array_equal(with_row - without, alone)
    # one cell: its size, and sums bounded by one
    assert np.count_nonzero(alone) <= 1 + 3
    assert np.abs(alone).max() == 2**34
    assert with_row[:20].sum() == 500 << 34


@pytest.mark.parametrize("grid", [2.0, 2.0**34, 2.0**40])
def test_rounding_to_the_grid_is_to_the_nearest(grid):
    sums = np.array([3 << 33, -(3 << 33) + 1, 5, 1 << 34])
    exact = [float(s) * grid / 2**34 for s in sums]
    assert np.abs(round_sums(sums, grid) - exact).max() <= 0.5


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_total_carries_the_calibrated_noise(delta):
    terms = private_terms(max_iter=3, epsilon=2.0, delta=delta, init_params="random")
    noise, grid = terms.noise(n_features=2, n_parties=4), terms.grid(2)
    totals = sum(noise.share(4000) for _ in range(4))
    assert abs(totals.std() / noise.std - 1) < 0.1
    # half of the parties alone make the noise that the budget asks for
    assert noise.min_honest == 2
    assert noise.epsilon == 2.0
    l1, l2 = sensitivities("diag", 2)
    if delta:
        assert noise.scale > np.sqrt(3) * grid * l2
    else:
        assert noise.scale >= 3 * grid * l1 / 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_larger_budget_bears_more_iterations(delta):
    terms = private_terms(n_components=3, delta=delta, covariance_type="full")
    n_iter = [
        replace(terms, epsilon=epsilon).with_iterations(2, 3).max_iter
        for epsilon in (0.1, 1.0, 3.0, 30.0)
    ]
    assert n_iter == sorted(n_iter) and n_iter[0] == 4 and n_iter[-1] == 10
    more = replace(terms, n_components=30, epsilon=3.0)
    assert more.with_iterations(2, 3).max_iter < n_iter[2]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_defaults_find_components_at_epsilon_1(many_rows, delta):
    X, truth, party = many_rows
    mixture = private(epsilon=1.0, delta=delta, max_iter=None).fit(X, party=party)
    assert adjusted_rand_score(truth, mixture.predict(X)) > 0.9
    assert 4 <= mixture.n_iter_ <= 10


@types
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_features", [1, 2, 7])
def test_sums_of_cells_use_the_sensitivity_that_is_there(
    covariance_type, n_features, delta
):
    terms = private_terms(
        covariance_type=covariance_type,
        delta=delta,
        max_iter=1,
        bounds=np.array([[-1.0] * n_features, [1.0] * n_features]),
    )
    noise, factor = terms.noise(n_features, 3), terms.cells_factor(n_features)
    row = np.ones((1, n_features))
    sums = exact_cells(row, np.zeros((20, n_features)), np.ones(1))
    change = round_sums(sums, terms.grid(n_features) * factor)
    order = 1 if delta == 0 else 2
    # two releases; twice the factor would be more than the noise covers
    cost = 2 ** (1 / order) * np.linalg.norm(change, order)
    assert cost <= noise.sensitivity < 2.1 * cost


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_row_changes_what_is_released_by_less_than_the_noise_hides(delta):
    terms = private_terms(covariance_type="full", delta=delta, max_iter=1)
    rows = np.vstack([np.random.default_rng(0).uniform(-1, 1, (30, 2)), np.ones(2)])
    order = 1 if delta == 0 else 2
    programs = [
        noisy_em(Me({"X": rows[:n]}, terms, "a", ("a", "b", "c"))) for n in (30, 31)
    ]
    total = None
    for _ in range(terms.n_releases):
        # the same totals, from which both do the same step
        fewer, more = (program.send(total) for program in programs)
        assert fewer.noise == more.noise
        change = np.linalg.norm(more.counts - fewer.counts, order)
        # more than half of it: both releases use the sensitivity that is there
        assert 0.5 < change / more.noise.sensitivity <= 1
        total = more.counts


def test_late_sums_are_averaged(monkeypatch):
    terms = private_terms(max_iter=4, init_params="random")
    rows = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    seen = []

    def spy(sums, frame, noise_std):
        seen.append((sums, noise_std))
        return maximise_noisy(sums, frame, noise_std)

    monkeypatch.setattr(_noisy_em, "maximise_noisy", spy)
    program, totals = noisy_em(Me({"X": rows}, terms, "a", ("a", "b"))), []
    release = next(program)
    with pytest.raises(StopIteration):
        while True:
            totals.append(release.counts + len(totals))
            release = program.send(totals[-1])
    std = release.noise.std / terms.grid(2)
    for (sums, noise_std), late in zip(seen, ([0], [1], [1, 2], [1, 2, 3])):
        mean = np.mean([totals[i] for i in late], axis=0) / terms.grid(2)
        np.testing.assert_allclose(sums, mean)
        assert noise_std == pytest.approx(std / np.sqrt(len(late)))
    assert len(seen) == 4


@types
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_features", [1, 2, 6])
def test_noise_covers_the_rounding_of_a_person_in_every_cell(
    covariance_type, n_features, delta
):
    terms = private_terms(
        n_components=3,
        covariance_type=covariance_type,
        delta=delta,
        bounds=np.array([[-1.0] * n_features, [1.0] * n_features]),
        protects="individuals",
    )
    noise, n_cells = terms.noise(n_features, 3), terms.n_cells
    fine = terms.grid(n_features) * terms.cells_factor(n_features)
    # shares are multiples of 2^-14, which is a part of a step of the grid
    share = 2**34 // 2**14
    step = int(2**34 / fine)
    # a row of this person in each cell, at a corner: sums grow by just over `whole`
    whole = 2**34 // n_cells // step
    added = np.full(n_cells * (1 + n_features), whole * step + share)
    assert added[:n_cells].sum() <= 2**34
    # sums of others are just below the middle of two steps: all are rounded up
    others = np.full(len(added), step // 2 - share)
    change = round_sums(others + added, fine) - round_sums(others, fine)
    assert (change == whole + 1).all()
    order = 1 if delta == 0 else 2
    assert 2 ** (1 / order) * np.linalg.norm(change, order) <= noise.sensitivity


@types
def test_covariances_are_shrunk_by_what_noise_explains(covariance_type):
    rng = np.random.default_rng(0)
    frame = uniform_frame(covariance_type, np.zeros((2, 2)), np.ones(2))
    rows = rng.normal(0, 0.1, (4000, 2)) * [[1.0, 2.0]]
    rows[2000:] *= 2
    sums = local_statistics(rows, np.repeat(np.eye(2), 2000, axis=0), frame)
    exact, little, much = (
        maximise_noisy(sums, frame, std).covariances for std in (0.0, 0.1, 100.0)
    )
    np.testing.assert_allclose(little, exact, rtol=0.01)
    if covariance_type != "tied":
        np.testing.assert_allclose(much[0], much[1])
        assert np.abs(exact[1] / exact[0]).max() > 3


@types
def test_private_fits_find_the_components(many_rows, covariance_type):
    X, truth, party = many_rows
    mixture = private(covariance_type=covariance_type).fit(X, party=party)
    assert adjusted_rand_score(truth, mixture.predict(X)) > 0.95
    # At a budget where chance plays no part: of 25 fits at epsilon 16 two were worse
    # by 0.5, of 30 at epsilon 200 none by 0.004.
    roomy = private(covariance_type=covariance_type, epsilon=200.0).fit(X, party=party)
    exact = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    assert roomy.score(X) > exact.score(X) - 0.05
    assert mixture.privacy_spent_ == (4.0, 1e-6)
    assert mixture.n_iter_ == 8 and np.isnan(mixture.lower_bound_)
    assert mixture.lower_bounds_ == [] and not mixture.converged_
    again = private(covariance_type=covariance_type).fit(X, party=party)
    assert np.abs(again.means_ - mixture.means_).max() > 1e-6


def test_more_budget_means_less_noise(many_rows):
    X, _, party = many_rows
    start = GaussianMixture(3, random_state=0).fit(X)
    settings = {"means_init": start.means_, "max_iter": 3}
    errors = [
        np.mean(
            [
                np.abs(
                    private(epsilon=epsilon, **settings).fit(X, party=party).means_
                    - start.means_
                ).mean()
                for _ in range(3)
            ]
        )
        for epsilon in (0.2, 2.0, 50.0)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize(
    "backend, min_honest, epsilon",
    [("ckks", None, 10.0), ("plaintext", 1, 30.0)],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_noisy_integers_survive_every_backend(many_rows, backend, min_honest, epsilon):
    X, truth, party = many_rows
    options = {"backend": backend, "min_honest": min_honest, "max_iter": 3}
    mixture = private(epsilon=epsilon, **options).fit(X, party=party)
    assert adjusted_rand_score(truth, mixture.predict(X)) > 0.9


def test_laplace_noise_without_delta(many_rows):
    X, truth, party = many_rows
    mixture = private(delta=0.0, epsilon=20.0, max_iter=3, covariance_type="spherical")
    mixture.fit(X, party=party)
    assert adjusted_rand_score(truth, mixture.predict(X)) > 0.9
    assert mixture.privacy_spent_ == (20.0, 0.0)


def test_rows_outside_the_bounds_cannot_do_more_than_those_at_them(many_rows):
    X, _, party = many_rows
    far = X.copy()
    far[:5] = 1e9
    mixture = private(max_iter=3).fit(far, party=party)
    assert np.abs(mixture.means_).max() <= 12
    assert np.abs(mixture.covariances_).max() <= 2 * 12**2 + 1


@types
def test_noise_alone_still_makes_a_mixture(covariance_type):
    rng = np.random.default_rng(0)
    frame = uniform_frame(covariance_type, np.zeros((2, 3)), np.ones(3))
    length = n_statistics(covariance_type, 2, 3)
    for _ in range(20):
        noise = rng.normal(0, 1000, size=length)
        mixture = maximise_noisy(noise, frame, 1000.0)
        assert np.all(mixture.weights > 0) and np.isclose(mixture.weights.sum(), 1)
        assert np.all(np.isfinite(mixture.precisions_cholesky))


def test_the_budget_is_charged_once_and_refused_when_gone(many_rows):
    X, _, party = many_rows
    accountant = PrivacyAccountant(epsilon=4.0, delta=1e-5)
    mixture = private(accountant=accountant, max_iter=2).fit(X, party=party)
    assert 3.5 < accountant.spent().epsilon <= 4.0
    with pytest.raises(BudgetExceededError):
        mixture.fit(X, party=party)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"bounds": None}, "bounds"),
        ({"bounds": (3, -3)}, "bounds"),
        ({"n_init": 2}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
        ({"init_params": "local_em"}, "looks at the rows"),
        ({"init_params": "k-means++"}, "looks at the rows"),
        ({"epsilon": 1e-9, "delta": 0.0}, "64-bit integers"),
    ],
)
def test_what_would_break_the_promise_costs_nothing(many_rows, parameters, message):
    X, _, party = many_rows
    accountant = PrivacyAccountant(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=message):
        private(accountant=accountant, **parameters).fit(X, party=party)
    assert accountant.spent().epsilon == 0


def test_scores_of_the_parties_rows_are_a_release(many_rows):
    X, _, party = many_rows
    mixture = private(max_iter=2).fit(X, party=party)
    partition = HorizontalPartition.from_rows(X, party)
    with pytest.warns(PrivacyLeakWarning, match="budget"):
        score = mixture.score(partition)
    assert abs(score - mixture.score(X)) < 1e-9


def test_the_ledger_tells_epsilon_with_colluders(many_rows):
    X, _, party = many_rows
    mixture = private(max_iter=2).fit(X, party=party)
    [note] = [note for note in mixture.ledger_.notes if "colluding parties" in note]
    epsilons = [float(number) for number in note.rpartition(": ")[2].split(", ")]
    # three of the five are enough for what was promised
    assert epsilons == sorted(epsilons) and epsilons[2] == 4 and epsilons[5] == np.inf
    assert "(epsilon = 4)" in str(
        [*mixture.ledger_.who_learns_what(), *mixture.ledger_.notes]
    )
    seen_as = [row[3] for row in mixture.ledger_.who_learns_what()]
    assert not any("in the clear" in words for words in seen_as)
