"""Every public estimator of the package, found rather than listed."""

import inspect
from importlib import import_module

from sklearn.base import BaseEstimator
from sklearn.naive_bayes import GaussianNB

from skprivbn.crypto import AdditiveBackend

FAMILIES = [
    "bayesian_network",
    "graphical_model",
    "mixed_model",
    "mixture",
    "preprocessing",
    "privacy",
    "structure",
]

#: constructor arguments without which an estimator cannot be made or is too slow
ARGUMENTS = {
    # scikit-learn's checks use weights of a few units
    "DPCGMLearner": lambda: {"contribution": {"max_weight": 100}},
    "PrivateSearchCV": lambda: {
        # learns from folds of one class, too: which rows are in which is secret
        "estimator": GaussianNB(),
        # one candidate: the choice between several is random
        "param_grid": {"var_smoothing": [1e-9]},
        "score_bounds": (-5.0, 0.0),
    },
}

#: scikit-learn's checks that an estimator cannot pass, each with its reason
EXPECTED_FAILURES = {
    name: {
        "check_estimators_nan_inf": "predict completes entries that are NaN",
        "check_methods_sample_order_invariance": "predict_proba returns a list",
        "check_methods_subset_invariance": "predict_proba returns a list",
    }
    for name in (
        "CollectiveBayesianNetwork",
        "FederatedBayesianNetwork",
        "K2StructureLearner",
        "PrivateK2StructureLearner",
    )
}

EXPECTED_FAILURES["DPCGMLearner"] = {
    "check_all_zero_sample_weights_error": "that all weights are zero is private",
    "check_sample_weight_equivalence_on_dense_data": "tables are noisy",
}

EXPECTED_FAILURES["PrivateGLMMClassifier"] = {
    "check_sample_weight_equivalence_on_dense_data": "its classes are separable",
}

EXPECTED_FAILURES["PrivateGLMMRegressor"] = {
    "check_sample_weight_equivalence_on_dense_data": "it has more features than rows",
}

for name in ("FederatedOneHotEncoder", "FederatedOrdinalEncoder"):
    EXPECTED_FAILURES[name] = {
        "check_estimators_pickle": "a gap has no code: transform refuses it",
    }

EXPECTED_FAILURES["FederatedDynotears"] = {
    "check_methods_sample_order_invariance": "predicts a row from the rows before it",
    "check_methods_subset_invariance": "predicts a row from the rows before it",
}


def public_estimators():
    """Return one instance of every public estimator."""
    classes = {}
    for family in FAMILIES:
        module = import_module(f"skprivbn.{family}")
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            if (
                inspect.isclass(found)
                and issubclass(found, BaseEstimator)
                and not issubclass(found, AdditiveBackend)
                and not inspect.isabstract(found)
            ):
                classes[name] = found
    return [
        found(**ARGUMENTS.get(name, dict)()) for name, found in sorted(classes.items())
    ]


def expected_failures(estimator):
    """Return the checks that this estimator may fail, with reasons."""
    return EXPECTED_FAILURES.get(type(estimator).__name__, {})
