"""What the forms of a stream in files depend on: the version of the RDB format, and the settings of new streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamd.persistence.rdb import codes

if TYPE_CHECKING:
    from streamd.core.context import Context

__all__ = ["BUILT_IN_IDMP", "RDB_TYPES", "has_xnack", "idmp_defaults", "rdb_type_of"]

RDB_TYPES = (codes.TYPE_STREAM, codes.TYPE_STREAM_2, codes.TYPE_STREAM_3, codes.TYPE_STREAM_4, codes.TYPE_STREAM_5)
"""Type bytes of streams, each adding to the one before: since Redis 5.0, 7.0, 7.2, 8.6, 8.8."""

BUILT_IN_IDMP = (100, 100)
"""Duration and maxsize of idempotency that streams have when no setting says otherwise."""


_TYPES_BEFORE_14 = {13: codes.TYPE_STREAM_4, 11: codes.TYPE_STREAM_3, 10: codes.TYPE_STREAM_2}


def rdb_type_of(version: int) -> int:
    """The type byte in RDB streams of a version that is written, see FORMS; determines what can be stored."""
    return codes.TYPE_STREAM_5 if version >= 14 else _TYPES_BEFORE_14[version]


def has_xnack(version: int) -> bool:
    """Whether the releases of Redis that write this version support XNACK and unowned pending entries."""
    return rdb_type_of(version) >= codes.TYPE_STREAM_5


def idmp_defaults(context: Context | None) -> tuple[int, int]:
    """Duration and maxsize of idempotency that a new stream gets."""
    return BUILT_IN_IDMP if context is None else (context.stream_idmp_duration, context.stream_idmp_maxsize)
