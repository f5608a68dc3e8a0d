"""Mixed models: rows share random effects, and several parties hold the rows."""

from skprivbn.mixed_model._classifier import PrivateGLMM, PrivateGLMMClassifier
from skprivbn.mixed_model._regressor import PrivateGLMMRegressor
from skprivbn.mixed_model._summary import (
    GLMMSummary,
    LikelihoodRatioTest,
    VarianceComponents,
    likelihood_ratio_test,
)

__all__ = [
    "GLMMSummary",
    "LikelihoodRatioTest",
    "PrivateGLMM",
    "PrivateGLMMClassifier",
    "PrivateGLMMRegressor",
    "VarianceComponents",
    "likelihood_ratio_test",
]
