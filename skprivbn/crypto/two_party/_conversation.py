"""Messages between parties, as seen from one side, over a round-based transport.

A protocol is a generator: it yields ``{peer: payload}`` whenever it has to wait, is
sent ``{peer: payload}``, and returns its private result. :class:`Conversation` hides
the rounds. A protocol says ``talk.send(peer, message)`` and
``message = yield from talk.receive(peer)``; messages of one peer arrive in the order
they were sent, so parties that take part in different sub-protocols never need to
count rounds. Whoever waits sends something, if only an empty list, to every peer: so
all go from round to round together, and part together.
"""

from collections import deque

from skprivbn.exceptions import ProtocolError

__all__ = ["Conversation", "run_together"]

MAX_IDLE_ROUNDS = 100_000


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
        self._idle_rounds = 0

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
        sent = {peer: self._outbox.get(peer, []) for peer in self.peers}
        self._outbox = {}
        arrived = yield {
            peer: {"messages": messages} for peer, messages in sent.items()
        }
        for peer, payload in arrived.items():
            self._inbox[peer].extend(payload["messages"])
        self._idle_rounds += 1
        if any(sent.values()) or any(p["messages"] for p in arrived.values()):
            self._idle_rounds = 0
        # two parties that both wait will wait for ever; of more, others may be busy
        if self._idle_rounds > (0 if len(self.peers) == 1 else MAX_IDLE_ROUNDS):
            raise ProtocolError("waiting for messages that nobody sends")

    def finish(self):
        """Wait until everybody has said goodbye, so that nobody is left talking."""
        for peer in self.peers:
            self.send(peer, "goodbye")
        yield from self.flush()
        for peer in self.peers:
            if (yield from self.receive(peer)) != "goodbye" or self._inbox[peer]:
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
    results, arriving = {}, dict.fromkeys(sides)
    while len(results) < len(sides):
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
                leaving[peer][name] = payload
        arriving = leaving
    return results
