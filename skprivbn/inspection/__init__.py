"""Pictures of networks, of what parties sent, and of what privacy costs."""

from skprivbn.inspection._dag_display import DAGDisplay

__all__ = ["DAGDisplay"]
