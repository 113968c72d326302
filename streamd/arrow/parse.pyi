import pyarrow as pa

def parse_lines(
    data: bytes | bytearray | memoryview,
    id_name: bytes | None,
    stream_name: bytes | None,
    fields_name: bytes | None,
    first: int = 0,
) -> tuple[pa.BinaryArray, pa.BinaryArray, pa.ListArray, int]:
    """IDs, streams and fields of the entries in whole lines, an object each, and the number of lines; empty ones are skipped.

    id_name, stream_name  members that are no fields; null where a line has none
    fields_name           a member that is the whole entry, if it is an object or a list; without it all others are fields
    first                 lines before these
    Raises ValueError with the number of the line.
    """

def parse_fields(cells: pa.Array, first: int = 0) -> pa.ListArray:
    """The fields in each cell, an object or a list of pairs; none in an empty or null one.

    first  rows before these
    Raises ValueError with the number of the row.
    """
