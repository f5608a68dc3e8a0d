"""A program small enough to see everything it does, and sessions that stop half-way."""

from dataclasses import dataclass

import numpy as np

from skprivbn.federation import (
    ALL_ROWS,
    InProcessFederation,
    PartyRefusal,
    Sum,
    Tell,
    Terms,
    decode,
    program,
)


@dataclass(frozen=True)
class MeanTerms(Terms):
    """How many sums; how the party ``fails_at`` fails before the first."""

    n_sums: int = 2
    fails: str = ""
    fails_at: str = "south"


@program(MeanTerms)
def mean(me):
    """A greeting, the means of all columns, and their squares about the mean."""
    if me.name == me.terms.fails_at:
        fail(me.terms.fails)
    X = me.numbers()
    yield Tell(dict.fromkeys(me.peers, {"from": me.name}), "a greeting")
    sums = np.append(X.sum(axis=0), len(X))
    *sums, n = yield Sum(sums, "sums of rows", ALL_ROWS)
    centre = np.array(sums) / n
    for _ in range(me.terms.n_sums - 1):
        squares = ((X - centre) ** 2).sum(axis=0)
        yield Sum(squares, "squares about the mean", ALL_ROWS)
    return {"mean": centre}


def fail(how):
    """Raise as data of a party might make its program raise."""
    if how == "refuse":
        raise PartyRefusal("invalid-data", "row 31415926")
    if how == "overflow":
        raise OverflowError("the value 31415926 is too large")
    if how:
        raise RuntimeError("row 31415926 is bad")


def make_blocks(names="ab"):
    """Return four rows for each party."""
    return {
        name: {"X": np.arange(8.0).reshape(4, 2) + i} for i, name in enumerate(names)
    }


class Stopped(Exception):
    """The coordinator was about to say something."""


class Stopping(InProcessFederation):
    """A coordinator that goes away before it tells a party some word."""

    def __init__(self, word, party, *arguments, **options):
        super().__init__(*arguments, **options)
        self.word, self.party, self.request = word, party, None

    def _exchange(self, requests, timeout):
        if self.party in requests:
            self.request = decode(requests[self.party])
            if self.word in self.request["payload"]:
                raise Stopped
        return super()._exchange(requests, timeout)

    def _close(self):
        """Leave the parties as they are."""


def stop_before(word, party="a", *, blocks=None, terms=None, **options):
    """Return the runner of a party and the request that would reach it next.

    Parameters
    ----------
    word : {"hellos", "sealed", "total"}
        What the request tells.
    party : str
    blocks : dict, default=None
    terms : Terms, default=None
    **options
        Of the federation.

    Returns
    -------
    runner : Runner
    request : dict
    """
    blocks, terms = blocks or make_blocks(), terms or MeanTerms()
    backend = options.pop("backend", "masking")
    session = Stopping(word, party, blocks, mean, terms, backend, **options)
    try:
        with session:
            session.run()
    except Stopped:
        return session._runners[party], session.request
    raise AssertionError(f"nobody is told {word}")
