"""Digests of bytes, as hexadecimal text; and digests of data, 20 bytes, as DEBUG DIGEST makes them.

Their libraries are imported when the first digest is made: many a server never needs one, and OpenSSL's alone take half a megabyte.
"""

from __future__ import annotations

__all__ = ["add", "chain", "sha1_hex", "sha256_hex", "xxh3_hex"]


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


def _sha1(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha1(data, usedforsecurity=False).digest()


def add(digest: bytes, data: bytes) -> bytes:
    """Mix in `data`, regardless of order."""
    return bytes(a ^ b for a, b in zip(digest, _sha1(data), strict=True))


def chain(digest: bytes, data: bytes) -> bytes:
    """Mix in `data`, after everything mixed in before."""
    return _sha1(add(digest, data))
