"""`advance`: the time of an embedded server is set forward, and what is due then has happened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from support.servers import eventually

import streamd.embedded
from streamd.embedded import EmbeddedServer
from streamd.errors import StreamdError

HOUR_S = 3600


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    with streamd.embedded.start(own_process=request.param, appendonly=True) as started:
        yield started


class Waiting(threading.Thread):
    """A command that blocks, in a thread of its own; `reply` is its reply."""

    def __init__(self, server: EmbeddedServer, *words: object) -> None:
        super().__init__(daemon=True)
        self._client = server.client(decode_responses=True)
        self._words = words
        self.reply: Any = None
        self.start()
        watcher = server.client(decode_responses=True)
        eventually(lambda: watcher.info("clients")["blocked_clients"] > 0)

    def run(self) -> None:
        self.reply = self._client.execute_command(*self._words)

    def get(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self.reply


def test_keys_fields_and_the_clock_itself(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    before_s = client.time()[0]
    client.set("k", "v", ex=HOUR_S - 1)
    client.hset("h", mapping={"a": 1, "b": 2})
    client.hpexpire("h", 1000 * HOUR_S - 1000, "a")
    client.xadd("s", {"f": 1})
    server.advance(timedelta(hours=1))
    assert (client.exists("k"), client.hgetall("h")) == (0, {"b": "2"})
    assert client.info("stats")["expired_keys"] == 1, "it went by itself"
    assert HOUR_S <= client.time()[0] - before_s < HOUR_S + 300
    id = client.xadd("s", {"f": 2})
    assert abs(int(id.split("-")[0]) / 1000 - client.time()[0]) < 300
    assert client.execute_command("OBJECT", "IDLETIME", "h") < 300
    client.set("x", 1)
    server.advance(HOUR_S)
    assert client.execute_command("OBJECT", "IDLETIME", "x") >= HOUR_S
    assert client.eval("return redis.call('TIME')[1]", 0) >= str(before_s + 2 * HOUR_S)
    with pytest.raises(StreamdError, match="does not go back"):
        server.advance(-1)


def test_time_stays_where_it_is_after_a_restart(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    before_s = client.time()[0]
    server.advance(HOUR_S)
    client.set("k", "v", ex=60)
    server.restart()
    client = server.client(decode_responses=True)
    assert client.time()[0] - before_s >= HOUR_S
    assert 0 < client.ttl("k") <= 60
    server.advance(60)
    assert client.exists("k") == 0


def test_pending_entries_back_off_and_dead_letters(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    client.execute_command(
        *[
            "STREAMD.GROUP",
            "SET",
            "jobs",
            "g",
            "MAXDELIVERIES",
            "2",
            "DEADLETTER",
            "dead",
            "BACKOFF",
            "60000",
            "ACKWAIT",
            "300000",
        ]
    )
    client.xadd("jobs", {"f": 1}, "1-1")
    client.xgroup_create("jobs", "g", "0")
    client.xreadgroup("g", "c", {"jobs": ">"})
    server.advance(59)
    assert client.xautoclaim("jobs", "g", "d", 0)[1] == []
    server.advance(2)
    assert client.xpending_range("jobs", "g", "-", "+", 9)[0]["time_since_delivered"] >= 61_000
    assert client.xautoclaim("jobs", "g", "d", 0)[1] == [("1-1", {"f": "1"})]
    server.advance(301)
    assert [fields["dlq.reason"] for _, fields in client.xrange("dead")] == ["max-deliveries"]


def test_delays_expiry_and_retention(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    now_ms = client.time()[0] * 1000
    client.execute_command(*["STREAMD.STREAM", "SET", "later", "FEEDS", "jobs", "DUE", "due"])
    client.execute_command(*["STREAMD.STREAM", "SET", "s", "EXPIRES", "until"])
    client.execute_command(*["STREAMD.STREAM", "SET", "log", "RETAIN", "AGE", "3600000"])
    for hours in (3, 1, 2):
        client.xadd("later", {"due": now_ms + 1000 * HOUR_S * hours, "job": hours})
    client.xadd("s", {"until": now_ms + 1000 * HOUR_S})
    client.xadd("log", {"f": 1})
    server.advance(HOUR_S + 1)
    assert [fields for _, fields in client.xrange("jobs")] == [{"job": "1"}]
    assert (client.xlen("s"), client.xlen("log")) == (0, 0)
    server.advance(HOUR_S * 2)
    assert [fields["job"] for _, fields in client.xrange("jobs")] == ["1", "2", "3"]


def test_clients_that_wait(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    reader = Waiting(server, "XREAD", "BLOCK", 1000 * HOUR_S, "STREAMS", "s", "$")
    server.advance(HOUR_S - 10)
    assert reader.is_alive()
    server.advance(11)
    assert not reader.get()
    # What comes to be due is served first.
    client.execute_command(*["STREAMD.STREAM", "SET", "later", "FEEDS", "s", "DUE", "due"])
    client.xadd("later", {"due": client.time()[0] * 1000 + 60_000, "job": 1})
    reader = Waiting(server, "XREAD", "BLOCK", 1000 * 120, "STREAMS", "s", "$")
    server.advance(HOUR_S)
    assert "'job'" in repr(reader.get())
    client.xgroup_create("s", "g", "0")
    client.xreadgroup("g", "c", {"s": ">"})
    claimer = Waiting(
        server, *["XREADGROUP", "GROUP", "g", "d", "BLOCK", "120000", "CLAIM", "60000", "STREAMS", "s", ">"]
    )
    server.advance(59)
    assert claimer.is_alive()
    server.advance(HOUR_S)
    assert "'job'" in repr(claimer.get())


def test_a_server_that_runs_elsewhere_is_advanced_by_debug() -> None:
    with streamd.embedded.start(enable_debug_command="yes") as server:
        client = server.client(decode_responses=True)
        client.set("k", "v", ex=HOUR_S)
        assert client.execute_command("DEBUG", "ADVANCE-TIME", "3600.5")
        assert client.exists("k") == 0
        for wrong in ("-1", "x", "1e3", "10000000000"):
            with pytest.raises(redis.ResponseError, match="seconds must be a number"):
                client.execute_command("DEBUG", "ADVANCE-TIME", wrong)


def test_all_nodes_of_a_cluster() -> None:
    with streamd.embedded.start_cluster(nodes=3) as cluster:
        client = cluster.client(decode_responses=True)
        for number in range(10):
            client.set(f"k:{number}", "v", ex=HOUR_S)
        cluster.advance(HOUR_S)
        assert [client.exists(f"k:{number}") for number in range(10)] == [0] * 10
        cluster.wait_until_ok()
