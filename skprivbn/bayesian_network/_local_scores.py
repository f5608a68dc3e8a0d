"""What searches for a graph need to know of the data: scores of families."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


class LocalScores(ABC):
    """Scores of a node given its parents; higher is better.

    Subclasses define :meth:`score`, or all of the others. Where scores cost messages,
    :meth:`fetch` gets many of them at once. A search is a generator, which yields what
    is to be fetched: whoever runs it may have to ask others.

    Attributes
    ----------
    n_variables : int
    tolerance : float
        Gains of up to this much are rounding errors.
    """

    n_variables: int
    tolerance: float = 0.0

    @abstractmethod
    def score(self, child, parents):
        """Return the score of a node with some parents."""

    def added(self, child, parents, candidates):
        """Return the scores with each of some candidates as one more parent."""
        return np.array([self.score(child, [*parents, v]) for v in candidates])

    def removed(self, child, parents):
        """Return the scores without each of the parents."""
        return np.array(
            [self.score(child, [u for u in parents if u != v]) for v in parents]
        )

    def fits(self, child, parents):
        """Tell which further parents leave a family that can be scored."""
        return np.ones(self.n_variables, dtype=bool)

    def fetch(self, asked):
        """Prepare for questions to come.

        Parameters
        ----------
        asked : list of (int, sequence of int, sequence of int)
            Nodes, parents, and candidates for one more parent, as in :meth:`added`.
        """

    def gain(self, change, now, n_edges):
        """Return what a change of scores is worth.

        Parameters
        ----------
        change : ndarray
            Differences of scores.
        now : ndarray of shape (n_variables,)
            Scores of all nodes before.
        n_edges : {-1, 0, 1}
            Edges more than before.

        Returns
        -------
        gain : ndarray
        """
        return change


def complete(search, scores):
    """Go through the steps of a search whose scores are at hand.

    Parameters
    ----------
    search : generator
        Yields what :meth:`LocalScores.fetch` takes, whenever it needs scores.
    scores : LocalScores

    Returns
    -------
    result : object
        What the search returns.
    """
    while True:
        try:
            scores.fetch(next(search))
        except StopIteration as stop:
            return stop.value


@dataclass(frozen=True)
class EdgeRules:
    """Which edges a graph may and must have.

    Parameters
    ----------
    allowed, required : ndarray of bool of shape (n_variables, n_variables)
        True at [i, j] for an edge from i to j. Required edges have no cycle and are
        allowed.
    max_parents : int or ndarray of int of shape (n_variables,)
    """

    allowed: np.ndarray
    required: np.ndarray
    max_parents: int | np.ndarray

    @classmethod
    def free(cls, n_variables, max_parents=None):
        """Return rules by which every edge may be there, and none must."""
        return cls(
            ~np.eye(n_variables, dtype=bool),
            np.zeros((n_variables, n_variables), dtype=bool),
            n_variables if max_parents is None else max_parents,
        )
