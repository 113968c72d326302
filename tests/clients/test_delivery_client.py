"""Rules set and read by programs, with each kind of client of redis-py."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio
from support.servers import Server, eventually, python_environment

from streamd.delivery import Retain, group, stream
from streamd.delivery.client.group_rules import GROUP_OPTIONS
from streamd.delivery.client.stream_rules import RETAIN_OPTIONS, STREAM_OPTIONS
from streamd.delivery.rule_options import Flag, options_of
from streamd.delivery.rules import GroupRule, StreamRule
from streamd.embedded import EmbeddedCluster

Ask = Callable[[Any], Any]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """What a method returns, awaited if it must be."""
    with asyncio.Runner() as runner:

        async def awaited(value: Any) -> Any:
            return await value

        yield lambda value: runner.run(awaited(value)) if inspect.isawaitable(value) else value


@pytest.fixture(params=["threads", "asyncio", "threads, cluster", "asyncio, cluster"])
def client(request: pytest.FixtureRequest, streamd_server: Server, ask: Ask) -> Iterator[Any]:
    kind, _, place = request.param.partition(", ")
    module: Any = redis.asyncio if kind == "asyncio" else redis
    if place:
        cluster: EmbeddedCluster = request.getfixturevalue("streamd_cluster")
        found = module.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, decode_responses=True)
    else:
        found = module.Redis(port=streamd_server.port, decode_responses=True)
        ask(found.flushall())
    yield found
    ask(found.aclose() if kind == "asyncio" else found.close())


def test_the_rules_of_a_group(client: Any, ask: Ask) -> None:
    rules = group(client, "{jobs}", "workers")
    assert ask(rules.get()) == {}
    assert ask(rules.set(max_deliveries=5, dead_letter="{jobs}:dead", backoff=1.5, factor=2)) is True
    assert ask(rules.set(max_backoff=timedelta(minutes=2), jitter=20, ack_wait=60)) is True
    shown = {
        "dead_letter": "{jobs}:dead", "max_deliveries": 5, "ack_wait": 60.0, "backoff": 1.5, "factor": 2.0,
        "max_backoff": 120.0, "jitter": 20,
    }  # fmt: skip
    assert ask(rules.get()) == shown
    assert ask(rules.set(**ask(rules.get())))
    assert ask(rules.get()) == shown
    assert ask(rules.unset("ack_wait", "jitter", "factor", "max_backoff"))
    assert ask(rules.get()) == {"dead_letter": "{jobs}:dead", "max_deliveries": 5, "backoff": 1.5}
    with pytest.raises(redis.ResponseError, match="MAXDELIVERIES must be an integer"):
        ask(rules.set(max_deliveries=0))
    with pytest.raises(ValueError, match="There is no option 'back_off'; the options are dead_letter, "):
        rules.unset("back_off")
    assert ask(rules.unset())
    assert ask(rules.get()) == {}
    more = {"keyed": "account", "held": 5, "isolate": 2, "max_pending": 9, "consumer_pending": 3, "consumer_ttl": 60.0}
    assert ask(rules.set(**more))
    assert ask(rules.get()) == more


def test_the_rules_of_a_stream(client: Any, ask: Ask) -> None:
    rules = stream(client, "{jobs}:later")
    retain = Retain(length=100, acked=True, at_most=timedelta(days=7))
    assert ask(rules.set(feeds="{jobs}", due="due", unique="user", retain=retain))
    shown = {"feeds": "{jobs}", "due": "due", "unique": "user"}
    assert ask(rules.get()) == shown | {"retain": Retain(length=100, acked=True, at_most=604800.0)}
    assert ask(rules.set(retain=Retain(age=0.5, delete_references=True)))
    assert ask(rules.get()) == shown | {"retain": Retain(age=0.5, delete_references=True)}
    assert ask(rules.unset("retain", "unique"))
    assert ask(rules.get()) == {"feeds": "{jobs}", "due": "due"}
    ask(client.xadd("{jobs}:later", {"due": int(time.time() * 1000) + 3_600_000, "job": "x"}))
    ask(client.xadd("{jobs}:later", {"due": 0, "job": "y"}))
    eventually(lambda: ask(rules.count()) == 1)
    assert ask(stream(client, "{jobs}").count("-", "+")) == 1
    assert ask(rules.get())["moved"] >= 1
    with pytest.raises(redis.ResponseError, match="leads back"):
        ask(stream(client, "{jobs}").set(feeds="{jobs}:later", due="due"))
    assert ask(rules.unset())
    assert "feeds" not in ask(rules.get())


def test_dead_letters_are_counted_and_given_back(client: Any, ask: Ask) -> None:
    rules = group(client, "{jobs}", "workers")
    with pytest.raises(redis.ResponseError, match="no such key"):
        ask(rules.lag())
    ids = [ask(client.xadd("{jobs}", {"n": number})) for number in range(4)]
    ask(client.xgroup_create("{jobs}", "workers", id="0"))
    ask(rules.set(dead_letter="{jobs}:dead"))
    ask(client.xreadgroup("workers", "w", {"{jobs}": ">"}, count=3))
    ask(client.xnack("{jobs}", "workers", "FATAL", *ids[:2]))
    lag = ask(rules.lag())
    assert (lag["undelivered"], lag["pending"], lag["held_back"]) == (1, 1, 0)
    assert lag["dead_lettered"] >= 2
    assert 0 <= lag["lag_s"] <= lag["oldest_pending_s"] < 1000
    ask(client.xdel("{jobs}", ids[0]))
    dead = [entry_id for entry_id, _ in ask(client.xrange("{jobs}:dead"))]
    assert ask(rules.redrive("{jobs}:dead", ids=[dead[1]])) == 1
    assert ask(rules.redrive("{jobs}:dead", count=10)) == 0
    assert ask(rules.redrive("{jobs}:dead", to="{jobs}", count=10)) == 1
    assert ask(client.xlen("{jobs}:dead")) == 0
    assert ask(client.xpending("{jobs}", "workers"))["pending"] == 2


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_as_bytes(protocol: int, streamd_server: Server) -> None:
    with redis.Redis(port=streamd_server.port, protocol=protocol) as client:
        client.flushall()
        assert group(client, b"jobs", b"workers").set(dead_letter=b"dead", factor=1.5, backoff=0.001)
        assert group(client, "jobs", "workers").get() == {"dead_letter": b"dead", "backoff": 0.001, "factor": 1.5}
        assert stream(client, "jobs").set(expires="until")
        assert stream(client, "jobs").get() == {"expires": b"until"}
        client.xgroup_create("jobs", "workers", mkstream=True)
        assert group(client, "jobs", "workers").lag()["lag_s"] == 0.0


@pytest.mark.real
def test_a_redis_refuses_them(redis_server: Server) -> None:
    with redis.Redis(port=redis_server.port) as client, pytest.raises(redis.ResponseError, match="unknown command"):
        group(client, "jobs", "workers").set(max_deliveries=1, dead_letter="dead")


def test_there_is_a_name_for_every_option() -> None:
    own = {option.name.encode(): option for _, option in options_of(GroupRule).values()}
    assert {word.encode() for word, *_ in GROUP_OPTIONS.values()} == set(own)
    in_streams = {option.name: option for _, option in options_of(StreamRule).values()}
    named = {word: write for word, write, _ in (*STREAM_OPTIONS.values(), *RETAIN_OPTIONS.values())}
    assert set(named) == set(in_streams)
    for word, write in named.items():
        assert (write is bool) == isinstance(in_streams[word].kind, Flag)


def test_neither_the_server_nor_redis_py_is_imported() -> None:
    program = "import sys, streamd.delivery\nprint(*sorted(name for name in sys.modules if name.startswith(('streamd', 'redis'))))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=python_environment(), capture_output=True, text=True, check=True
    )
    inside = ("", ".group_rules", ".rule_values", ".stream_rules")
    assert done.stdout.split() == [
        "streamd",
        "streamd.delivery",
        *(f"streamd.delivery.client{each}" for each in inside),
    ]
