from typing import Any, final

from streamd.arrow.entry_table import TableLayout

@final
class EntryDecoder:
    """Bytes of XRANGE replies in, record batches out; see the head of decode.pyx."""

    def __new__(cls, table: TableLayout | None, stream: bytes, *, every: int = 0) -> EntryDecoder:
        """
        table  None: entries are counted only
        every  note the first ID, and each ID so many entries on, in `marks`; 0: none
        """
    def space(self) -> memoryview:
        """Room to receive into. Dead after the next call of `space`, `advance` or `reset`."""
    def advance(self, received: int) -> bool:
        """Take in so many bytes of `space`; return whether the reply is complete.

        Raises ServerError when the reply is an error, ProtocolError when it is none, MalformedError in mode FAILFAST.
        """
    def take(self) -> Any:
        """The rows so far as a pyarrow.RecordBatch, which may be empty; they are the decoder's no longer."""
    def reset(self) -> None:
        """Forget a reply that has not come whole; its complete entries stay."""

    @property
    def rows(self) -> int:
        """Rows that `take` would return."""
    @property
    def row_bytes(self) -> int:
        """Bytes of replies that those rows came from, about."""
    @property
    def reply_entries(self) -> int:
        """Entries of the current reply, or of the last one, as far as they have come."""
    @property
    def total_entries(self) -> int: ...
    @property
    def total_bytes(self) -> int:
        """Bytes of all entries so far, as replies on the wire."""
    @property
    def last_id(self) -> int:
        """ID of the last entry as a 128-bit number; -1 before the first."""
    @property
    def first_id(self) -> int:
        """ID of the first entry of all; -1 before it."""
    @property
    def marks(self) -> list[int]:
        """IDs of the entries 0, every, 2*every ..."""
    @property
    def mark_bytes(self) -> list[int]:
        """For each mark, `total_bytes` before its entry."""
    def check_invariants(self) -> None: ...
