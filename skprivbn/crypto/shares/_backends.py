"""How two parties share a count: hyper-parameters, and what the ledger says of them."""

from collections.abc import Callable
from numbers import Integral

from sklearn.base import BaseEstimator, clone

from skprivbn.crypto._paillier import MAX_JOBS, PaillierBackend
from skprivbn.crypto.shares._counts import joint_counts
from skprivbn.crypto.shares._paillier_counts import PackedCounts
from skprivbn.utils import warn_leak
from skprivbn.utils._sklearn import Interval, check_parameters


class OTBackend(BaseEstimator):
    """Count by oblivious transfer: symmetric cryptography only, fast.

    128 base transfers over ed25519 are extended to millions [1]_. A record takes as
    many as the number of one party's configurations has bits, and a byte for each
    configuration of the other party: 5 bytes for a single count.

    References
    ----------
    .. [1] L. Roy, "SoftSpokenOT: Quieter OT Extension from Small-Field Silent VOLE in
       the Minicrypt Model", CRYPTO 2022.

    Examples
    --------
    >>> from skprivbn.crypto.shares import OTBackend
    >>> OTBackend()
    OTBackend()
    """

    name = "ot"
    _parameter_constraints = {}

    def validate(self) -> None:
        """Raise ValueError unless the parameters make sense."""
        check_parameters(self)

    def make_counts(self, max_counts: float) -> Callable:
        """Return one party's function that shares up to `max_counts` counts."""
        return joint_counts

    def describe(self) -> str:
        """Return plain words for the ledger."""
        return (
            "counts are shared by oblivious transfer, at 128 bits less the log2 of "
            "the number of hash calls"
        )


class PaillierCounts(BaseEstimator):
    """What a ``PaillierBackend`` stands for where columns are counted.

    The scalar product of Wright and Yang [1]_, many columns to a ciphertext: slower
    than :class:`OTBackend`, but built on the one assumption behind Paillier's scheme.
    Families over three or more parties are counted by oblivious transfer all the same.

    Parameters
    ----------
    key_size : int, default=2048
        Bits of the modulus. 2048 gives about 112 bits of security, 3072 give 128.
    n_jobs : int, default=None
        Processes that encrypt; None means 1.
    insecure_test_key : bool, default=False
        Allow keys of less than 2048 bits, for tests.

    References
    ----------
    .. [1] R. Wright, Z. Yang, "Privacy-Preserving Bayesian Network Structure
       Computation on Distributed Heterogeneous Data", KDD 2004.

    Examples
    --------
    >>> from skprivbn.crypto import PaillierBackend
    >>> from skprivbn.crypto.shares import resolve_count_backend
    >>> resolve_count_backend(PaillierBackend(key_size=3072))
    PaillierCounts(key_size=3072)
    """

    name = "paillier"
    _parameter_constraints = {
        "key_size": [Interval(Integral, 256, 8192, closed="both")],
        "n_jobs": [Interval(Integral, -MAX_JOBS, MAX_JOBS, closed="both"), None],
        "insecure_test_key": ["boolean"],
    }

    def __init__(
        self,
        key_size: int = 2048,
        *,
        n_jobs: int | None = None,
        insecure_test_key: bool = False,
    ) -> None:
        self.key_size = key_size
        self.n_jobs = n_jobs
        self.insecure_test_key = insecure_test_key

    def validate(self) -> None:
        """Raise ValueError unless the key is long enough; warn of test keys."""
        check_parameters(self)
        if self.key_size >= 2048:
            return
        if not self.insecure_test_key:
            raise ValueError(
                f"key_size={self.key_size} can be broken: use 2048 bits or more, or "
                "insecure_test_key=True for data that are nobody's secret"
            )
        warn_leak(
            f"Paillier keys of {self.key_size} bits can be broken: for tests only"
        )

    def make_counts(self, max_counts: float) -> Callable:
        """Return one party's function that shares up to `max_counts` counts."""
        return PackedCounts(self.key_size, self.n_jobs, max_counts)

    def describe(self) -> str:
        """Return plain words for the ledger."""
        return (
            f"counts of two holders are shared under Paillier keys of {self.key_size} "
            "bits, one per party; masks hide them up to a total statistical distance "
            "of 2^-40"
        )


#: name -> class, as users give them
COUNT_BACKENDS = {backend.name: backend for backend in (OTBackend, PaillierBackend)}


def resolve_count_backend(backend, **parameters):
    """Return how two parties share counts, given a backend's name or an instance.

    Parameters
    ----------
    backend : {"ot", "paillier"}, OTBackend or PaillierBackend
    **parameters : dict
        Hyper-parameters to set.

    Returns
    -------
    backend : OTBackend or PaillierCounts
        A copy, checked.
    """
    if isinstance(backend, str) and backend in COUNT_BACKENDS:
        backend = COUNT_BACKENDS[backend]()
    if isinstance(backend, PaillierBackend):
        backend = PaillierCounts(**backend.get_params(deep=False))
    elif isinstance(backend, OTBackend):
        backend = clone(backend)
    else:
        raise ValueError(
            "backend must be 'ot', 'paillier', an OTBackend or a PaillierBackend, got "
            f"{backend!r}"
        )
    backend.set_params(**parameters)
    backend.validate()
    return backend
