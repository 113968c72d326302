from typing import Any, final

from streamd.arrow.entry_table import TableLayout

@final
class RowCaster:
    """Lossless rows as rows of a user's table; see the head of recast.pyx."""

    def __new__(cls, table: TableLayout, stream: bytes) -> RowCaster: ...
    def cast(self, ids: Any, fields: Any) -> Any:
        """The rows with these IDs (a StringArray) and fields (a ListArray of structs of field and value) as a RecordBatch.

        It has fewer rows in mode DROPMALFORMED. Raises MalformedError in mode FAILFAST.
        """
