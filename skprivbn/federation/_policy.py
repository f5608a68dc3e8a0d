"""What a site insists on, in every session."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class HostPolicy:
    """What a site insists on, whatever the coordinator asks.

    Parameters
    ----------
    min_parties : int
        Smallest roster it takes part in: a sum over one party is that party's data.
    min_rows : int
        Fewest rows it needs to have to take part, and that an exact sum over all
        parties may be about.
    allow_rows : bool
        Whether operations that show rows of data, to the coordinator or to other
        parties, are answered.
    max_rounds : int or None
        Most rounds of one session: a coordinator that departs from the protocol
        asks one question in each.
    min_cell_count : int
        Smallest count of an exact table that is told.
    is_simulated : bool
        Whether nobody is there to hide from, as in one process: a party may then draw
        weights of its rows by a seed that others know, so that a fit can be repeated.
    max_message_bytes : int
        Longest message that peers may send together in one round.
    max_numbers : int
        Longest vector of one sum.
    max_summed : float
        Most exact numbers that parties read of one session, for each own row.
    """

    min_parties: int = 1
    min_rows: int = 1
    allow_rows: bool = False
    max_rounds: int | None = None
    min_cell_count: int = 0
    is_simulated: bool = False
    max_message_bytes: int = 1 << 30
    max_numbers: int = 1 << 26
    max_summed: float = math.inf
