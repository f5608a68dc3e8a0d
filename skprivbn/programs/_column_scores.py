"""The log-likelihood of records whose columns several parties hold: one number.

The parties share it, in multiples of a unit, and how many records are impossible. Only
these two sums over all records are opened.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skprivbn.crypto.shares import (
    Conversation,
    open_links,
    open_numbers,
    refresh_numbers,
)
from skprivbn.federation import Me, converse
from skprivbn.federation._models import SCORED_MODEL, describe_model, model_memory
from skprivbn.partition import check_vertical
from skprivbn.partition._base import refuse_weights
from skprivbn.privacy._options import warn_of_score
from skprivbn.programs._columns import (
    ColumnsTerms,
    count_records,
    finish,
    same_number_of_records,
)

#: shares of scores add up modulo 2**64
RING = np.dtype(np.uint64)


@dataclass(frozen=True)
class ScoreTerms(ColumnsTerms):
    """Columns, and the public model under which their records are scored.

    Parameters
    ----------
    model : dict
        From ``describe_model``.
    """

    model: dict[str, Any]

    def models(self):
        """Return the one model."""
        return [self.model]

    def n_parameters(self, n_features):
        """Return the one score."""
        return 1

    def memory(self, n_features):
        """Return what the model needs, of all columns."""
        return model_memory(self.model, len(self.owners))


def open_score(
    me: Me, talk: Conversation, n_records: int, share_parts: Callable, unit: float
) -> Generator[Any, Any, dict]:
    """Share the score of all records, and open it.

    Parameters
    ----------
    me : Me
    talk : Conversation
    n_records : int
        Own number of records, after they were aligned.
    share_parts : callable
        Takes the links to the peers; a part of the conversation that returns own shares
        of the score in units, and of the number of impossible records.
    unit : float

    Returns
    -------
    found : dict
        ``numbers`` of records by party, and if these are the same the ``total``, minus
        infinity if a record is impossible.
    """
    numbers = yield from count_records(me, talk, n_records)
    if len(set(numbers.values())) > 1:
        return {"numbers": numbers}
    links = yield from converse(open_links(talk), "keys of oblivious transfers")
    parts = yield from converse(
        share_parts(links), "shares of the log-likelihood of all records"
    )
    # shares of what one party has computed alone would be its own part
    parts = yield from converse(
        refresh_numbers(talk, talk.roster, parts), "random numbers that hide shares"
    )
    total, n_impossible = yield from converse(
        open_numbers(talk, talk.roster, parts), "shares of the score, to be opened"
    )
    yield from finish(talk)
    score = -np.inf if n_impossible else float(total.view(np.int64)) * unit
    return {"numbers": numbers, "total": score}


def add_column_scores(estimator, X, sample_weight, program):
    """Return the log-likelihood of records of several parties, and their number.

    Only the sum over all records becomes known. It is entered in the estimator's
    ledger.

    Parameters
    ----------
    estimator : estimator
        With a fitted `network_`.
    X : VerticalPartition or RemoteColumns
    sample_weight : None
        Anything else is refused.
    program : Program
        Made of ``open_score``, for this kind of network.

    Returns
    -------
    total : float
        Minus infinity if a record is impossible.
    n_records : int
    """
    refuse_weights(sample_weight)
    partition = check_vertical(estimator, X, reset=False)
    nodes = list(estimator.network_.nodes)
    warn_of_score(estimator)
    owners = [partition.owners[node] for node in nodes]
    terms = ScoreTerms(owners, partition.has_keys, describe_model(estimator))
    with partition.federate(program, terms) as federation:
        found = federation.run()
    n_records = same_number_of_records(found["numbers"])
    who = "all parties and the coordinator"
    federation.ledger.learns(who, "the log-likelihood of all records")
    federation.ledger.note(SCORED_MODEL)
    estimator.ledger_.append(federation.ledger)
    return found["total"], n_records
