"""Names of keys, groups and consumers as text: as options, offsets, partitions, records and the column `stream` have them."""

from __future__ import annotations

__all__ = ["stream_key", "stream_name"]


def stream_key(name: str) -> bytes:
    """A name as it goes over the wire."""
    return name.encode("utf-8", "surrogateescape")


def stream_name(key: bytes) -> str:
    """The name; bytes that are not UTF-8 survive as lone surrogates."""
    return key.decode("utf-8", "surrogateescape")
