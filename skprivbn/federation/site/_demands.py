"""How much memory a coordinator can make a site use, at most.

Parameters of a session and of models come from the coordinator. Some of them say how
many numbers a party keeps beside each of its rows, or how large a table it makes. The
limits on these do not depend on the data, so that a refusal tells nothing about them.
"""

from math import prod
from numbers import Real

from skprivbn.federation._party import PartyRefusal

__all__ = ["MAX_NUMBERS", "MAX_PER_ROW", "check_demands", "check_size"]

#: numbers that parameters may make a party keep beside each of its rows
MAX_PER_ROW = 1 << 12
#: numbers of one table, matrix or list of parameters, whatever the rows are
MAX_NUMBERS = 1 << 24

#: numbers beside a row and numbers in all, for a parameter and so many features
_COSTS = {
    "batch_size": lambda n, d: (n, 0),
    "n_burn_in": lambda n, d: (n, 0),
    "n_components": lambda n, d: (n, n * d * d),
    "n_draws": lambda n, d: (n, 0),
    "n_free": lambda n, d: (0, n),
    "n_hidden": lambda n, d: (n * d, n * d * d),
    "n_lags": lambda n, d: (n * d, (n * d) ** 2),
    "n_maps": lambda n, d: (n * d, n * d * d),
    "n_quadrature": lambda n, d: (n, 0),
    "n_states": lambda n, d: (n, 0),
    "n_variables": lambda n, d: (n, n * n),
}
#: what the numbers in public models stand for
_MODEL_SIZES = {
    "CollectiveBayesianNetwork": lambda m: {"n_states": _n_labels(m)},
    "DPCGMLearner": lambda m: {"n_states": _n_labels(m)},
    "FederatedDynotears": lambda m: {"n_lags": len(m["past"])},
    "FederatedNotearsADMM": lambda m: {"n_hidden": m.get("n_hidden", 0)},
    "PPEMGaussianMixture": lambda m: {"n_components": len(m["weights"])},
    "PrivateK2StructureLearner": lambda m: {"n_states": _n_labels(m)},
}


def check_demands(settings, models, n_features):
    """Refuse parameters that would take more memory than any site gives.

    Parameters
    ----------
    settings : dict
        Of a session; parameters count wherever they are nested in it.
    models : list of dict
        Public models that the session applies.
    n_features : int
        Columns of the rows that they are about.
    """
    for model in models:
        sizes = _MODEL_SIZES.get(model["estimator"])
        if sizes is not None:
            _check_parameters(sizes(model["fitted"]), n_features)
    _check_parameters(settings, n_features)
    if "cliques" in settings:
        n_cliques = len(settings["cliques"])
        check_size(_n_cells(settings["cliques"], settings["states"]))
        # tables are numbered; a number that none has would leave room for many
        if not all(0 <= table < n_cliques for table in settings["ties"]):
            raise PartyRefusal("too-large")


def check_size(n_numbers, most=MAX_NUMBERS):
    """Refuse so many numbers, if they are too many or not a number.

    Parameters
    ----------
    n_numbers : int
    most : int, default=MAX_NUMBERS
    """
    if not n_numbers <= most:
        raise PartyRefusal("too-large")


def _check_parameters(parameters, n_features):
    for name, value in parameters.items():
        if isinstance(value, dict):
            _check_parameters(value, n_features)
        elif name in _COSTS and isinstance(value, Real):
            per_row, in_all = _COSTS[name](value, n_features)
            check_size(per_row, max(MAX_PER_ROW, n_features))
            check_size(in_all, max(MAX_NUMBERS, n_features**2))


def _n_labels(model):
    return sum(len(labels) for labels in model["states"])


def _n_cells(cliques, states):
    sizes = [len(labels) for labels in states]
    return sum(prod(sizes[i] for i in clique) for clique in cliques)
