"""Settings of a learner that belong together: ``clique_params`` and the like."""

from collections.abc import Mapping
from numbers import Integral, Real
from types import SimpleNamespace

from skprivbn.utils._sklearn import Interval, StrOptions, settings_in

_COUNT = [Interval(Integral, 1, None, closed="left")]
_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]

# of each setting, constraints and default
_CLIQUES: dict = {
    "stationary": (["boolean"], False),
    "structural_zeros": ([Mapping, None], None),
    "workload": ([list, tuple, Mapping, None], None),
    "max_model_cells": (_COUNT, 2**19),
}
_CONTRIBUTION: dict = {
    "kind": ([StrOptions({"normalize", "clip"}), None], None),
    "max_records": (_COUNT, 1),
    "max_weight": (_COUNT, 1),
    "null_state": ("no_validation", None),
}
_INFERENCE: dict = {
    "inference": ([StrOptions({"auto", "exact", "loopy", "nlbp"})], "auto"),
    "max_cells": (_COUNT, 2**22),
}
_MAX_ITER: dict = {"max_iter": (_COUNT, 2000)}
_METHODS: dict = {
    "auto": _MAX_ITER,
    "cgm": {
        **_MAX_ITER,
        "discrepancy": (_NOT_NEGATIVE, 0.7),
        "tol": (_NOT_NEGATIVE, 1e-6),
        "damping": ([Interval(Real, 0, 1, closed="left"), None], None),
    },
    "naive": {
        **_MAX_ITER,
        "regularization": (_POSITIVE, 1e-4),
        "projection": (["boolean"], True),
    },
    "psgd": {
        "sampling_rate": ([Interval(Real, 0, 1, closed="right")], 0.02),
        "n_steps": (_COUNT, 200),
        "clip": ([*_POSITIVE, None], None),
        "learning_rate": (_POSITIVE, 0.4),
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
    words = f"method_params, with method={method!r},"
    # exact tables are learnt from in one way, whatever the method
    return SimpleNamespace(
        **settings_in("clique_params", learner.clique_params, _CLIQUES),
        **settings_in("contribution", contribution, _CONTRIBUTION),
        **settings_in(words, None, _METHODS["naive"])
        | settings_in(words, learner.method_params, _INFERENCE | _METHODS[method]),
    )
