"""Programs that lose a party: what survives, and who is named."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.exceptions import PartyError
from skprivbn.federation import ALL_ROWS, InProcessFederation, Sum, Terms, program
from tests.federation.test_program import blocks_of, variance


class Losing(InProcessFederation):
    """Loses what a party answers from some message on."""

    def __init__(self, *arguments, lost, after, **options):
        super().__init__(*arguments, **options)
        self.losing, self.after, self.n_heard = lost, after, 0

    def _exchange(self, requests, timeout):
        replies = super()._exchange(requests, timeout)
        self.n_heard += self.losing in requests
        if self.n_heard > self.after:
            replies[self.losing] = None
        return replies


@program(Terms)
def one_sum(me):
    X = me.numbers()
    sums = yield Sum(np.append(len(X), X.sum(axis=0)), "rows and sums", ALL_ROWS)
    return {"sums": sums}


BLOCKS_OF_SEVEN = blocks_of(n_parties=7)


@pytest.mark.parametrize("lost", ["p0", "p3"])
@pytest.mark.parametrize("after", [3, 4, 5])
def test_the_only_sum_survives_the_loss_of_a_party(lost, after):
    backend = MaskingBackend(recovery=True)
    with Losing(
        BLOCKS_OF_SEVEN,
        one_sum,
        Terms(),
        backend,
        on_dropout="continue",
        lost=lost,
        after=after,
    ) as federation:
        found = federation.run()
    others = [b["X"] for name, b in BLOCKS_OF_SEVEN.items() if name != lost]
    left = np.concatenate(others)
    np.testing.assert_allclose(found["sums"], [len(left), *left.sum(axis=0)])
    assert list(federation.lost) == [lost]


def test_a_program_of_two_sums_ends_with_a_lost_party():
    backend = MaskingBackend(recovery=True)
    with Losing(
        BLOCKS_OF_SEVEN,
        variance,
        Terms(),
        backend,
        on_dropout="continue",
        lost="p3",
        after=4,
    ) as federation:
        with pytest.raises(PartyError, match="'p3'"):
            federation.run()


@pytest.mark.parametrize("after", range(7))
def test_without_recovery_a_lost_party_is_named(after):
    with pytest.raises(PartyError, match="'p1'.*no answer arrived in time"):
        with Losing(
            blocks_of(), variance, Terms(), "masking", lost="p1", after=after
        ) as federation:
            federation.run()
