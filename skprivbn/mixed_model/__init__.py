"""Mixed models: regressions with random effects of clusters, on rows of parties."""

# not from deeper: CPython 3.11 maps memory at thousands of calls in deep imports
import sklearn  # noqa: F401

from skprivbn.mixed_model._estimators import PrivateGLMMClassifier, PrivateGLMMRegressor
from skprivbn.mixed_model._summary import (
    GLMMSummary,
    LikelihoodRatioTest,
    VarianceComponents,
    likelihood_ratio_test,
)

__all__ = [
    "GLMMSummary",
    "LikelihoodRatioTest",
    "PrivateGLMMClassifier",
    "PrivateGLMMRegressor",
    "VarianceComponents",
    "likelihood_ratio_test",
]


def __getattr__(name):
    if name == "PrivateGLMM":
        raise ImportError("PrivateGLMM is now named PrivateGLMMClassifier")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
