"""Noise on shares: what is opened has everybody's, and nobody's can be told apart."""

import numpy as np
import pytest

from skprivbn.crypto.shares import _gmw as shared_noise
from skprivbn.crypto.shares import add_noise, open_noisy_numbers
from tests.crypto.shares._sides import messages_of, run_sides, shared_argmax, split

NOISE = [np.array([1000, -1000]), np.array([200, 200]), np.array([-30, 30])]


def opened(transcript=None):
    # all counts are the first party's own: the others' shares are zero
    shares = np.array([[7, 8], [0, 0], [0, 0]], dtype=np.uint64)

    def side(talk, links, i):
        return open_noisy_numbers(talk, talk.roster, shares[i], NOISE[i])

    return run_sides(side, 3, transcript=transcript)


def test_numbers_are_opened_with_the_noise_of_all():
    for numbers in opened():
        assert numbers.dtype == np.int64
        assert numbers.tolist() == [7 + 1170, 8 - 770]


def seen_by_the_second():
    transcript = []
    opened(transcript)
    return {
        (sender, message.astype(np.int64).tobytes())
        for sender, receiver, payload in transcript
        if receiver == "bob"
        for message in messages_of(payload)
        if isinstance(message, np.ndarray)
    }


def test_noise_of_one_party_cannot_be_told_apart(monkeypatch):
    alone = ("carol", np.array([-30, 30]).tobytes())
    assert alone not in seen_by_the_second()

    def unchanged(talk, group, shares):
        yield from ()
        return shares

    # the twin that opens shares as they are
    monkeypatch.setattr(shared_noise, "refresh_numbers", unchanged)
    assert alone in seen_by_the_second()


@pytest.mark.parametrize("n_parties", [2, 3])
def test_the_largest_noisy_number_is_found(n_parties):
    rng = np.random.default_rng(0)
    numbers, noise = rng.integers(-99, 99, 12), rng.integers(-99, 99, (n_parties, 12))
    shares = split(rng, numbers, n_parties)

    def side(talk, links, i):
        noisy = add_noise(shares[i], noise[i])
        return shared_argmax(talk, links, noisy, [5, 7], 12)

    noisy = numbers + noise.sum(axis=0)
    for winners in run_sides(side, n_parties):
        assert winners.tolist() == [noisy[:5].argmax(), noisy[5:].argmax()]


def test_shares_of_smaller_rings_are_refused():
    with pytest.raises(TypeError, match="modulo"):
        add_noise(np.zeros(2, dtype=np.uint16), np.zeros(2, dtype=np.int64))
