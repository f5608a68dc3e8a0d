import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from skprivbn.privacy import (
    CountMechanism,
    PrivacyAccountant,
    discrete_gaussian_share,
    discrete_laplace_share,
    distribute,
)
from skprivbn.privacy._distributed import (
    laplace_epsilon_with_colluders,
    sum_of_gaussians_gap,
)
from tests.privacy.test_mechanisms import gaussian_pmf, goodness_of_fit, laplace_pmf
from tests.privacy.toys import prove_epsilon, suspect_epsilon


@pytest.mark.parametrize("min_honest", [1, 2, 5])
def test_honest_laplace_shares_make_laplace_noise(min_honest):
    shares = [
        discrete_laplace_share(20_000, 3, 1.5, min_honest) for _ in range(min_honest)
    ]
    assert goodness_of_fit(sum(shares), laplace_pmf(2.0), 8) > 1e-9


def test_one_share_is_not_laplace_noise():
    share = discrete_laplace_share(20_000, 3, 1.5, 2)
    assert goodness_of_fit(share, laplace_pmf(2.0), 8) < 1e-9


def test_wide_shares_make_wide_noise():
    # a scale for which there is no table
    shares = [discrete_laplace_share(20_000, 10**6, 0.25, 3) for _ in range(3)]
    result = stats.kstest(sum(shares), stats.laplace(scale=4e6).cdf)
    assert result.pvalue > 1e-9


def test_noise_beyond_64_bits_is_refused():
    with pytest.raises(ValueError, match="larger epsilon"):
        discrete_laplace_share(3, 2**50, 0.1, 2)


def test_honest_gaussian_shares_make_gaussian_noise():
    shares = [discrete_gaussian_share(8000, 5.0, 3) for _ in range(3)]
    assert goodness_of_fit(sum(shares), gaussian_pmf(5.0), 12) > 1e-9


def test_gaussian_shares_may_not_be_too_small():
    with pytest.raises(ValueError, match="sigma >= 2"):
        discrete_gaussian_share(3, 3.0, 4)


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("n_shares", [1, 2, 3, 6])
def test_gap_of_a_sum_of_gaussians_is_a_bound(sigma, n_shares):
    k = np.arange(-30, 31)
    one = gaussian_pmf(sigma)(k)
    total = np.ones(1)
    for _ in range(n_shares):
        total = np.convolve(total, one)
    support = np.arange(total.size) - total.size // 2
    single = gaussian_pmf(sigma * math.sqrt(n_shares))(support)
    near = np.abs(support) < 6 * sigma * math.sqrt(n_shares)
    gap = np.abs(np.log(total[near] / single[near])).max()
    assert gap <= sum_of_gaussians_gap(sigma, n_shares) + 1e-9
    if n_shares > 1 and sigma < 1:  # the bound is not idle
        assert gap > 1e-6


def test_published_epsilons_with_colluders():
    # ten parties, shares that rely on all ten of them
    noise = distribute(CountMechanism.for_budget(0.1), 10, min_honest=10)
    table = noise.epsilon_with_colluders()
    assert table[1] == pytest.approx(0.146, abs=5e-4)
    assert table[5] == pytest.approx(0.61, abs=5e-3)
    assert table[-1] == math.inf


@pytest.mark.parametrize("n_honest", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_epsilon_with_colluders_is_the_largest_log_ratio(n_honest, sensitivity):
    epsilon, min_honest = 0.9, 4
    p = math.exp(-epsilon / sensitivity)
    one = stats.nbinom(n_honest / min_honest, 1 - p).pmf(np.arange(400))
    pmf = np.array([one[: 400 - k] @ one[k:] for k in range(100)])
    ratios = sensitivity * np.log(pmf[:-1] / pmf[1:])
    claimed = laplace_epsilon_with_colluders(epsilon, sensitivity, n_honest, min_honest)
    assert ratios.max() <= claimed * (1 + 1e-6)
    assert ratios.max() > 0.9 * claimed


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_table_keeps_the_promise_up_to_the_dishonest(delta):
    noise = distribute(CountMechanism.for_budget(0.7, delta, 4, 2), 7)
    table = noise.epsilon_with_colluders()
    assert noise.min_honest == 4
    assert table.shape == (8,)
    assert np.all(np.diff(table[:-1]) >= -1e-9)
    assert np.all(table[:4] <= 0.7 * (1 + 1e-6))
    assert table[4] > 0.7


def test_distributed_mechanism():
    central = CountMechanism.for_budget(1.0, 1e-6, 1)
    noise = distribute(central, 6, min_honest=3)
    assert noise.variance == pytest.approx(2 * central.variance, rel=1e-6)
    shares = [noise.share((50, 40)) for _ in range(6)]
    assert sum(shares).std() == pytest.approx(noise.std, rel=0.1)
    assert noise.rho == pytest.approx(central.rho, rel=1e-6)
    accountant = PrivacyAccountant(epsilon=1.0, delta=1e-6)
    noise.spend(accountant, what="sum")
    assert accountant.remaining().epsilon == 0
    noise.check_survivors(3)
    with pytest.raises(ValueError, match="must not be released"):
        noise.check_survivors(2)


@pytest.mark.parametrize("n_releases", [1, 3, 7])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_releases_that_share_a_budget_cost_it_together(delta, n_releases):
    l1, l2 = 10 * n_releases, 5.0 * math.sqrt(n_releases)
    total = distribute(CountMechanism.for_budget(1.1, delta, l1, l2), 5)
    one = total.split(n_releases)
    assert (one.scale, one.std) == (total.scale, total.std)
    if delta:
        assert one.sensitivity == pytest.approx(5.0)
        cost, paid = n_releases * one.rho, total.rho
    else:
        assert one.sensitivity == 10
        cost, paid = n_releases * one.epsilon, total.epsilon
        assert cost <= paid
    assert cost == pytest.approx(paid, rel=1e-9)


def test_counts_that_releases_cannot_share_evenly_are_refused():
    with pytest.raises(ValueError, match="evenly"):
        distribute(CountMechanism.for_budget(1.0, 0.0, 10), 5).split(3)


def test_weak_gaussian_noise_is_raised_to_the_smallest_share():
    central = CountMechanism.for_budget(8.0, 1e-3, 1)
    noise = distribute(central, 4, min_honest=4)
    assert central.scale < 4.0
    assert noise.scale == pytest.approx(4.0)
    assert noise.epsilon_with_colluders()[0] < 8.0


@pytest.mark.parametrize("min_honest", [0, 5, -1])
def test_wrong_min_honest(min_honest):
    with pytest.raises(ValueError, match="between 1 and"):
        distribute(CountMechanism.for_budget(1.0), 4, min_honest)


def attack(noise, n_colluders, n_releases=20_000):
    """What colluders see of neighbouring totals once they remove their own shares."""
    honest = noise.n_parties - n_colluders

    def view(total):
        # the likelihood ratio is monotone in minus the distance from zero
        return -np.abs(total + sum(noise.share(n_releases) for _ in range(honest)))

    return view(0), view(1)


def test_audit_of_the_distributed_path_with_colluders():
    noise = distribute(CountMechanism.for_budget(1.0), 4)
    for n_colluders in (0, 2):
        assert prove_epsilon(*attack(noise, n_colluders)) <= 1.0


def test_audit_catches_shares_that_rely_on_every_party():
    # the broken twin: shape 1/K instead of 1/H, one colluder among three
    broken = distribute(CountMechanism.for_budget(1.0), 3, min_honest=3)
    outcomes = attack(broken, n_colluders=1)
    assert suspect_epsilon(*outcomes) > broken.epsilon
    # and the ledger's table knew
    assert prove_epsilon(*outcomes) <= broken.epsilon_with_colluders()[1]


@pytest.mark.parametrize("n_parties", [1, 5])
def test_parts_of_a_noise_cost_together_what_it_costs(n_parties):
    laplace = distribute(CountMechanism.for_budget(0.7, 0.0, 21), n_parties)
    parts = [laplace.part(n, n**0.5) for n in (1, 3, 17)]
    assert {part.scale for part in parts} == {laplace.scale}
    assert sum(part.epsilon for part in parts) == pytest.approx(0.7, rel=1e-14)
    # by which shares are drawn: never less noise than of the whole
    whole = Fraction(laplace.epsilon) / Fraction(laplace.sensitivity)
    for part in parts:
        assert Fraction(part.epsilon) / Fraction(part.sensitivity) <= whole
    gaussian = distribute(CountMechanism.for_budget(0.7, 1e-6, 21, 21**0.5), n_parties)
    parts = [gaussian.part(n, n**0.5) for n in (1, 3, 17)]
    assert {part.scale for part in parts} == {gaussian.scale}
    assert sum(part.rho for part in parts) == pytest.approx(gaussian.rho, rel=1e-9)
