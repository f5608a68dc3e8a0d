"""Data and networks to learn from, and generators of both.

Loaders of networks return :class:`~skprivbn.bayesian_network.BayesianNetwork`;
loaders of tables a :class:`~sklearn.utils.Bunch`; ``make_*`` functions simulate
and ``split_*`` functions say which party holds what.
"""

from skprivbn.datasets._discrete import (
    make_discrete_bayesian_network,
    make_markov_random_field,
    make_wifi_sessions,
)
from skprivbn.datasets._loaders import (
    load_adult,
    load_alarm,
    load_asia,
    load_child,
    load_insurance,
    load_msnbc,
    load_parkinsons,
    load_sachs,
)
from skprivbn.datasets._partitioned import (
    make_partitioned_blobs,
    split_horizontal,
    split_vertical,
)
from skprivbn.datasets._sem import make_linear_sem, make_mlp_sem, make_var_sem

__all__ = [
    "load_adult",
    "load_alarm",
    "load_asia",
    "load_child",
    "load_insurance",
    "load_msnbc",
    "load_parkinsons",
    "load_sachs",
    "make_discrete_bayesian_network",
    "make_linear_sem",
    "make_markov_random_field",
    "make_mlp_sem",
    "make_partitioned_blobs",
    "make_var_sem",
    "make_wifi_sessions",
    "split_horizontal",
    "split_vertical",
]
