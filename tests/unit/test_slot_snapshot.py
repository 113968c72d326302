"""The snapshot of slots: the requests of which it consists recreate every key, in pieces of any number."""

from __future__ import annotations

import importlib

from support.commands.handler import make_context, run

from streamd.cluster.migration.slot_snapshot import write_slots
from streamd.keyspace.hash_slot import SLOTS, slot_of
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.protocol.request import RequestParser
from streamd.values import VALUE_TYPES

KEYS = 300
EXPIRES_MS = 4_102_444_800_000


class Sink:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)


def read_requests(data: bytes) -> list[list[bytes]]:
    parser = RequestParser(authenticated=True, max_bulk_len=1 << 30)
    parser.feed(data)
    return [*iter(parser.next_request, None)]


def test_the_requests_recreate_every_key() -> None:
    for family in (each for kind in VALUE_TYPES for each in kind.families):
        importlib.import_module(family)
    ctx = make_context()
    ctx.db.keep_by_slot()
    for number in range(KEYS):
        run(ctx, "SET", f"string{number}", "v" * number * 10)
        run(ctx, "HSET", f"hash{number}", "field", number)  # small enough to be kept closed
        run(ctx, "XADD", f"stream{number}", "1-1", "field", number)
        if number % 3 == 0:
            ctx.db.set_expiry(b"string%d" % number, EXPIRES_MS)
    sink, progress = Sink(), list[int]()
    write_slots(sink, ctx.db, range(SLOTS // 2), WriteOptions(), [], progress.append)
    requests = read_requests(b"".join(sink.pieces))
    assert requests[0] == [b"SELECT", b"0"]
    assert requests[-1] == [b"CLUSTER", b"SYNCSLOTS", b"SNAPSHOT-EOF"]
    assert len(sink.pieces) > 2
    wanted = {key: dump_value(ctx.db.peek(key)) for key in list(ctx.db.keys()) if slot_of(key) < SLOTS // 2}
    found = {words[1]: dump_value(restore_value(words[3])) for words in requests if words[0] == b"RESTORE"}
    assert found == wanted
    assert progress[-1] == len(wanted)
    times = {words[1]: int(words[2]) for words in requests if words[0] == b"RESTORE"}
    assert times == {key: max(0, ctx.db.expiry(key)) for key in wanted}
    assert all(words[4] == b"ABSTTL" for words in requests if words[0] == b"RESTORE")


def test_each_slot_is_announced_with_its_keys_and_how_many_of_them_expire() -> None:
    ctx = make_context()
    ctx.db.keep_by_slot()
    for name in (b"{a}1", b"{a}2", b"b"):
        ctx.db.add(name, b"v")
    ctx.db.set_expiry(b"{a}2", EXPIRES_MS)
    sink = Sink()
    write_slots(sink, ctx.db, range(SLOTS), WriteOptions(), [], lambda keys: None)
    announced = [words[4] for words in read_requests(b"".join(sink.pieces)) if words[2:4] == [b"CONF", b"SLOT-INFO"]]
    assert announced == [b"%d:1:0" % slot_of(b"b"), b"%d:2:1" % slot_of(b"a")]
