"""Illnesses of a server: what makes each, and what `streamd doctor` must say of it.

python -m tests.support.pages.illnesses       makes each on a streamd, a Redis and a Valkey, and prints what was found
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import redis

from streamd.client.place import Place
from streamd.protocol.inline import split_line
from streamd.watching.case import Thresholds
from streamd.watching.diagnosis import Diagnosis, diagnose
from streamd.watching.findings import Finding
from streamd.watching.look import Limits

from ..servers import Server, eventually, find_valkey, start_redis, start_streamd, start_valkey

__all__ = [
    "CONFLICTS",
    "HEALTHY",
    "ILLNESSES",
    "LOW",
    "Illness",
    "add",
    "client_of",
    "examine",
    "fix",
    "kinds",
    "make_group",
    "the",
]

HEALTHY = {"appendonly": "yes", "appendfsync": "always", "slowlog-log-slower-than": "10000000"}
"""How a server is started that nothing ails; any command may be slow for a moment where the machine is busy."""
LOW = Thresholds(lag=10, gone_s=0, length=100, done=100)
PATIENT = Thresholds(lag=10, length=100, done=100)


def client_of(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port, protocol=2)


def examine(
    server: Server, thresholds: Thresholds = PATIENT, *, during: Callable[[], object] = lambda: None, **more: Any
) -> Diagnosis:
    """A diagnosis; `during` happens between the looks."""
    return diagnose(
        Place(port=server.port),
        more.pop("limits", Limits()),
        thresholds,
        interval_s=0,
        wait=lambda seconds: during() and None,
        **more,
    )


def the(kind: str, found: Diagnosis) -> Finding:
    """The one finding of a kind."""
    matching = [each for each in found.findings if each.kind == kind]
    assert len(matching) == 1, [f"{each.kind}: {each.subject}" for each in found.findings]
    return matching[0]


def kinds(found: Diagnosis) -> list[str]:
    return [each.kind for each in found.findings]


def add(client: redis.Redis, count: int, key: str = "orders") -> int:
    with client.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.xadd(key, {"number": number})
        pipe.execute()
    return count


# --- The illnesses -----------------------------------------------------------------------------------------------------


@dataclass
class Illness:
    """An illness.

    make        makes it
    during      goes on while the server is watched
    directives  the server is started with
    heals       sending what is said to fix it makes it go away
    """

    name: str
    kind: str
    severity: str
    make: Callable[[redis.Redis], object] = lambda client: None
    during: Callable[[redis.Redis], object] = lambda client: None
    thresholds: Thresholds = PATIENT
    directives: dict[str, str] = field(default_factory=dict)
    says: str = ""
    heals: bool = False

    def examine(self, server: Server) -> Finding:
        """Make it, on a server that was started with its directives; it must be found, as it should be, and be mended."""
        with client_of(server) as client:
            healthy = examine(server, self.thresholds)
            self.make(client)
            found = examine(server, self.thresholds, during=lambda: self.during(client))
        finding = the(self.kind, found)
        assert self.kind not in kinds(healthy) or self.directives
        assert finding.severity == self.severity
        assert self.says in f"{finding.figure} {finding.why}"
        assert finding.why.endswith(".")
        fix(server, finding)
        if self.heals:
            assert self.kind not in kinds(examine(server, self.thresholds))
        return finding


def make_group(client: redis.Redis, entries: int = 200, read: int = 0, consumer: str = "alice") -> None:
    add(client, entries)
    client.xgroup_create("orders", "billing", 0)
    if read:
        client.xreadgroup("billing", consumer, {"orders": ">"}, count=read)


def read_half(client: redis.Redis) -> None:
    add(client, 100)
    client.xreadgroup("billing", "alice", {"orders": ">"}, count=50, noack=True)


def make_poison(client: redis.Redis) -> None:
    make_group(client, read=20)
    worst = client.xpending_range("orders", "billing", "-", "+", 1)[0]["message_id"]
    for _ in range(7):
        client.xclaim("orders", "billing", "bob", 0, [worst])


def make_done(client: redis.Redis) -> None:
    make_group(client, 1000, 950)
    client.xack("orders", "billing", *(each for each, _ in client.xrange("orders", count=900)))


def set_(**values: str) -> Callable[[redis.Redis], object]:
    return lambda client: [client.config_set(name.replace("_", "-"), value) for name, value in values.items()]


ILLNESSES = [
    Illness(
        "nobody reads a group", "group-lag-grows", "critical", make_group, lambda client: add(client, 50),
        says="300 entries wait, the oldest for",
    ),
    Illness(
        "a group reads more slowly than others write", "group-lag-grows", "warning", lambda client: make_group(client, read=10),
        read_half, says="Consumers are slower than producers",
    ),
    Illness("nobody needs a group any more", "group-abandoned", "warning", make_group, says="it has no consumer", heals=True),
    Illness(
        "a consumer is gone", "consumer-gone", "critical", lambda client: make_group(client, read=20), thresholds=LOW,
        says="20 pending entries; last seen",
    ),
    Illness(
        "an entry is delivered again and again", "poison-entry", "warning", make_poison,
        says="1 entry delivered more than 5 times", heals=True,
    ),
    Illness(
        "a stream grows without a bound", "stream-unbounded", "critical", lambda client: add(client, 2000),
        lambda client: add(client, 100), directives={"maxmemory": "100mb"}, says="memory (100 MiB) is used up in",
    ),
    Illness(
        "a stream has grown without a bound, and rests", "stream-unbounded", "notice", lambda client: add(client, 2000),
        thresholds=Thresholds(memory_days=0), says="2,000 entries",
    ),
    Illness("entries are kept that all have acknowledged", "done-and-kept", "warning", make_done, says="900 of 1,000 entries", heals=True),
    Illness(
        "nothing is saved", "persistence", "critical", lambda client: add(client, 1),
        directives={"appendonly": "no"}, says="a restart loses 1 key",
    ),
    Illness(
        "snapshots only", "persistence", "warning", lambda client: add(client, 30),
        directives={"appendonly": "no", "save": "3600 1000"}, says="30 changes are in no file",
    ),
    Illness("the disk is a second behind", "persistence", "notice", directives={"appendfsync": "everysec"}, says="up to 2 s", heals=True),
    Illness("the disk is far behind", "persistence", "warning", directives={"appendfsync": "no"}, says="about every 30 s"),
    Illness(
        "no password on an open port", "no-password", "critical", set_(protected_mode="no"),
        directives={"bind": "* -::*"}, says="from any machine",
    ),
    Illness("no password in protected mode", "no-password", "notice", directives={"bind": "* -::*"}, says="while protected mode is on"),
    Illness(
        "a large key", "key-large", "warning", lambda client: client.sadd("seen", *range(300)),
        thresholds=Thresholds(elements=200), says="300 elements",
    ),
    Illness(
        "a hash that nothing makes smaller", "hash-unbounded", "notice", lambda client: client.hset("jobs", mapping=dict.fromkeys(range(300), "x")),
        thresholds=Thresholds(elements=20_000), says="300 fields", heals=True,
    ),
    Illness(
        "a slow command", "slow-command", "warning", lambda client: client.execute_command("DEBUG", "SLEEP", "0.25"),
        directives={"slowlog-log-slower-than": "200000"}, says="Once in the last hour above 10 ms",
    ),
]  # fmt: skip

CONFLICTS = {
    "an eviction policy without a limit": set_(maxmemory_policy="allkeys-lru"),
    "streams that may be evicted": lambda client: (
        add(client, 10),
        set_(maxmemory="1gb", maxmemory_policy="allkeys-lru")(client),
    ),
    "nothing that could be evicted": set_(maxmemory="1gb", maxmemory_policy="volatile-lru"),
    "more memory than there is": set_(maxmemory="1000000gb"),
    "fsync without a file": set_(appendonly="no"),
    "no fsync while rewriting": set_(no_appendfsync_on_rewrite="yes"),
    "failed snapshots that nobody notices": set_(
        save="3600 1000000", stop_writes_on_bgsave_error="no", appendonly="no", appendfsync="everysec"
    ),
    "replicas that are not asked for": set_(min_replicas_to_write="1", min_replicas_max_lag="0"),
    "too few replicas": set_(min_replicas_to_write="1"),
    "pings that come too late": set_(repl_ping_replica_period="60", repl_timeout="60"),
    "a buffer smaller than the backlog": set_(
        client_output_buffer_limit="replica 1mb 512kb 60", repl_backlog_size="2mb"
    ),
    "nodes without a limit": set_(stream_node_max_bytes="0", stream_node_max_entries="0"),
    "no slow log": set_(slowlog_log_slower_than="-1"),
    "a slow log without lines": set_(slowlog_max_len="0"),
}


def fix(server: Server, finding: Finding) -> None:
    """Send the commands of a finding as they stand there, but for those with something to fill in."""
    commands = [line for line in finding.fix if not line.startswith("#") and "<" not in line]
    with server.connect() as wire:
        for line in commands:
            reply = wire.call(*split_line(line.encode()))
            # There is no file of settings to be rewritten, and XGROUP DELCONSUMER is for later.
            assert not reply.is_error or b"config file" in reply.value, (line, reply)
    if "CONFIG SET appendonly yes" in commands:
        with client_of(server) as client:  # a server does not end while it writes its first append-only file
            eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, what="the append-only file")


# --- The table ---------------------------------------------------------------------------------------------------------


@contextmanager
def started(name: str, directives: dict[str, str]) -> Iterator[Server]:
    start = {"streamd": start_streamd, "redis": start_redis, "valkey": start_valkey}[name]
    with tempfile.TemporaryDirectory() as folder:
        server = start(Path(folder), {**HEALTHY, **directives})
        try:
            yield server
        finally:
            server.end()


def outcome(name: str, directives: dict[str, str], check: Callable[[Server], object]) -> str:
    """One cell: what `check` said is found, or what is wrong."""
    if name == "valkey" and find_valkey() is None:
        return "not here"
    try:
        with started(name, directives) as server:
            check(server)
    except AssertionError as error:
        return f"NOT FOUND ({str(error).splitlines()[0] if str(error) else 'as it should be'})"
    return "found"


def has_conflict(server: Server, make: Callable[[redis.Redis], object]) -> None:
    with client_of(server) as client:
        make(client)
    fix(server, the("settings-conflict", examine(server)))


@click.command()
def main() -> None:
    """Make each illness on a server of each kind, and print a table in Markdown."""
    kinds_of_server = ("streamd", "redis", "valkey")
    click.echo("| illness | finding | streamd | Redis | Valkey |\n|---|---|---|---|---|")
    for each in ILLNESSES:
        cells = [outcome(name, each.directives, each.examine) for name in kinds_of_server]
        click.echo(f"| {each.name} | `{each.kind}`, {each.severity} | {' | '.join(cells)} |")
    for said, make in CONFLICTS.items():
        cells = [outcome(name, {}, lambda server, make=make: has_conflict(server, make)) for name in kinds_of_server]
        click.echo(f"| {said} | `settings-conflict` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
