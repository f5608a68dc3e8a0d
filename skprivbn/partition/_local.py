"""Data of several parties that are in this process: a simulation of a federation."""

from typing import Any

from skprivbn.crypto import AdditiveBackend
from skprivbn.exceptions import PartitionError
from skprivbn.federation import HostPolicy, InProcessFederation, Terms
from skprivbn.federation._remote import RemoteData


def is_held(X: Any) -> bool:
    """Tell whether data stay with their holders: a partition, or a handle on one.

    Parameters
    ----------
    X : object
        As given to an estimator.

    Returns
    -------
    held : bool
    """
    return isinstance(X, LocalPartition | RemoteData)


class LocalPartition:
    """One block per party, which goes to nobody but that party."""

    names: tuple[str, ...]
    _blocks: dict[str, dict]

    @property
    def n_parties(self) -> int:
        """Number of parties."""
        return len(self.names)

    def n_rows(self) -> dict[str, int]:
        """Return the number of rows of each party, by name."""
        return {name: len(block["X"]) for name, block in self._blocks.items()}

    def federate(
        self,
        party_class: type,
        terms: Terms,
        backend: str | AdditiveBackend | None = None,
        *,
        min_rows: int = 1,
        **options: Any,
    ) -> InProcessFederation:
        """Open a federation in this process that hands each party its own block.

        Parameters
        ----------
        party_class : type
            The protocol: a subclass of ``Party``.
        terms : Terms
            Its public parameters.
        backend : str, AdditiveBackend or None
            How sums are hidden; None for protocols without.
        min_rows : int, default=1
            Parties with fewer rows refuse to take part.
        **options
            Of :class:`~skprivbn.federation.InProcessFederation`.

        Returns
        -------
        federation : InProcessFederation
            To be used as a context manager.
        """
        return InProcessFederation(
            self._blocks,
            party_class,
            terms,
            backend,
            policy=HostPolicy(min_rows=min_rows, allow_rows=True),
            **options,
        )

    def __array__(self, dtype=None, copy=None):
        raise PartitionError(
            f"a {type(self).__name__} does not become an array, which would pool what "
            "the parties hold; pass it to an estimator of skprivbn"
        )
