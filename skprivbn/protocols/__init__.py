"""Conversations that several families share: moments of rows, columns of one table."""

from skprivbn.protocols._moments import (
    Moments,
    MomentsParty,
    collect_moments,
    moments_settings,
)

__all__ = ["Moments", "MomentsParty", "collect_moments", "moments_settings"]
