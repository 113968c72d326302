"""Keys of streams as names: text, as options, offsets, partitions and the column `stream` have them."""

from __future__ import annotations

__all__ = ["stream_key", "stream_name"]


def stream_key(name: str) -> bytes:
    """The key by its name."""
    return name.encode("utf-8", "surrogateescape")


def stream_name(key: bytes) -> str:
    """The name of a key; bytes that are no UTF-8 survive as lone surrogates."""
    return key.decode("utf-8", "surrogateescape")
