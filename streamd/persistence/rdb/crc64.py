"""The checksum of RDB files and DUMP payloads: CRC-64 with the Jones polynomial, bits reflected, nothing inverted."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["crc64"]


def crc64(data: Any, crc: int = 0) -> int:
    """The checksum of a bytes-like object, appended to the bytes that gave `crc`."""
    return calculator()(data, crc)


@cache
def calculator() -> Callable[[Any, int], int]:
    """Made with the first checksum: the library takes time and memory, and many a server never needs it."""
    import anycrc

    calculate: Callable[[Any, int], int] = anycrc.CRC(
        width=64, poly=0xAD93D23594C935A9, init=0, refin=True, refout=True, xorout=0, check=0xE9C6D914C4B8D9CA
    ).calc
    return calculate
