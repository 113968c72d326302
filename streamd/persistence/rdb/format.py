"""What the writer and the reader of RDB must agree on: the forms of the releases, options, names of types.

The numbers of opcodes and types are in `codes`.

    file      REDIS 0013 | aux fields | per database: SELECTDB, RESIZEDB, keys | EOF | checksum, 8 bytes little endian
    key       [EXPIRETIME_MS] [IDLE] type, key, value
    length    00nnnnnn | 01nnnnnn n | 80 nnnn | 81 nnnnnnnn             big endian
    string    length, bytes | c0 c1 c2: an integer of 1, 2, 4 bytes, little endian | c3 length length LZF
    payload   type, value | version, 2 bytes | checksum, 8 bytes          of DUMP and RESTORE; little endian

The stream's own layout is drawn in write.pyx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from streamd.engine.idempotency import IdempotencyRegistry
from streamd.persistence.rdb import codes

__all__ = [
    "DEFAULT_FORM",
    "FORMS",
    "NEWEST_VERSION",
    "STREAM_TYPES",
    "TYPE_NAMES",
    "UNKNOWN_LAYOUTS",
    "Form",
    "LoadOptions",
    "Losses",
    "WriteOptions",
    "lossless_form",
]

NEWEST_VERSION = 15
"""Format versions: the highest that is written, and the highest that is read."""

# --- Types -----------------------------------------------------------------------------------------------------------

STREAM_TYPES = (codes.TYPE_STREAM, codes.TYPE_STREAM_2, codes.TYPE_STREAM_3, codes.TYPE_STREAM_4, codes.TYPE_STREAM_5)
"""Types of streams, each adding to the one before: since Redis 5.0, 7.0, 7.2, 8.6, 8.8."""

_NAMES = {
    "STRING": "string", "LIST": "list", "SET": "set", "SORTED_SET": "sorted set", "HASH": "hash", "STREAM": "stream",
    "MODULE": "module value", "ARRAY": "array",
}  # fmt: skip
"""What values are called, by the first words of their types' names."""


def _name_of(type_name: str) -> str:
    words = type_name.removeprefix("TYPE_")
    return next(name for start, name in _NAMES.items() if words.startswith(start))


TYPE_NAMES = {number: _name_of(name) for name, number in vars(codes).items() if name.startswith("TYPE_")}
"""What the type bytes of a file stand for."""

UNKNOWN_LAYOUTS = frozenset(
    {
        codes.TYPE_MODULE_PRERELEASE,
        codes.TYPE_ARRAY,
        codes.TYPE_HASH_TEMPLATE,
        codes.TYPE_HASH_TEMPLATE_2,
        codes.TYPE_HASH_TEMPLATE_3,
        codes.TYPE_HASH_TEMPLATE_4,
    }
)
"""Types whose values cannot be skipped: module values of a pre-release; arrays, hashes with templates of 8.8, 8.10."""

# --- Forms -----------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """What files of a Redis release look like.

    version      of the format, as stored in the header
    stream_type  the type byte of streams; determines what can be stored of them
    """

    version: int
    stream_type: int

    @property
    def has_xnack(self) -> bool:
        """Whether that release supports XNACK and unowned pending entries."""
        return self.stream_type >= codes.TYPE_STREAM_5


FORMS = {
    "8.10": Form(15, codes.TYPE_STREAM_5),
    "8.8": Form(14, codes.TYPE_STREAM_5),
    "8.6": Form(13, codes.TYPE_STREAM_4),
    "7.2": Form(11, codes.TYPE_STREAM_3),
    "7.0": Form(10, codes.TYPE_STREAM_2),
}  # fmt: skip
"""The forms that can be written, keyed by the first release that can read them."""

DEFAULT_FORM = "8.6"
"""The oldest form that keeps everything."""


def lossless_form(form: str) -> str:
    """The form for what must not lose anything, such as the base of an append-only file, when snapshots have `form`."""
    return form if FORMS[form].stream_type >= FORMS[DEFAULT_FORM].stream_type else DEFAULT_FORM


class Losses(dict[str, int]):
    """What a form could not hold: how many streams lost each thing.

    Keys are `idempotent producers`, `idempotency settings`, `active times of consumers`.
    """

    def describe(self, form: str) -> list[str]:
        """A line for the log for each thing."""
        return [
            f"The snapshot's form, Redis {form}, has no room for {what}: left out of {streams} stream(s)"
            for what, streams in self.items()
        ]


# --- Options ---------------------------------------------------------------------------------------------------------


class WriteOptions(NamedTuple):
    """How an RDB stream is written.

    form          which release's form, a key of FORMS
    compression   compress strings (`rdbcompression`)
    checksum      write the checksum (`rdbchecksum`); otherwise zero, which readers take as `none`
    access_times  write how long each key has not been used, as Redis does with an LRU policy of `maxmemory-policy`
    access_counts write how often each key is used, as Redis does with an LFU policy
    aux           further auxiliary fields behind redis-ver, redis-bits, ctime and used-mem, in order; Redis's names are
                  repl-stream-db, repl-id, repl-offset, aof-base
    default_idmp  (duration, maxsize) of idempotency that a stream has unless set otherwise: omitting them is not a loss
    """

    form: str = DEFAULT_FORM
    compression: bool = True
    checksum: bool = True
    access_times: bool = False
    access_counts: bool = False
    aux: Mapping[str, str | int] = MappingProxyType({})
    default_idmp: tuple[int, int] = (100, 100)


def _ignore(*_: object) -> None:
    pass


class LoadOptions(NamedTuple):
    """How an RDB stream is read.

    checksum             verify the checksum (`rdbchecksum`)
    drop_expired         omit keys that have expired at `now_ms`: for a primary that loads a snapshot of its own, not
                         for the base of an AOF and not for a replica
    now_ms               Unix time; idle times are counted back from it, too
    skip_unsupported     leave out values of types that streamd does not support, instead of refusing the file
    database_count       of a check that keeps nothing: refuse what a load into so many databases would refuse; 0: read all
    node_max_bytes ...   settings for the streams that are created
    registry             where streams with idempotent producers are registered; None: a new one
    log                  called for each key that is omitted, and of module data, which always is
    dropped              called with database and key for each that is omitted because it has expired
    """

    checksum: bool = True
    drop_expired: bool = True
    now_ms: int = 0
    skip_unsupported: bool = False
    database_count: int = 0
    node_max_bytes: int = 4096
    node_max_entries: int = 100
    idmp_duration: int = 100
    idmp_maxsize: int = 100
    registry: IdempotencyRegistry | None = None
    log: Callable[[str], None] = _ignore
    dropped: Callable[[int, bytes], object] = _ignore
