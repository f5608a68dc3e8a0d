"""Conversations that several families share: moments of rows, columns of one table."""

from skprivbn.protocols._models import ModelParty, ModelTerms
from skprivbn.protocols._moments import (
    Moments,
    MomentsParty,
    MomentsTerms,
    collect_moments,
)

__all__ = [
    "ModelParty",
    "ModelTerms",
    "Moments",
    "MomentsParty",
    "MomentsTerms",
    "collect_moments",
]
