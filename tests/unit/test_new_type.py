"""What a new type of value takes: one file (tests/support/commands/toy_type.py) and its registration, which is a line of streamd/values.

In a process of its own, since commands and types are declared for a whole process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

TESTS = Path(__file__).parents[1]
TEXT = "x" * 200


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.01)


def check_values(client: Any) -> None:
    """In memory: type, encoding, expiry, copies, DUMP, memory, digests, INFO."""
    ask = client.execute_command
    assert ask("STREAMD.PUT", "bag", "a", "b") == 2
    assert ask("STREAMD.PUT", "bag", TEXT) == 3
    assert (ask("TYPE", "bag"), ask("OBJECT", "ENCODING", "bag")) == (b"bag", b"large")
    assert ask("SCAN", 0, "TYPE", "bag") == (0, [b"bag"])
    assert ask("PEXPIREAT", "bag", 4_000_000_000_000) == 1
    assert ask("COPY", "bag", "twin") == 1
    assert (ask("PEXPIRETIME", "twin"), ask("DEBUG", "DIGEST-VALUE", "twin")) == (
        4_000_000_000_000, ask("DEBUG", "DIGEST-VALUE", "bag"),
    )  # fmt: skip
    ask("RENAME", "twin", "own")
    assert ask("STREAMD.TAKE", "own", 0) == b"a"
    assert ask("DEBUG", "DIGEST-VALUE", "own") != ask("DEBUG", "DIGEST-VALUE", "bag")
    assert ask("RESTORE", "again", 0, ask("DUMP", "bag"), "ABSTTL") == b"OK"
    ask("PEXPIREAT", "again", 4_000_000_000_000)
    assert ask("DEBUG", "DIGEST-VALUE", "again") == ask("DEBUG", "DIGEST-VALUE", "bag")
    assert ask("MEMORY", "USAGE", "bag") - ask("MEMORY", "USAGE", "own") == 49
    assert b"encoding:large" in ask("DEBUG", "OBJECT", "bag")
    assert client.info("keysizes")["db0_distrib_bags_items"] == {"2": 3}
    for wrong in (("XADD", "bag", "*", "f", "v"), ("GET", "bag"), ("INCR", "bag")):
        with pytest.raises(redis.ResponseError, match="wrong kind of value"):
            ask(*wrong)
    assert ask("UNLINK", "again", "own") == 2


def check_waiting(server: Any, client: Any) -> None:
    """Those who wait for a bag are served one by one, in order; a value of another type wakes nobody."""
    takers = [server.client() for _ in range(3)]
    connections = []
    for number, taker in enumerate(takers):
        connection = taker.connection_pool.get_connection()
        connection.send_command("STREAMD.TAKE", "queue", 0)
        connections.append(connection)
        eventually(lambda n=number: client.info("clients")["blocked_clients"] == n + 1, "a client waits")  # type: ignore[misc]
    client.xadd("queue", {"f": "v"})
    assert client.info("clients")["blocked_clients"] == 3
    client.delete("queue")
    client.execute_command("STREAMD.PUT", "queue", "one", "two")
    assert [connection.read_response() for connection in connections[:2]] == [b"one", b"two"]
    assert client.info("clients")["blocked_clients"] == 1
    assert client.exists("queue") == 0
    client.execute_command("STREAMD.PUT", "queue", "three")
    assert connections[2].read_response() == b"three"
    for connection in connections:
        connection.disconnect()


def check_eviction(client: Any) -> None:
    """Bags are counted, and make room."""
    before = client.info("memory")["used_memory"]
    for number in range(100):
        client.execute_command("STREAMD.PUT", f"full:{number}", "y" * 10_000)
    assert client.info("memory")["used_memory"] - before >= 1_000_000
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", before + 300_000)
    client.execute_command("STREAMD.PUT", "full:last", "z")
    assert 0 < len(client.keys("full:*")) < 60
    client.config_set("maxmemory", 0)
    client.delete(*client.keys("full:*"))


def check(folder: str) -> None:
    from support.commands.toy_type import BagType

    import streamd.embedded
    import streamd.values
    from streamd.keyspace.value_type import register

    register(BagType())
    common = {"enable_debug_command": True, "dir": folder}
    with streamd.embedded.start(**common) as server:
        client = server.client()
        check_eviction(client)
        check_values(client)
        check_waiting(server, client)
        with streamd.embedded.start(enable_debug_command=True, replicaof=f"127.0.0.1 {server.port}") as replica:
            copy = replica.client()
            eventually(lambda: copy.info("replication")["master_link_status"] == "up", "the replica is in sync")
            client.execute_command("STREAMD.PUT", "bag", "later")
            eventually(
                lambda: copy.execute_command("DEBUG", "DIGEST") == client.execute_command("DEBUG", "DIGEST"),
                "the same data",
            )
            assert copy.execute_command("OBJECT", "ENCODING", "bag") == b"large"
        digest = client.execute_command("DEBUG", "DIGEST")
        client.save()
    for form in ("yes", "no"):
        # A snapshot, then an append-only file that begins with one, then one that begins with commands.
        with streamd.embedded.start(**common, aof_use_rdb_preamble=form, aof_timestamp_enabled=False) as server:
            client = server.client()
            assert client.execute_command("DEBUG", "DIGEST") == digest
            client.config_set("appendonly", "yes")
            eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, "the first rewrite")  # noqa: B023
            client.bgrewriteaof()
            eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, "the rewrite")  # noqa: B023
            client.execute_command("STREAMD.PUT", "bag", form)
            digest = client.execute_command("DEBUG", "DIGEST")
        with streamd.embedded.start(**common, appendonly=True) as server:
            client = server.client()
            assert client.execute_command("DEBUG", "DIGEST") == digest
            client.save()
    print("all of it")


def test_a_type_is_one_file_and_one_line(tmp_path: Path) -> None:
    code = f"from unit import test_new_type; test_new_type.check({str(tmp_path)!r})"
    paths = [str(TESTS), str(TESTS.parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all of it\n")


def test_no_other_file_names_it() -> None:
    package = TESTS.parent / "streamd"
    named = [path for path in package.rglob("*.py*") if path.suffix != ".pyc" and b"STREAMD.TAKE" in path.read_bytes()]
    assert named == []
