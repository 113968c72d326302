"""The forms of a hash in RDB streams: type bytes, in the order in which releases of Redis introduced them."""

from __future__ import annotations

from streamd.persistence.rdb import codes

__all__ = ["RDB_TYPES"]

RDB_TYPES = (
    codes.TYPE_HASH,
    codes.TYPE_HASH_ZIPMAP,
    codes.TYPE_HASH_ZIPLIST,
    codes.TYPE_HASH_LISTPACK,
    codes.TYPE_HASH_TTL_PRERELEASE,
    codes.TYPE_HASH_LISTPACK_TTL_PRERELEASE,
    codes.TYPE_HASH_TTL,
    codes.TYPE_HASH_LISTPACK_TTL,
)
"""All are read; written are listpacks (16, 25) and tables (4, 24)."""
