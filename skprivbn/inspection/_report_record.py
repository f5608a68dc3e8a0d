"""What the privacy report knows: the ledger and the estimator, read once."""

from collections import Counter
from dataclasses import dataclass, field

from skprivbn.crypto import CKKSBackend, resolve_backend
from skprivbn.crypto._registry import named_parameters
from skprivbn.crypto.shares import resolve_count_backend
from skprivbn.inspection._report_words import READABLE, SETTING_WORDS


@dataclass
class Record:
    """One fit: its facts, and what its ledger notes.

    Attributes
    ----------
    facts : list of Fact
        Everything that anybody learnt.
    cost : PrivacyCost or None
        What the fit spent.
    """

    estimator: object
    facts: list = field(init=False)

    def __post_init__(self):
        self.ledger = self.estimator.ledger_
        self.facts = self.ledger.facts()
        self.cost = getattr(self.estimator, "privacy_spent_", None)

    def notes(self, *topics):
        """Return the texts of the ledger's notes on some topics."""
        return [note.text for note in self.ledger.notes_on(*topics)]

    def _backends(self):
        notes = self.ledger.notes_on("hidden by", "technique")
        return [note.value for note in notes if note.value is not None]

    @property
    def backends(self):
        """Names of the backends that hid something."""
        return {backend["name"] for backend in self._backends()}

    def connected_by(self, connection):
        """Tell whether a session reached its parties in this way."""
        notes = self.ledger.notes_on("connection")
        return any(note.value == connection for note in notes)

    @property
    def parties(self):
        """Names of the data holders."""
        return self.ledger.parties

    @property
    def is_simulation(self):
        """Whether one process held all data."""
        return self.connected_by("simulation")

    @property
    def has_noise(self):
        """Whether an epsilon limits what the result tells."""
        return self.cost is not None and self.cost.epsilon < float("inf")

    @property
    def releases(self):
        """What noise covers; ledgers of older versions do not say."""
        return getattr(self.ledger, "releases", [])

    @property
    def protects_persons(self):
        """Whether all noise hides persons, whatever the number of their rows."""
        return bool(self.releases) and all(
            release.protects == "individuals" for release in self.releases
        )

    @property
    def tells_exact_values(self):
        """Whether somebody read values that the noise does not cover."""
        return any(fact.kind in READABLE for fact in self.facts)

    @property
    def has_sums(self):
        """Whether totals over all parties were formed."""
        return any(fact.is_total for fact in self.facts)

    def readers(self, kind):
        """Return who read something of a kind, in order."""
        return list(dict.fromkeys(f.who for f in self.facts if f.kind == kind))

    def is_of_one_party(self, fact):
        """Tell whether a fact is about one party's rows, not about all together.

        Parties send their own figures, and what a party by name heard, its peers told.
        """
        return fact.source in ("each party", *self.parties) or fact.who in self.parties

    def was_lost(self, party):
        """Tell whether a party dropped out."""
        return any(note.value == party for note in self.ledger.notes_on("lost"))

    def n_messages(self):
        """Return counters of messages by sender and by receiver."""
        entries = self.ledger.entries
        return Counter(e.sender for e in entries), Counter(e.receiver for e in entries)

    def bytes_by_round(self):
        """Return the bytes of every round, from the first to the last."""
        rounds = Counter()
        for entry in self.ledger.entries:
            rounds[entry.round] += entry.n_bytes
        return [rounds[i] for i in range(min(rounds), max(rounds) + 1)]

    def settings(self):
        """Return (words, value) of the estimator's parameters that matter here."""
        names = dict(SETTING_WORDS)
        if getattr(self.estimator, "epsilon", None) is None:
            names.pop("delta")
        values = {name: getattr(self.estimator, name, None) for name in names}
        return [
            (words, f"{values[name]:g}" if name in ("epsilon", "delta") else value)
            for name, words in names.items()
            if isinstance(value := values[name], int | float | str) and value
        ]

    def method(self):
        """Return name and parameters of the backend; None if not those of the fit."""
        chosen = getattr(self.estimator, "backend", None)
        if chosen is None or not self.ledger.entries:
            return None
        try:
            adds = bool(self.notes("hidden by"))
            backend = (resolve_backend if adds else resolve_count_backend)(chosen)
        except (TypeError, ValueError):
            return None
        # Parameters may have been set after the fit: the ledger decides.
        if named_parameters(backend) not in self._backends():
            return None
        parameters = backend.get_params(deep=False)
        if isinstance(backend, CKKSBackend):
            # A preset says nothing to a reader; what it stands for does.
            degree, primes, scale_bits = backend._parameters()
            sizes = " + ".join(map(str, primes))
            parameters = {
                "ring degree": degree,
                "modulus bits": f"{sum(primes)} ({sizes})",
                "scale bits": scale_bits,
            }
        written = ", ".join(
            f"{name.replace('_', ' ')} = {value}"
            for name, value in parameters.items()
            if value is not None and name != "n_jobs"
        )
        name = type(backend).__name__
        return f"{name}: {written}" if written else name
