"""Attacks on the released tables: none may prove more than the claimed epsilon.

The attacker knows all rows but one person's and computes the likelihood ratio of a
release with and without that person. A sound mechanism fails such a test by chance
once in a billion; broken ones must be caught.
"""

import numpy as np
import pytest

from skprivbn.graphical_model._searches import GivenTables, PrivateTree
from skprivbn.graphical_model._tables import (
    Contribution,
    TableLayout,
    count_tables,
    norms,
    resolve_ties,
)
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.privacy._mechanisms import noisy_max
from tests.privacy.toys import prove_epsilon, suspect_epsilon

N_RELEASES = 8000
EPSILON = 1.0


def neighbours(stationary=False, contribution=None):
    """Counts with and without one person, and the two sensitivities."""
    contribution = contribution or Contribution()
    rng = np.random.default_rng(0)
    cliques, ties = resolve_ties([(0, 1), (1, 2)], stationary)
    layout = TableLayout(cliques, [2, 2, 2], ties)
    codes = rng.integers(2, size=(30, 3))
    codes[0] = 1
    individual = None if contribution.kind == "record" else np.arange(30) // 3
    others = np.arange(30) >= (1 if individual is None else 3)
    if individual is not None:
        codes[:3] = 1
    both = count_tables(codes, layout, contribution, individual)
    without = count_tables(
        codes[others],
        layout,
        contribution,
        None if individual is None else individual[others],
    )
    search = GivenTables(
        1.0, 0.0, 3, contribution.per_clique, cliques=cliques, ties=ties
    )
    return both, without, norms(search.changes)


def log_ratio(releases, one, other, noise):
    """Log-likelihood ratio of releases between two sets of exact counts."""
    if noise.kind == "laplace":
        return (np.abs(releases - other) - np.abs(releases - one)).sum(axis=1)
    return ((releases - other) ** 2 - (releases - one) ** 2).sum(axis=1)


def attack(one, other, noise, draw):
    """What an attacker sees with and without the person, as one number each."""
    # cells that the person does not change tell nothing
    one, other = one[one != other], other[one != other]
    for counts in (one, other):
        releases = draw(np.tile(counts, (N_RELEASES, 1)))
        yield log_ratio(releases, one, other, noise)


CASES = {
    "record": {},
    "tied": {"stationary": True},
    "normalize": {"contribution": Contribution("normalize")},
    "clip": {"contribution": Contribution("clip", max_records=3)},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_one_holder(name, delta):
    one, other, (l1, l2) = neighbours(**CASES[name])
    noise = CountMechanism.for_budget(EPSILON, delta, l1, l2)
    seen = list(attack(one, other, noise, noise.release))
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    if delta == 0:
        # the attack is strong enough to mean something
        assert suspect_epsilon(*seen) > 0.4 * EPSILON


def test_forgotten_cliques_are_caught():
    one, other, _ = neighbours()
    broken = CountMechanism.for_budget(EPSILON, 0.0, 1)
    assert suspect_epsilon(*attack(one, other, broken, broken.release)) > EPSILON


def test_ties_counted_once_are_caught():
    one, other, _ = neighbours(stationary=True)
    broken = CountMechanism.for_budget(EPSILON, 0.0, 2)
    assert suspect_epsilon(*attack(one, other, broken, broken.release)) > EPSILON


def test_gaussian_noise_for_a_single_record_is_caught():
    one, other, _ = neighbours(contribution=Contribution("clip", max_records=3))
    broken = CountMechanism.for_budget(EPSILON, 1e-3, 1, 1.0)
    seen = attack(one, other, broken, broken.release)
    assert suspect_epsilon(*seen, delta=1e-3) > EPSILON


def shares_of(noise, n_parties):
    def draw(counts):
        return counts + sum(noise.share(counts.shape) for _ in range(n_parties))

    return draw


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.slow
def test_several_holders_after_colluders_took_their_noise_away(delta):
    one, other, (l1, l2) = neighbours()
    central = CountMechanism.for_budget(EPSILON, delta, l1, l2)
    noise = distribute(central, n_parties=4, min_honest=2)
    seen = list(attack(one, other, noise, shares_of(noise, 2)))
    assert prove_epsilon(*seen, delta=delta) <= EPSILON
    if delta == 0:
        assert suspect_epsilon(*seen) > 0.3 * EPSILON


def test_shares_for_all_parties_do_not_survive_colluders():
    one, other, (l1, l2) = neighbours()
    central = CountMechanism.for_budget(EPSILON, 0.0, l1, l2)
    noise = distribute(central, n_parties=4, min_honest=4)
    assert suspect_epsilon(*attack(one, other, noise, shares_of(noise, 1))) > EPSILON


@pytest.mark.slow
def test_choice_of_an_edge():
    scale = PrivateTree(3 * EPSILON, 0.0, n_columns=2).selection_scale
    # one record more can raise one score and lower another, each by one
    answers = [
        [noisy_max(scores, scale) for _ in range(3000)] for scores in ([1, 0], [0, 1])
    ]
    assert prove_epsilon(*answers) <= EPSILON
    careless = [
        [noisy_max(scores, scale / 4) for _ in range(3000)]
        for scores in ([1, 0], [0, 1])
    ]
    assert suspect_epsilon(*careless) > EPSILON
