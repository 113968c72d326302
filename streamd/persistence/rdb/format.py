"""What the writer and the reader of RDB must agree on: the forms of the releases, options, names of types.

The numbers of opcodes and types are in `codes`.

    file      REDIS 0013 | aux fields | per database: SELECTDB, RESIZEDB, keys | EOF | checksum, 8 bytes little endian
    key       [EXPIRETIME_MS] [IDLE] type, key, value
    length    00nnnnnn | 01nnnnnn n | 80 nnnn | 81 nnnnnnnn             big endian
    string    length, bytes | c0 c1 c2: an integer of 1, 2, 4 bytes, little endian | c3 length length LZF
    payload   type, value | version, 2 bytes | checksum, 8 bytes          of DUMP and RESTORE; little endian

How values are laid out is the business of their types (ValueType.save).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streamd.persistence.rdb import codes

if TYPE_CHECKING:
    from streamd.core.context import Context

__all__ = [
    "DEFAULT_FORM",
    "FORMS",
    "NEWEST_VERSION",
    "TYPE_NAMES",
    "Form",
    "LoadOptions",
    "Losses",
    "WriteOptions",
    "lossless_form",
]

NEWEST_VERSION = 15
"""Format versions: the highest that is written, and the highest that is read."""

# --- Types -----------------------------------------------------------------------------------------------------------

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

# --- Forms -----------------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """What files of a Redis release look like.

    version      of the format, as stored in the header; determines the type bytes of values (ValueType.rdb_type)
    """

    version: int


FORMS = {
    "8.10": Form(15), "8.8": Form(14), "8.6": Form(13), "7.2": Form(11), "7.0": Form(10),
}  # fmt: skip
"""The forms that can be written, keyed by the first release that can read them."""

DEFAULT_FORM = "8.6"
"""The oldest form that keeps everything."""


def lossless_form(form: str) -> str:
    """The form for what must not lose anything, such as the base of an append-only file, when snapshots have `form`."""
    return form if FORMS[form].version >= FORMS[DEFAULT_FORM].version else DEFAULT_FORM


class Losses(dict[str, int]):
    """What a form could not hold: how many values lost each thing, by what it is called in the log."""

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
    context       the server's: the settings of new values, which need not be kept; None: those that are built in
    """

    form: str = DEFAULT_FORM
    compression: bool = True
    checksum: bool = True
    access_times: bool = False
    access_counts: bool = False
    aux: Mapping[str, str | int] = MappingProxyType({})
    context: Context | None = None


def _ignore(*_: object) -> None:
    pass


class LoadOptions(NamedTuple):
    """How an RDB stream is read.

    checksum             verify the checksum (`rdbchecksum`)
    drop_expired         omit keys that have expired at `now_ms`: for a primary that loads a snapshot of its own, not
                         for the base of an AOF and not for a replica
    now_ms               Unix time; idle times are counted back from it, too
    skip_unsupported     leave out values of modules, instead of refusing the file
    database_count       of a check that keeps nothing: refuse what a load into so many databases would refuse; 0: read all
    context              the server's: the settings of the values that are created, and where they are registered; None:
                         the built-in ones, and nowhere
    is_apart             register values only when the reader is told that they are the server's data (`take_over`)
    log                  called for each key that is omitted, and of module data, which always is
    dropped              called with database and key for each that is omitted because it has expired
    """

    checksum: bool = True
    drop_expired: bool = True
    now_ms: int = 0
    skip_unsupported: bool = False
    database_count: int = 0
    context: Context | None = None
    is_apart: bool = False
    log: Callable[[str], None] = _ignore
    dropped: Callable[[int, bytes], object] = _ignore
