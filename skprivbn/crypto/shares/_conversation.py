"""Messages between parties, as seen from one side, over a round-based transport.

A protocol is a generator: it yields ``{peer: payload}`` whenever it has to wait, is
sent ``{peer: payload}``, and returns its private result. :class:`Conversation` hides
the rounds. A protocol says ``talk.send(peer, message)`` and
``message = yield from talk.receive(peer)``; messages of one peer arrive in the order
they were sent, so parties that take part in different sub-protocols never need to
count rounds. :func:`together` runs sub-protocols side by side: each talks on a branch,
whose messages have an order of their own, and what all branches send at a time leaves
in one round.
"""

from collections import defaultdict, deque

import numpy as np

from skprivbn.exceptions import ProtocolError


def is_array(value, shape, dtype):
    """Tell whether a peer's message is an array of this shape and type."""
    return (
        isinstance(value, np.ndarray) and value.shape == shape and value.dtype == dtype
    )


class Conversation:
    """One party's end of the message streams to its peers.

    Parameters
    ----------
    name : str
        Own name.
    roster : sequence of str
        All parties, in the order on which everybody agrees.
    session : bytes
        Identifies the session; enters every key and tweak derived in it.
    """

    def __init__(self, name, roster, session):
        if name not in roster or len(set(roster)) != len(roster):
            raise ProtocolError("the roster must name each party once")
        self.name, self.roster, self.session = name, tuple(roster), session
        self.peers = tuple(peer for peer in roster if peer != name)
        self._label = "messages"
        self._outbox, self._inbox = {}, defaultdict(deque)

    def send(self, peer, message):
        """Queue a message (a payload value); it leaves at the next wait."""
        self._outbox.setdefault(peer, {}).setdefault(self._label, []).append(message)

    def receive(self, peer):
        """Wait for the next message of `peer` and return it."""
        inbox = self._inbox[peer, self._label]
        while not inbox:
            yield from self.flush()
        return inbox.popleft()

    def receive_array(self, peer, shape, dtype):
        """Wait for an array; NumPy would stretch one of another shape."""
        array = yield from self.receive(peer)
        if not is_array(array, shape, dtype):
            raise ProtocolError("an array of a peer has the wrong type or shape")
        return array

    def flush(self):
        """Hand over what is queued and take in what has arrived."""
        # messages may be long: no name here holds on to them
        for peer, payload in (yield self._take_outbox()).items():
            for label in list(payload):
                self._inbox[peer, label].extend(payload.pop(label))

    def _take_outbox(self):
        leaving = dict(self._outbox)
        self._outbox.clear()
        return leaving

    def branch(self, label):
        """Return an end of further streams to the same peers, for :func:`together`.

        A label means the same streams whenever it is used, at every party.
        """
        return _Branch(self, label)

    def finish(self):
        """Send what is left and check that nothing unread remains."""
        if self._outbox:
            yield from self.flush()
        if any(self._inbox.values()):
            raise ProtocolError("a peer sent more than the protocol asks for")


class _Branch(Conversation):
    """A conversation whose messages travel with those of another."""

    def __init__(self, talk, label):
        super().__init__(talk.name, talk.roster, talk.session)
        self._label = f"{talk._label}/{label}"
        self._outbox, self._inbox = talk._outbox, talk._inbox

    def flush(self):
        """Wait until :func:`together` has exchanged the messages of all branches."""
        yield


def together(talk, sides, costs=None, limit=None):
    """Run sub-protocols side by side, in shared rounds.

    Parameters
    ----------
    talk : Conversation
    sides : dict of str to callable
        By a label on which all who take part agree, a function of a branch of `talk`
        that returns a generator. Parties may have different ones; those that they
        have in common must come in the same order.
    costs : dict of str to float, default=None
        What each takes while it runs, such as memory.
    limit : float, default=None
        Sub-protocols wait for their turn while those that run cost more. The first
        that is not done always runs, at every party, so nobody waits for ever.

    Returns
    -------
    results : dict
        What each sub-protocol returned.
    """
    waiting, running, results = deque(sides), {}, dict.fromkeys(sides)
    used = 0.0
    while waiting or running:
        while waiting:
            cost = costs[waiting[0]] if costs else 0.0
            if running and limit is not None and used + cost > limit:
                break
            label = waiting.popleft()
            running[label], used = sides[label](talk.branch(label)), used + cost
        for label, side in list(running.items()):
            try:
                next(side)
            except StopIteration as stop:
                results[label] = stop.value
                del running[label]
                used -= costs[label] if costs else 0.0
        if running:
            yield from talk.flush()
    return results


def run_together(sides, on_message=None):
    """Run the sides of a conversation in this process; return their results.

    Parameters
    ----------
    sides : dict of str to generator
        One protocol side per party.
    on_message : callable, optional
        Called as ``on_message(sender, receiver, payload)``.

    Returns
    -------
    results : dict
        What each side returned.
    """
    results, arriving, silent = {}, dict.fromkeys(sides), 0
    while len(results) < len(sides):
        if silent > 1:
            raise ProtocolError("waiting for messages that nobody sends")
        leaving = {name: {} for name in sides}
        for name in [name for name in sides if name not in results]:
            try:
                outgoing = sides[name].send(arriving[name])
            except StopIteration as stop:
                results[name] = stop.value
                continue
            for peer, payload in outgoing.items():
                if on_message is not None:
                    on_message(name, peer, payload)
                leaving[peer][name] = dict(payload)
        silent = 0 if any(leaving.values()) else silent + 1
        arriving = leaving
    return results
