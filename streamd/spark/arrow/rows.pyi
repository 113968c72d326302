from typing import Any, final

from streamd.spark.arrow.entry_table import TableLayout

__all__ = ["RowBuilder"]

@final
class RowBuilder:
    """Entries as rows; see the head of rows.pyx. Entries are added by compiled modules only."""

    def __new__(cls, table: TableLayout, stream: bytes) -> RowBuilder:
        """
        stream  the key that the column `stream` has
        """
    @property
    def rows(self) -> int:
        """Rows that `take` would return."""
    def take(self) -> Any:
        """The rows so far as a pyarrow.RecordBatch, which may be empty; the builder starts again without any."""
    def check_invariants(self) -> None: ...
