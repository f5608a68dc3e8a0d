"""What every federated estimator shares."""

from skprivbn.crypto import BACKENDS, AdditiveBackend, resolve_backend
from skprivbn.utils import warn_leak
from skprivbn.utils._sklearn import StrOptions

__all__ = ["BACKEND_CONSTRAINT", "FederatedMixin"]

BACKEND_CONSTRAINT = [StrOptions(set(BACKENDS)), AdditiveBackend]


class FederatedMixin:
    """Routes `party` through scikit-learn and opens federations.

    Mix into estimators with ``fit(X, y=None, *, party=None)``. The class attribute
    below requests `party` by default, so that pipelines and searches hand it over
    without ``set_fit_request``.
    """

    __metadata_request__fit = {"party": True}

    def _federate(self, partition, party_class, settings, *, min_rows=1, **options):
        """Open a federation for one fit; warn of what its roster cannot hide.

        Parameters
        ----------
        partition : HorizontalPartition or VerticalPartition
        party_class : type
        settings : dict
            Public parameters of the protocol.
        min_rows : int, default=1
        **options
            ``backend`` to override ``self.backend``, and those of ``Federation``.

        Returns
        -------
        federation : Federation
            To be used as a context manager.
        """
        backend = resolve_backend(options.pop("backend", self.backend))
        _warn_of_roster(backend, partition)
        return partition.federate(
            party_class, settings, backend, min_rows=min_rows, **options
        )


def _warn_of_roster(backend, partition):
    leaks = backend.leaks()
    if leaks is not None:
        warn_leak(leaks)
    if backend.kind == "plaintext":
        return
    if partition.n_parties == 1:
        warn_leak(
            "all rows are taken to be one party's: there is nobody to hide them from "
            "and the sums are that party's own; pass party= to say who holds each row"
        )
    elif partition.n_parties == 2:
        warn_leak(
            "with two parties, each learns the other's sums by subtracting its own; "
            "three or more are needed to hide them"
        )
