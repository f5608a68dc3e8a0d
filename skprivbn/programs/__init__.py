"""Programs that several families share: moments, quantiles, what is applied to rows."""

from skprivbn.programs._applied import (
    KeptTerms,
    ModelTerms,
    keep_predictions,
    score_rows,
)
from skprivbn.programs._moments import Moments, MomentsTerms, moments
from skprivbn.programs._quantiles import QuantileTerms, quantiles

__all__ = [
    "KeptTerms",
    "ModelTerms",
    "Moments",
    "MomentsTerms",
    "QuantileTerms",
    "keep_predictions",
    "moments",
    "quantiles",
    "score_rows",
]
