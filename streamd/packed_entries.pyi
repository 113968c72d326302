from typing import final

@final
class PackedEntries:
    """`count` entries; Raises ValueError when index and data do not fit together."""

    index: bytes
    data: bytes | memoryview
    count: int

    def __new__(cls, index: bytes | memoryview = b"", data: bytes | memoryview = b"") -> PackedEntries: ...
    def id_at(self, at: int) -> int:
        """The ID of an entry, as a number: `ms << 64 | seq`."""

    def size(self, start: int, stop: int) -> int:
        """The bytes of some of them."""
