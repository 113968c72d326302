"""The snapshot of slots that a node hands over: commands that recreate their keys, written by a forked child.

    FUNCTION RESTORE payload REPLACE                          if there are libraries
    SELECT 0
    CLUSTER SYNCSLOTS CONF SLOT-INFO <slot>:<keys>:<expires>  each slot that has keys
    RESTORE key <Unix time in ms, 0: none> payload ABSTTL     each key of it, neither compressed nor with a checksum, as by Redis
    CLUSTER SYNCSLOTS SNAPSHOT-EOF

Every value is sent as a payload, whatever its size: the commands by which Redis sends large streams lose pending entries whose
entry has been deleted, and the times of consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.write import RdbWriter, dump_libraries
from streamd.protocol.request_bytes import encode_request

__all__ = ["write_slots"]

PIECE = 16 * 1024
"""Bytes that are passed on at a time."""


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def write_slots(
    sink: Sink,
    db: Database,
    slots: Iterable[int],
    options: WriteOptions,
    libraries: list[bytes],
    progress: Callable[[int], object],
) -> None:
    """Write the keys of slots, and the libraries of functions. O(bytes).

    progress  called with the number of keys written so far, often
    Exceptions of the sink propagate. Expired keys are written, too, with their time.
    """
    held: list[bytes] = []
    size = keys = 0
    writer = RdbWriter(None, options._replace(compression=False, checksum=False))

    def put(data: bytes) -> None:
        nonlocal size
        held.append(data)
        size += len(data)
        if size >= PIECE:
            hand_on()

    def hand_on() -> None:
        nonlocal size
        sink.write(b"".join(held))
        held.clear()
        size = 0

    if libraries:
        put(encode_request("FUNCTION", "RESTORE", dump_libraries(libraries, options), "REPLACE"))
    put(encode_request("SELECT", 0))
    for slot in slots:
        names = db.keys_in_slot(slot, len(db))
        if not names:
            continue
        expires = sum(db.expiry(name) >= 0 for name in names)
        put(encode_request("CLUSTER", "SYNCSLOTS", "CONF", "SLOT-INFO", f"{slot}:{len(names)}:{expires}"))
        for name in names:
            expire_at_ms = max(0, db.expiry(name))
            put(encode_request("RESTORE", name, expire_at_ms, writer.payload(db.peek(name)), "ABSTTL"))
            keys += 1
            progress(keys)
    put(encode_request("CLUSTER", "SYNCSLOTS", "SNAPSHOT-EOF"))
    hand_on()
