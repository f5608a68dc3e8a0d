"""Parties that hold different columns about the same records."""

from abc import abstractmethod
from functools import cached_property

from skprivbn.crypto._psi import align_records
from skprivbn.crypto.two_party import Conversation
from skprivbn.federation._party import Party, PartyRefusal, operation

__all__ = ["ColumnsParty"]


class ColumnsParty(Party):
    """A holder of some of the columns, which ``settings["owners"]`` tells.

    With ``settings["has_keys"]`` the first operation of the schedule is `align`.
    """

    @cached_property
    def variables(self):
        """Numbers of the own columns among all."""
        owners = self.settings["owners"]
        return [v for v, owner in enumerate(owners) if owner == self.name]

    def talk(self):
        """Return this party's end of a conversation with all others."""
        session = self.context.session + self.context.roster_hash
        return Conversation(self.name, self.context.roster, session)

    @abstractmethod
    def keep(self, records):
        """Keep some of the own records, given by position, in this order."""

    @operation(
        peers="which of its own records the others have too, and their numbers of "
        "records",
        peers_kind="public",
    )
    def align(self):
        """Keep the records that all parties have, in an order that tells nothing."""
        try:
            records = yield from align_records(self.talk(), self.block["keys"])
        except ValueError:
            raise PartyRefusal("invalid-data") from None
        # A peer with the key of one person would else be told of that person.
        if len(records) < max(1, self.min_rows):
            raise PartyRefusal("too-few-rows")
        self.keep(records)
