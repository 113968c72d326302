"""Pending entries that nobody owns, in the files of a server: killed and started again, in every form, and read by Redis 8.6."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.files.real_files import RealRedis
from support.servers import Server, eventually, find_oracle
from support.wire import Reply, Wire

from streamd.persistence.rdb.read import restore_value
from streamd.values.streams.stream import Stream

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]

ALWAYS = {"appendonly": "yes", "appendfsync": "always", "save": ""}
FORMS = ["8.6", "8.8", "8.10"]


def fill(wire: Wire) -> None:
    """Given back are 4-0, 2-0 and 1-0, in this order; 2-0 has been deleted; 3-0 is alice's, 5-0 is new."""
    for number in range(1, 6):
        wire.call("XADD", "s", f"{number}-0", "f", number)
    wire.call("XGROUP", "CREATE", "s", "g", "0")
    wire.call("XREADGROUP", "GROUP", "g", "alice", "COUNT", 4, "STREAMS", "s", ">")
    assert wire.call("XNACK", "s", "g", "FATAL", "IDS", 1, "1-0").value == 1
    assert wire.call("XNACK", "s", "g", "SILENT", "IDS", 2, "4-0", "2-0").value == 2
    wire.call("XDEL", "s", "2-0")
    assert wire.call("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "1-0", "RETRYCOUNT", 3).value == 2


def rows(wire: Wire) -> list[Any]:
    """XPENDING without the idle time of those who have an owner."""
    found: list[Any] = wire.call("XPENDING", "s", "g", "-", "+", 10).plain()
    return [[entry, owner, idle if idle == -1 else "idle", count] for entry, owner, idle, count in found]


PENDING = [
    [b"1-0", b"", -1, 3],
    [b"2-0", b"", -1, 3],
    [b"3-0", b"alice", "idle", 1],
    [b"4-0", b"", -1, 0],
]


def handed_out(wire: Wire) -> list[bytes]:
    """The entries that a claiming reader gets, in order."""
    reply = wire.call("XREADGROUP", "GROUP", "g", "reader", "CLAIM", 1_000_000, "STREAMS", "s", ">").plain()
    return [entry[0] for entry in reply[0][1]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rewrite", ["not rewritten", "snapshot", "commands"])
def test_nothing_given_back_is_missing_after_a_kill(new_streamd: StartServer, form: str, rewrite: str) -> None:
    preamble = "yes" if rewrite == "snapshot" else "no"
    server = new_streamd(**ALWAYS, rdb_form=form, aof_use_rdb_preamble=preamble)
    with server.connect() as wire:
        fill(wire)
        if rewrite != "not rewritten":
            wire.call("BGREWRITEAOF")
            eventually(lambda: b"aof_rewrites:1" in wire.call("INFO").value and has_rewritten(wire))
        wire.call("XADD", "s", "6-0", "f", "6")
        wire.call("XNACK", "s", "g", "FAIL", "IDS", 1, "6-0", "FORCE")
    server.kill()
    server.restart()
    with server.connect() as wire:
        assert rows(wire) == [*PENDING, [b"6-0", b"", -1, 0]]
        assert wire.call("XINFO", "CONSUMERS", "s", "g").value[0].plain()[1] == b"alice"
        assert handed_out(wire) == [b"4-0", b"1-0", b"6-0", b"5-0", b"6-0"]


def has_rewritten(wire: Wire) -> bool:
    info = wire.call("INFO", "persistence").value
    return b"aof_rewrite_in_progress:0" in info and b"aof_rewrite_scheduled:0" in info


@pytest.mark.parametrize("form", [*FORMS, "7.2", "7.0"])
def test_a_snapshot_brings_back_what_was_given_back(new_streamd: StartServer, form: str) -> None:
    server = new_streamd(rdb_form=form)
    with server.connect() as wire:
        fill(wire)
        assert wire.call("SAVE") == Reply("+", b"OK")
    server.kill()
    server.restart()
    with server.connect() as wire:
        assert rows(wire) == PENDING
        assert handed_out(wire) == [b"4-0", b"1-0", b"5-0"]


def test_dump_keeps_to_the_form(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        fill(wire)
        for form, version, kind in (("8.10", 15, 27), ("8.8", 14, 27), ("8.6", 13, 26), ("7.0", 13, 26)):
            wire.call("CONFIG", "SET", "rdb-form", form)
            payload = wire.call("DUMP", "s").value
            assert (payload[0], payload[-10]) == (kind, version)
            found = restore_value(payload)
            assert isinstance(found, Stream)
            assert found.groups[b"g"].unowned() == [(4, 0), (2, 0), (1, 0)]
            assert wire.call("RESTORE", "s", 0, payload, "REPLACE") == Reply("+", b"OK")
            assert rows(wire) == PENDING
        assert wire.call("COPY", "s", "t").value == 1
        wire.call("DEL", "s")
        wire.call("RENAME", "t", "s")
        assert rows(wire) == PENDING
        assert handed_out(wire) == [b"4-0", b"1-0", b"5-0"]


def test_giving_back_is_a_change_of_the_key_for_eviction(new_streamd: StartServer) -> None:
    with new_streamd(maxmemory_policy="allkeys-lrm").connect() as wire:
        fill(wire)
        eventually(lambda: wire.call("OBJECT", "IDLETIME", "s").value >= 2)
        idle = ["OBJECT", "IDLETIME", "s"]
        # In one turn: nothing grows old in between.
        replies = wire.pipeline(
            [["XNACK", "s", "g", "FAIL", "IDS", 1, each] if each else idle for each in ("9-9", "", "1-0", "")]
        )
        assert [reply.value for reply in (replies[0], replies[2])] == [0, 1]
        assert replies[1].value >= 2 > replies[3].value


# --- Read by Redis 8.6 ---------------------------------------------------------------------------------------------------


@pytest.mark.real(since="8.6")
@pytest.mark.parametrize("files", ["snapshot", "increments", "base of commands", "base"])
def test_redis_8_6_reads_what_was_given_back(new_streamd: StartServer, tmp_path: Path, files: str) -> None:
    oracle = find_oracle()
    assert oracle is not None
    has_log = files != "snapshot"
    preamble = "no" if files == "base of commands" else "yes"
    server = new_streamd(
        dir=str(tmp_path), save="", appendonly="yes" if has_log else "no", aof_use_rdb_preamble=preamble
    )
    with server.connect() as wire:
        fill(wire)
        if files == "snapshot":
            wire.call("SAVE")
        elif files != "increments":
            wire.call("BGREWRITEAOF")
            eventually(lambda: b"aof_rewrites:1" in wire.call("INFO").value and has_rewritten(wire))
    server.stop()
    directives = {"appendonly": "yes" if has_log else "no", "save": "", "aof-use-rdb-preamble": preamble}
    with RealRedis(oracle, tmp_path, **directives) as redis:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            found = wire.call("XPENDING", "s", "g", "-", "+", 10).plain()
            owners = [(entry, owner, count) for entry, owner, _, count in found]
            # A claim of a deleted entry drops it there.
            gone = [] if files == "increments" else [(b"2-0", b"", 3)]
            assert owners == [(b"1-0", b"", 3), *gone, (b"3-0", b"alice", 1), (b"4-0", b"", 0)]
            assert all(idle > 10**12 for _, owner, idle, _ in found if owner == b"")
            if files == "snapshot":
                wire.call("SAVE")
            else:
                assert handed_out(wire) == [b"4-0", b"1-0", b"5-0"]
    if files == "snapshot":  # Redis writes that consumer as it was
        server.restart()
        with server.connect() as wire:
            assert rows(wire) == PENDING
            assert handed_out(wire) == [b"4-0", b"1-0", b"5-0"]
