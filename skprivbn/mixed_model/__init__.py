"""Mixed models: rows share random effects, and several parties hold the rows."""

from skprivbn.mixed_model._glmm import PrivateGLMM
from skprivbn.mixed_model._summary import GLMMSummary

__all__ = ["GLMMSummary", "PrivateGLMM"]
