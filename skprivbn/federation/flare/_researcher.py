"""Who asks: a person with a certificate, and what sites say to that person."""

from pathlib import Path
from typing import Any

from skprivbn.crypto.certificates import name_of, vouch
from skprivbn.crypto.sealing import Identity
from skprivbn.exceptions import PartyError
from skprivbn.federation._ledger import LedgerTable
from skprivbn.federation._wire import encode
from skprivbn.federation.site._site import QUESTION


class Researcher:
    """Signs questions with the certificate of a person.

    The server, which carries them, cannot ask in that person's name.

    Parameters
    ----------
    certificate, private_key : bytes
        In PEM format, as in an admin's startup kit.
    """

    def __init__(self, certificate: bytes, private_key: bytes) -> None:
        self.name = name_of(certificate)
        self._certificate, self._key = certificate, private_key
        self._identity = Identity()

    @classmethod
    def from_kit(cls, kit: Path) -> "Researcher":
        """Return the owner of an admin's startup kit."""
        folder = kit / "startup"
        return cls(
            (folder / "client.crt").read_bytes(), (folder / "client.key").read_bytes()
        )

    def voucher(self, job: str) -> dict:
        """Return what sites check before they tell anything."""
        return vouch(self._certificate, self._key, self._identity.public, job)

    def sign(self, job: str, request: bytes) -> bytes:
        """Return a request with a signature, for this job."""
        signature = self._identity.sign(QUESTION, job.encode(), request)
        return encode({"request": request, "signature": signature})


#: who reads what programs yield
READERS = {
    "Sum": "the sites, as a sum over all",
    "Release": "the researcher, as a sum over all",
    "Noisy": "everybody, as a sum with noise",
    "Tell": "other sites, sealed",
    "Hear": "heard from the researcher",
}


class DryRun:
    """What a fit would ask of the sites, and what they would say.

    Attributes
    ----------
    answers : dict of str to str
        "accepted" or, in a code, why not, by site.
    rounds : list of Round
        What sites would tell at most.
    epsilon : float or None
        What it would cost each site; None if something exact would leave.
    """

    def __init__(
        self, answers: dict[str, str], rounds: list, epsilon: float | None
    ) -> None:
        self.answers, self.rounds, self.epsilon = answers, rounds, epsilon

    @property
    def is_accepted(self) -> bool:
        """Whether all sites would take part."""
        return set(self.answers.values()) == {"accepted"}

    def what_leaves(self) -> LedgerTable:
        """Return a table, in plain words, of what sites would tell at most."""
        rows = [(READERS[one.kind], one.what) for one in self.rounds]
        return LedgerTable(["told to", "what"], rows)

    def __str__(self):
        cost = "none: an exact question" if self.epsilon is None else self.epsilon
        said = [
            f"{site}: {PartyError.REASONS.get(answer, answer)}"
            for site, answer in self.answers.items()
        ]
        return "\n".join([*said, f"epsilon: {cost}", str(self.what_leaves())])

    __repr__ = __str__

    def _repr_html_(self) -> Any:
        said = LedgerTable(["site", "says"], list(self.answers.items()))
        return said._repr_html_() + self.what_leaves()._repr_html_()
