"""Settings of a learner that belong together: ``clique_params`` and the like."""

from collections.abc import Mapping
from numbers import Integral, Real
from types import SimpleNamespace

from skprivbn.utils._sklearn import Interval, StrOptions, fill_params

_COUNT = [Interval(Integral, 1, None, closed="left")]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]

_CLIQUES = {
    "stationary": ["boolean"],
    "structural_zeros": [Mapping, None],
    "workload": [list, tuple, Mapping, None],
    "max_model_cells": _COUNT,
}
_CONTRIBUTION = {
    "kind": [StrOptions({"normalize", "clip"}), None],
    "max_records": _COUNT,
    "max_weight": _COUNT,
    "null_state": "no_validation",
}
_INFERENCE = {
    "inference": [StrOptions({"auto", "exact", "loopy", "nlbp"})],
    "max_cells": _COUNT,
}
_METHODS = {
    "auto": {"max_iter": _COUNT},
    "cgm": {
        "max_iter": _COUNT,
        "discrepancy": _NOT_NEGATIVE,
        "tol": _NOT_NEGATIVE,
        "damping": [Interval(Real, 0, 1, closed="left"), None],
    },
    "naive": {
        "max_iter": _COUNT,
        "regularization": _POSITIVE,
        "projection": ["boolean"],
    },
    "psgd": {
        "sampling_rate": [Interval(Real, 0, 1, closed="right")],
        "n_steps": _COUNT,
        "clip": [*_POSITIVE, None],
        "learning_rate": _POSITIVE,
    },
}


def settings_of(learner):
    """Return what ``clique_params``, ``method_params`` and ``contribution`` say.

    Parameters
    ----------
    learner : DPCGMLearner

    Returns
    -------
    settings : SimpleNamespace
        With the default of whatever is not given.
    """
    contribution, method = learner.contribution, learner.method
    if contribution is None or isinstance(contribution, str):
        contribution = {"kind": contribution}
    return SimpleNamespace(
        **fill_params(
            "clique_params",
            learner.clique_params,
            _CLIQUES,
            stationary=False,
            structural_zeros=None,
            workload=None,
            max_model_cells=2**19,
        ),
        **fill_params(
            "contribution",
            contribution,
            _CONTRIBUTION,
            kind=None,
            max_records=1,
            max_weight=1,
            null_state=None,
        ),
        **fill_params(
            f"method_params, with method={method!r},",
            learner.method_params,
            _INFERENCE | _METHODS[method],
            inference="auto",
            max_cells=2**22,
            max_iter=2000,
            regularization=1e-4,
            discrepancy=0.7,
            tol=1e-6,
            damping=None,
            projection=True,
            sampling_rate=0.02,
            n_steps=200,
            clip=None,
            learning_rate=0.4,
        ),
    )
