import math
import re

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from scipy.stats import binom

from skprivbn.privacy import PrivacyAccountant, PrivacyCost, composed_cost
from skprivbn.privacy._composition import Spend, total_cost, zcdp_epsilon


@pytest.mark.parametrize("rho", [1e-5, 1e-3, 0.03, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_conversion_is_the_best_of_the_published_formula(rho, delta):
    # Canonne, Kamath, Steinke (2020), proposition 12, minimised by brute force
    alpha = 1 + np.geomspace(1e-3, 1e5, 400_001)
    formula = rho * alpha + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    assert zcdp_epsilon(rho, delta) == pytest.approx(formula.min(), rel=1e-4, abs=1e-9)


def test_gaussian_releases_compose_as_in_dp_accounting():
    sigmas, delta = [3.0, 5.0, 5.0, 8.0, 20.0], 1e-6
    accountant = PrivacyAccountant(epsilon=100, delta=delta)
    oracle = rdp.RdpAccountant(orders=1 + np.geomspace(0.05, 200, 5000))
    for sigma in sigmas:
        accountant.spend(rho=1 / (2 * sigma**2))
        oracle.compose(dp_accounting.GaussianDpEvent(sigma))
    expected = oracle.get_epsilon(delta)
    assert accountant.spent().epsilon == pytest.approx(expected, rel=1e-4)
    assert accountant.spent().delta == delta


def test_pure_releases_compose_as_in_dp_accounting_with_rho_events():
    # many small pure releases: better counted as zCDP
    delta = 1e-6
    accountant = PrivacyAccountant(epsilon=10, delta=delta)
    oracle = rdp.RdpAccountant(orders=1 + np.geomspace(0.05, 1000, 5000))
    for _ in range(200):
        accountant.spend(epsilon=0.02)
        oracle.compose(dp_accounting.ZCDpEvent(0.02**2 / 2))
    assert accountant.spent().epsilon < 200 * 0.02 / 2
    assert accountant.spent().epsilon == pytest.approx(
        oracle.get_epsilon(delta), rel=1e-4
    )


def test_pure_releases_add_up_without_delta():
    spends = [Spend(epsilon=0.1) for _ in range(10)]
    assert total_cost(spends, 0.0) == PrivacyCost(1.0, 0.0)


def test_no_spend_costs_nothing():
    assert total_cost([], 1e-6) == PrivacyCost(0.0, 0.0)


def test_the_better_of_two_guarantees_counts():
    one = Spend(epsilon=1.0, delta=1e-6, rho=0.0279)
    assert zcdp_epsilon(0.0279, 1e-6) > 1.0
    assert total_cost([one], 1e-6) == PrivacyCost(1.0, 1e-6)
    # sums of delta do not fit a second time, sums of rho do
    both = total_cost([one, one], 1e-6)
    assert both.epsilon == pytest.approx(zcdp_epsilon(2 * 0.0279, 1e-6))


def test_rho_is_converted_at_the_delta_that_others_leave():
    spends = [Spend(epsilon=0.5, delta=4e-7), Spend(rho=0.01)]
    expected = 0.5 + zcdp_epsilon(0.01, 6e-7)
    assert total_cost(spends, 1e-6).epsilon == pytest.approx(expected, rel=1e-9)


def test_no_delta_no_gaussian():
    assert total_cost([Spend(rho=0.01)], 0.0).epsilon == math.inf
    assert total_cost([Spend(epsilon=1.0, delta=1e-6)], 1e-7).epsilon == math.inf


def test_total_never_falls_when_spending_more():
    rng = np.random.default_rng(0)
    spends, last = [], 0.0
    for _ in range(60):
        kind = rng.integers(4)
        epsilon, rho = rng.uniform(0.01, 0.3), rng.uniform(1e-4, 1e-2)
        spends.append(
            [
                Spend(epsilon=epsilon),
                Spend(rho=rho),
                Spend(epsilon=epsilon, delta=1e-9),
                Spend(epsilon=epsilon, delta=1e-9, rho=rho),
            ][kind]
        )
        cost = total_cost(spends, 1e-6)
        assert cost.epsilon >= last - 1e-9
        last = cost.epsilon


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"rho": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": -1e-9},
        {"rho": 0.1, "delta": 1e-6},
    ],
)
def test_wrong_spends(wrong):
    with pytest.raises(ValueError):
        Spend(**wrong)


@pytest.mark.parametrize("n, epsilon", [(5, 0.5), (30, 0.2), (100, 0.1)])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_fixed_sequences_cost_what_the_worst_mechanisms_do(n, epsilon, delta):
    """Answers at random, epsilon each: the exact delta is a sum over binomials."""
    found = composed_cost([PrivacyCost(epsilon)] * n, delta).epsilon
    k, p = np.arange(n + 1), 1 / (1 + math.exp(-epsilon))
    true, other = binom.pmf(k, n, p), binom.pmf(k, n, 1 - p)

    def exact_delta(total):
        return np.maximum(true - math.exp(total) * other, 0).sum()

    assert exact_delta(found) <= delta * (1 + 1e-6)
    assert exact_delta(found - 0.02) > delta
    assert found <= total_cost([Spend(epsilon)] * n, delta).epsilon


def test_sequences_that_nothing_shortens():
    assert composed_cost([], 1e-6) == (0.0, 0.0)
    assert composed_cost([PrivacyCost(1.0), PrivacyCost(0.0)], 0.0) == (1.0, 0.0)
    assert composed_cost([PrivacyCost(math.inf)], 1e-6).epsilon == math.inf
    mixed = [PrivacyCost(0.5, 1e-7), PrivacyCost(0.25)]
    assert 0.7 < composed_cost(mixed, 1e-6).epsilon <= 0.75


def test_a_notebook_shows_a_cost_as_a_table():
    page = PrivacyCost(0.5, 1e-6, "individuals")._repr_html_()
    assert re.findall("<td[^>]*>([^<]*)</td>", page) == ["individuals", "0.5", "1e-06"]
