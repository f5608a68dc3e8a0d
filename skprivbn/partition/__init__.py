"""Who holds what: rows or columns of several parties."""

from skprivbn.federation._describe import ColumnSummary, Summary, TableSummary
from skprivbn.federation._remote import RemoteColumns, RemoteResults, RemoteRows
from skprivbn.federation._rows import RowSource
from skprivbn.partition._base import is_partition
from skprivbn.partition._horizontal import HorizontalPartition, check_horizontal
from skprivbn.partition._vertical import VerticalPartition, check_vertical

__all__ = [
    "ColumnSummary",
    "HorizontalPartition",
    "RemoteColumns",
    "RemoteResults",
    "RemoteRows",
    "RowSource",
    "Summary",
    "TableSummary",
    "VerticalPartition",
    "check_horizontal",
    "check_vertical",
    "is_partition",
]
