"""Computing on data that two or more parties do not show each other.

Secure against parties that follow the protocol; receivers of transfers that do not are
caught; not audited. From bottom to top: base oblivious transfers
(Chou-Orlandi), their extension (SoftSpokenOT), products that end as shares, counts of
joint configurations, lookups in public tables, logarithms by a series, garbled circuits
(half-gates) and shared bits (Goldreich-Micali-Wigderson), the argmax. Protocols are
generators that yield ``{peer: payload}`` and are sent ``{peer: payload}``.
"""

from skprivbn.crypto.shares._argmax import SharedArgmax
from skprivbn.crypto.shares._backends import (
    COUNT_BACKENDS,
    OTBackend,
    resolve_count_backend,
)
from skprivbn.crypto.shares._conversation import (
    Conversation,
    run_together,
    together,
)
from skprivbn.crypto.shares._counts import (
    Indicators,
    JointTable,
    SharedNumbers,
    joint_counts,
    joint_sums,
)
from skprivbn.crypto.shares._gmw import (
    add_noise,
    open_circuit,
    open_noisy_numbers,
    open_numbers,
    refresh_numbers,
)
from skprivbn.crypto.shares._hash import bit_length_dtype
from skprivbn.crypto.shares._logarithms import shared_stirling
from skprivbn.crypto.shares._lookup import SharedLookup, shared_lookup
from skprivbn.crypto.shares._ot_extension import branch_links, open_links

__all__ = [
    "COUNT_BACKENDS",
    "Conversation",
    "Indicators",
    "JointTable",
    "OTBackend",
    "SharedArgmax",
    "SharedLookup",
    "SharedNumbers",
    "add_noise",
    "bit_length_dtype",
    "branch_links",
    "joint_counts",
    "joint_sums",
    "open_circuit",
    "open_links",
    "open_noisy_numbers",
    "open_numbers",
    "refresh_numbers",
    "resolve_count_backend",
    "run_together",
    "shared_lookup",
    "shared_stirling",
    "together",
]
