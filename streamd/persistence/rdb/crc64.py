"""The checksum of RDB files and DUMP payloads: CRC-64 with the Jones polynomial, bits reflected, nothing inverted."""

from __future__ import annotations

from collections.abc import Callable

import anycrc

__all__ = ["crc64"]

crc64: Callable[..., int] = anycrc.CRC(
    width=64, poly=0xAD93D23594C935A9, init=0, refin=True, refout=True, xorout=0, check=0xE9C6D914C4B8D9CA
).calc
"""crc64(data, crc=0): the checksum of `data` appended to the bytes that gave `crc`."""
