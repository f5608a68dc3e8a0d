"""Pictures of networks, of what parties sent, and of what privacy costs."""

from skprivbn.inspection._audit_display import AuditDisplay
from skprivbn.inspection._curves import ConvergenceDisplay, PrivacyUtilityDisplay
from skprivbn.inspection._dag_display import DAGDisplay
from skprivbn.inspection._ledger_display import LedgerDisplay
from skprivbn.inspection._message_diagram import message_diagram
from skprivbn.inspection._mixed_model import RandomEffectsDisplay, ResidualsDisplay
from skprivbn.inspection._mixture import MixtureDisplay
from skprivbn.inspection._privacy_report import privacy_report
from skprivbn.inspection._table_errors import ExpectedErrorDisplay

__all__ = [
    "AuditDisplay",
    "ConvergenceDisplay",
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
