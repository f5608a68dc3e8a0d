"""Plots of networks, messages and privacy costs, and reports of fits."""

from skprivbn.inspection._charts import (
    ExpectedErrorDisplay,
    LedgerDisplay,
    PrivacyUtilityDisplay,
)
from skprivbn.inspection._dag_display import DAGDisplay
from skprivbn.inspection._message_diagram import message_diagram
from skprivbn.inspection._models import (
    MixtureDisplay,
    RandomEffectsDisplay,
    ResidualsDisplay,
)
from skprivbn.inspection._privacy_report import privacy_report

__all__ = [
    "DAGDisplay",
    "ExpectedErrorDisplay",
    "LedgerDisplay",
    "MixtureDisplay",
    "PrivacyUtilityDisplay",
    "RandomEffectsDisplay",
    "ResidualsDisplay",
    "message_diagram",
    "privacy_report",
]
