"""Digests of bytes, as hexadecimal text.

Their libraries are imported when the first digest is made: many a server never needs one, and OpenSSL's alone take half a megabyte.
"""

from __future__ import annotations

__all__ = ["sha1_hex", "sha256_hex", "xxh3_hex"]


def sha1_hex(data: bytes) -> bytes:
    """SHA-1, which names scripts: 40 digits."""
    import hashlib

    return hashlib.sha1(data, usedforsecurity=False).hexdigest().encode()


def sha256_hex(data: bytes) -> bytes:
    """SHA-256, by which passwords are kept: 64 digits."""
    import hashlib

    return hashlib.sha256(data).hexdigest().encode()


def xxh3_hex(data: bytes) -> bytes:
    """XXH3 of 64 bits, by which clients compare strings without sending them: 16 digits."""
    import xxhash

    return xxhash.xxh3_64_hexdigest(data).encode()
