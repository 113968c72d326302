"""`stream-rule` and `group-rule`: rules in the configuration, which hold where no command has set any."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import eventually

import streamd.embedded
from streamd.delivery.defaults import Defaults, Line
from streamd.delivery.rule_options import parse_changes
from streamd.delivery.rules import GroupRule, StreamRule, key_of_rules
from streamd.embedded import EmbeddedServer
from streamd.errors import ConfigError
from streamd.settings.config import Config, Reader
from streamd.settings.declarations import by_name


def configured(text: str) -> Config:
    config = Config()
    Reader(config).read(text.encode())
    return config


def line(*patterns: bytes, rule: str) -> Any:
    kind: Any = StreamRule if len(patterns) == 1 else GroupRule
    return Line(patterns, kind(**parse_changes(kind, rule.encode().split())))


# --- Lines ---------------------------------------------------------------------------------------------------------------


TEXT = """\
stream-rule "a b*" RETAIN AGE 5000
stream-rule later:* feeds {%s}:due DUE at
group-rule jobs:* * MAXDELIVERIES 5 DEADLETTER "%s dead"
group-rule jobs:x w
"""


def test_lines_add_up_and_survive_every_way_through_the_configuration() -> None:
    config = configured(TEXT)
    stream_text = '"a b*" RETAIN AGE 5000\nlater:* FEEDS {%s}:due DUE at'
    group_text = 'jobs:* * DEADLETTER "%s dead" MAXDELIVERIES 5\njobs:x w'
    assert config.get(["stream-rule"]) == {"stream-rule": stream_text}
    assert config.get(["group-rule"]) == {"group-rule": group_text}
    again = Config()
    again.set([("stream-rule", stream_text), ("group-rule", group_text)])
    assert (again.stream_rule, again.group_rule) == (config.stream_rule, config.group_rule)
    rewritten = config.rewritten("stream-rule x RETAIN LENGTH 1\n")
    assert rewritten.startswith('stream-rule "a b*" RETAIN AGE 5000\n')
    assert configured(rewritten).stream_rule == config.stream_rule
    embedded = Config.for_embedding({"stream_rule": stream_text, "group_rule": group_text.split("\n")})
    assert (embedded.stream_rule, embedded.group_rule) == (config.stream_rule, config.group_rule)
    again.set([("stream-rule", "")])
    assert again.stream_rule == ()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--group-rule", "jobs:*", "*", "DEADLETTER", "dead", "--stream-rule", "a b", "RETAIN", "LENGTH", "5"],
        ["--group-rule", "jobs:* * DEADLETTER dead", "--stream-rule", '"a b" RETAIN LENGTH 5'],
    ],
)
def test_the_command_line_has_lines_too(arguments: list[str]) -> None:
    config = Config.from_arguments(arguments, io.BytesIO())
    assert config.text(by_name["group-rule"]) == "jobs:* * DEADLETTER dead"
    assert config.text(by_name["stream-rule"]) == '"a b" RETAIN LENGTH 5'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stream-rule jobs:* RETAIN", "RETAIN needs LENGTH, BYTES, AGE or ACKED"),
        ("stream-rule jobs:* MAXDELIVERIES 5", "unknown option 'MAXDELIVERIES'"),
        ("group-rule jobs:* * MAXDELIVERIES 5", "MAXDELIVERIES needs DEADLETTER"),
        ("group-rule jobs:* * BACKOFF x", "BACKOFF must be an integer between 1 and 9007199254740992"),
        ("group-rule jobs:* * DEADLETTER %s", "DEADLETTER must not be the stream itself"),
        ("group-rule jobs:*", "a line begins with the pattern of a stream and the pattern of a group"),
        ('stream-rule "" RETAIN LENGTH 5', "a line begins with the pattern of a stream"),
    ],
)
def test_a_bad_line_is_refused_with_the_option_and_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        configured(text)
    assert caught.value.reason == reason
    assert caught.value.line == (1, text)
    name, _, value = text.partition(" ")
    config = configured(TEXT)
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        config.set([(name, f"ok* {'x ' * name.startswith('group')}\n{value}")])
    assert caught.value.reason == reason
    assert config.stream_rule == configured(TEXT).stream_rule
    assert config.group_rule == configured(TEXT).group_rule


def test_the_last_line_that_matches_applies_as_a_whole() -> None:
    defaults = Defaults(
        [line(b"*", rule="RETAIN LENGTH 9"), line(b"a*", rule="EXPIRES until"), line(b"ab", rule="")],
        [line(b"*", b"*", rule="DEADLETTER dead MAXDELIVERIES 3"), line(b"jobs", b"w*", rule="MAXPENDING 1")],
    )
    assert defaults.stream_rule(b"x").length == 9
    assert defaults.stream_rule(b"a") == StreamRule(expires=b"until")
    assert defaults.stream_rule(b"ab") == StreamRule()
    assert defaults.group_rule(b"jobs", b"workers") == GroupRule(max_pending=1)
    assert defaults.group_rule(b"jobs", b"x") == GroupRule(b"dead", 3)


def test_a_line_does_not_apply_where_entries_would_come_back() -> None:
    defaults = Defaults(
        [line(b"a", rule="FEEDS b DUE due"), line(b"b", rule="FEEDS a DUE due"), line(b"c", rule="FEEDS a DUE due")],
        [
            line(b"*", b"*", rule="DEADLETTER {%s}:dead"),
            line(b"x", b"*", rule="DEADLETTER y"),
            line(b"y", b"g", rule="DEADLETTER x"),
        ],
    )
    assert defaults.stream_rule(b"a") == defaults.stream_rule(b"b") == StreamRule()
    assert defaults.stream_rule(b"c").feeds == b"a"
    assert defaults.group_rule(b"jobs", b"g") == GroupRule(b"{jobs}:dead")
    assert defaults.group_rule(b"{jobs}:dead", b"g") is None
    assert defaults.group_rule(b"x", b"g") is None
    assert defaults.group_rule(b"y", b"h") == GroupRule(b"{y}:dead")


# --- A server ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with streamd.embedded.start(
        dir=str(tmp_path),
        stream_rule=["log:* RETAIN LENGTH 3", "later FEEDS jobs:due DUE due"],
        group_rule="jobs:* * DEADLETTER {%s}:dead MAXDELIVERIES 1",
    ) as started:
        yield started


def letters(client: redis.Redis, key: str) -> list[tuple[str, str]]:
    return [(fields["dlq.id"], fields["dlq.reason"]) for _, fields in client.xrange(key)]


def deliver(client: redis.Redis, key: str, group: str = "g") -> None:
    """An entry 1-1 that was delivered once."""
    client.xadd(key, {"f": "v"}, "1-1")
    client.xgroup_create(key, group, "0")
    client.xreadgroup(group, "c", {key: ">"})


def test_groups_have_the_rule_of_their_line_at_once(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    deliver(client, "jobs:a")
    shown = client.execute_command("STREAMD.GROUP GET", "jobs:a", "g")
    assert shown == {"deadletter": "{jobs:a}:dead", "maxdeliveries": 1, "from": "configuration"}
    client.xautoclaim("jobs:a", "g", "d", 0)
    assert letters(client, "{jobs:a}:dead") == [("1-1", "max-deliveries")]
    deliver(client, "other")
    assert client.xautoclaim("other", "g", "d", 0)[1]


def test_a_rule_by_command_wins_as_a_whole(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    client.execute_command("STREAMD.GROUP SET", "jobs:a", "g", "MAXPENDING", 7)
    client.execute_command("STREAMD.STREAM SET", "log:a", "RETAIN", "LENGTH", 5)
    assert client.execute_command("STREAMD.GROUP GET", "jobs:a", "g") == {"maxpending": 7}
    deliver(client, "jobs:a")
    client.xgroup_create("jobs:a", "h", "0")
    assert client.xautoclaim("jobs:a", "g", "d", 0)[1]
    assert client.execute_command("STREAMD.GROUP GET", "jobs:a", "h")["from"] == "configuration"
    for number in range(1, 10):
        client.xadd("log:a", {"f": number})
        client.xadd("log:b", {"f": number})
    eventually(lambda: (client.xlen("log:a"), client.xlen("log:b")) == (5, 3))
    client.execute_command("STREAMD.STREAM UNSET", "log:a")
    eventually(lambda: client.xlen("log:a") == 3)
    shown = client.execute_command("STREAMD.STREAM GET", "log:a")
    assert (shown["length"], shown["from"]) == (3, "configuration")
    client.set(key_of_rules(b"jobs:a").decode(), "GROUP g NOSUCH 1")
    shown = client.execute_command("STREAMD.GROUP GET", "jobs:a", "h")
    assert shown == {"parse-error": "unknown option 'NOSUCH'"}


def test_streams_follow_their_line_whenever_they_come(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    client.xadd("later", {"due": 0, "job": "x"})
    eventually(lambda: [fields for _, fields in client.xrange("jobs:due")] == [{"job": "x"}])
    for number in range(9):
        client.xadd("x", {"f": number})
        client.xadd("y", {"f": number})
        client.xadd("z", {"f": number})
    client.rename("x", "log:x")
    client.copy("y", "log:y")
    client.restore("log:z", 0, client.execute_command("DUMP", "z", NEVER_DECODE=True))
    for key in ("log:x", "log:y", "log:z"):
        eventually(lambda key=key: client.xlen(key) == 3)  # type: ignore[misc]
    client.config_set("stream-rule", "y RETAIN LENGTH 1")
    eventually(lambda: client.xlen("y") == 1)
    client.xadd("log:x", {"f": 1})
    client.xadd("log:x", {"f": 2})
    assert client.execute_command("STREAMD.STREAM GET", "log:x") == {}
    with pytest.raises(redis.ResponseError, match="RETAIN needs LENGTH, BYTES, AGE or ACKED"):
        client.config_set("stream-rule", "y RETAIN")
    assert client.config_get("stream-rule") == {"stream-rule": "y RETAIN LENGTH 1"}


def test_streams_that_a_file_brings_are_found(tmp_path: Path) -> None:
    with streamd.embedded.start(dir=str(tmp_path), save="3600 1") as server:
        client = server.client(decode_responses=True)
        for number in range(9):
            client.xadd("log:a", {"f": number})
        deliver(client, "jobs:a")
    with streamd.embedded.start(
        dir=str(tmp_path),
        stream_rule="log:* RETAIN LENGTH 3",
        group_rule="jobs:* * DEADLETTER dead MAXDELIVERIES 1 ACKWAIT 1",
    ) as server:
        client = server.client(decode_responses=True)
        eventually(lambda: client.xlen("log:a") == 3)
        eventually(lambda: letters(client, "dead") == [("1-1", "max-deliveries")])


def test_streams_of_the_past_are_forgotten(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    client.xadd("log:a", {"f": 1})
    client.delete("log:a")
    client.set("log:a", "no stream")
    client.flushall()
    for number in range(9):
        client.xadd("log:a", {"f": number})
    eventually(lambda: client.xlen("log:a") == 3)


def test_a_replica_follows_its_lines_when_it_becomes_the_primary(server: EmbeddedServer) -> None:
    with streamd.embedded.start() as primary:
        client, replica = primary.client(decode_responses=True), server.client(decode_responses=True)
        for number in range(9):
            client.xadd("log:a", {"f": number})
            client.xadd("log:b", {"f": number})  # comes with the snapshot, and never again
        deliver(client, "jobs:a")
        replica.replicaof("127.0.0.1", primary.port)
        eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        eventually(lambda: replica.xlen("log:a") == 9)
        client.xautoclaim("jobs:a", "g", "d", 0)
        client.xadd("log:a", {"f": 10})
        eventually(lambda: replica.xlen("log:a") == 10)
        assert not replica.exists("{jobs:a}:dead")
        replica.replicaof("NO", "ONE")
        eventually(lambda: replica.xlen("log:a") == 3)
        eventually(lambda: replica.xlen("log:b") == 3)
        assert client.xlen("log:a") == 10


def test_lines_order_groups_by_key_and_replace_entries_that_wait(server: EmbeddedServer) -> None:
    client = server.client(decode_responses=True)
    client.config_set("group-rule", "keyed:* * KEYED account")
    client.config_set("stream-rule", "unique:* FEEDS jobs:due DUE due UNIQUE user")
    for account in (1, 1, 2):
        client.xadd("keyed:a", {"account": account})
    client.xgroup_create("keyed:a", "g", "0")
    first = client.xreadgroup("g", "c", {"keyed:a": ">"}, count=10)
    assert "'account': '1'" in repr(first)
    assert client.xpending("keyed:a", "g")["pending"] == 3
    assert repr(first).count("account") == 2, "the second entry of the first account waits"
    for number in (1, 2):
        client.xadd("unique:a", {"due": 10**13, "user": 7, "n": number})
    assert [fields["n"] for _, fields in client.xrange("unique:a")] == ["2"]
