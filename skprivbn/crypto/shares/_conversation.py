"""Messages between parties, as seen from one side, over a round-based transport.

A protocol is a generator: it yields ``{peer: payload}`` whenever it has to wait, is
sent ``{peer: payload}``, and returns its private result. :class:`Conversation` hides
the rounds. A protocol says ``talk.send(peer, message)`` and
``message = yield from talk.receive(peer)``; messages of one peer arrive in the order
they were sent, so parties that take part in different sub-protocols never need to
count rounds.
"""

from collections import deque

from skprivbn.exceptions import ProtocolError

__all__ = ["Conversation", "run_together"]


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
        self._outbox = {}
        self._inbox = {peer: deque() for peer in self.peers}

    def send(self, peer, message):
        """Queue a message (a payload value); it leaves at the next wait."""
        self._outbox.setdefault(peer, []).append(message)

    def receive(self, peer):
        """Wait for the next message of `peer` and return it."""
        while not self._inbox[peer]:
            yield from self.flush()
        return self._inbox[peer].popleft()

    def flush(self):
        """Hand over what is queued and take in what has arrived."""
        # messages may be long: no name here holds on to them
        for peer, payload in (yield self._take_outbox()).items():
            self._inbox[peer].extend(payload.pop("messages"))

    def _take_outbox(self):
        leaving, self._outbox = self._outbox, {}
        return {peer: {"messages": sent} for peer, sent in leaving.items()}

    def finish(self):
        """Send what is left and check that nothing unread remains."""
        if self._outbox:
            yield from self.flush()
        if any(self._inbox.values()):
            raise ProtocolError("a peer sent more than the protocol asks for")


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
