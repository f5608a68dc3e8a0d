"""Attacks on every path with epsilon, and on its twin without a defence.

``benchmarks/study_audits.py`` runs the same attacks, and keeps what was proved.
"""

import numpy as np
import pytest

from skprivbn.privacy import CountMechanism, audit_epsilon, distribute
from tests.privacy.attacks import AUDITS, N_COSTLY, n_trials
from tests.privacy.watching import Attack

quiet = pytest.mark.filterwarnings("ignore")

# a sound path is blamed once in a billion runs
SURE = 1 - 1e-9
# Of these, so few trials prove no more than the claim even without the defence: their
# audits rule out little, and what speaks for them is the exact cost of neighbours.
WEAK = {
    "mixture, three releases",
    "field, aim, Gaussian noise",
    "search, random trials",
}


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("name", AUDITS)
def test_no_attack_proves_more_than_is_claimed(name):
    audit = AUDITS[name]
    attack = audit.make()
    found = attack.run(n_trials(name, attack), audit.delta, SURE)
    print(f"AUDIT {name}: {found:.3f} of {audit.claim}")
    assert found <= audit.claim


@quiet
@pytest.mark.parametrize(
    "name", [name for name in AUDITS if isinstance(AUDITS[name].make(), Attack)]
)
def test_what_neighbours_really_cost(name):
    """Without chance: what is opened differs by no more than its noise is made for."""
    audit = AUDITS[name]
    attack = audit.make()
    cost = attack.largest_loss()
    if audit.delta == 0:
        # neighbours are the worst: a strange row changes nothing
        least = 0.65 if "strange" not in name else 0.0
        assert least * audit.claim <= cost <= audit.claim * (1 + 1e-9)
    else:
        assert 0 < cost < 1


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("name", [name for name in AUDITS if name not in WEAK])
def test_the_attack_works_without_the_defence(name):
    audit = AUDITS[name]
    found = audit.attack_twin(N_COSTLY, 0.9)
    print(f"TWIN {name}, {audit.twin}: {found:.3f} of {audit.claim}")
    assert found > audit.claim


def test_one_open_share_is_not_enough():
    """What backend="plaintext" would show of several parties, and why it is refused."""
    noise = distribute(CountMechanism.for_budget(1.0), 4, 4)
    shares = noise.share((4000,)), noise.share((4000,)) + 1
    assert audit_epsilon(*shares, confidence=0.9) > 1.0


@quiet
def test_the_attacker_knows_how_likely_answers_are():
    """Guesses are log-likelihood ratios: their means are those of the noise."""
    attack = AUDITS["bins"].make()
    guesses = np.array([[attack.guess(w) for _ in range(150)] for w in (0, 1)])
    # one count with Laplace noise of scale 1: within epsilon, and mostly at its ends
    assert np.abs(guesses).max() == pytest.approx(1.0)
    assert guesses[1].mean() > 0.2 > -0.2 > guesses[0].mean()
