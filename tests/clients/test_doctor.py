"""`streamd doctor`: each illness is made on a streamd and on a real Redis, and is found; what is said to fix it is sent as it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from support.servers import Server, eventually, free_port, python_environment

from streamd.protocol.inline import split_line
from streamd.shell.caller import Place
from streamd.watching.case import Thresholds
from streamd.watching.doctor import KINDS, Diagnosis, diagnose
from streamd.watching.findings import SEVERITIES, Finding
from streamd.watching.reading import Limits

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 60
LOW = Thresholds(lag=10, gone_s=0, length=100, done=100)
PATIENT = Thresholds(lag=10, length=100, done=100)


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0"))])
def start(request: pytest.FixtureRequest) -> StartServer:
    """Start a server of either kind, without an illness."""
    new: StartServer = request.getfixturevalue(f"new_{request.param}")
    return lambda **directives: new(**{"appendonly": "yes", "appendfsync": "always", **directives})


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
        lambda client: add(client, 100), directives={"maxmemory": "100mb"}, says="memory (100 MiB) ends in",
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
    Illness("no password in protected mode", "no-password", "notice", directives={"bind": "* -::*"}, says="protected mode refuses"),
    Illness(
        "a slow command", "slow-command", "warning", lambda client: client.execute_command("DEBUG", "SLEEP", "0.05"),
        says="Once in the last hour above 10 ms",
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


@pytest.mark.parametrize("illness", ILLNESSES, ids=[each.name for each in ILLNESSES])
def test_an_illness_is_found(start: StartServer, illness: Illness) -> None:
    server = start(**illness.directives)
    with client_of(server) as client:
        healthy = examine(server, illness.thresholds)
        illness.make(client)
        found = examine(server, illness.thresholds, during=lambda: illness.during(client))
    finding = the(illness.kind, found)
    assert illness.kind not in kinds(healthy) or illness.directives
    assert finding.severity == illness.severity
    assert illness.says in f"{finding.figure} {finding.why}"
    assert finding.why.endswith(".")
    fix(server, finding)
    if illness.heals:
        assert illness.kind not in kinds(examine(server, illness.thresholds))


@pytest.mark.parametrize("make", CONFLICTS.values(), ids=CONFLICTS)
def test_settings_that_fight_each_other_are_found_and_mended(start: StartServer, make: Any) -> None:
    server = start()
    assert "settings-conflict" not in kinds(examine(server))
    with client_of(server) as client:
        make(client)
    finding = the("settings-conflict", examine(server))
    fix(server, finding)
    if "<" not in finding.fix[0]:
        assert finding.subject not in [each.subject for each in examine(server).findings]


def test_files_that_cannot_be_written_are_found(start: StartServer) -> None:
    server = start()
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    with client_of(server) as client:
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", DEADLINE_S)
    assert the("files-fail", examine(server)).severity == "critical"


def test_a_replica_that_hangs_is_found(start: StartServer) -> None:
    primary = start(repl_diskless_sync_delay="0")
    replica = start(replicaof=f"127.0.0.1 {primary.port}")
    with client_of(primary) as client:
        eventually(
            lambda: (
                "state=online"
                in str(client.info("replication").get("slave0", "")).replace("'state': 'online'", "state=online")
            ),
            DEADLINE_S,
        )
    eventually(lambda: "replication-lag" not in kinds(examine(primary)), DEADLINE_S)
    assert "replication-lag" not in kinds(examine(replica))
    replica.process.send_signal(signal.SIGSTOP)
    try:
        soon = Thresholds(replica_s=2)
        eventually(lambda: "replication-lag" in kinds(examine(primary, soon)), DEADLINE_S)
        finding = the("replication-lag", examine(primary, soon))
        assert (finding.severity, finding.values["state"]) == ("warning", "online")
    finally:
        replica.process.send_signal(signal.SIGCONT)
    primary.kill()
    eventually(lambda: "replication-lag" in kinds(examine(replica)), DEADLINE_S)
    assert the("replication-lag", examine(replica)).severity == "critical"


# --- Healthy -----------------------------------------------------------------------------------------------------------


def test_nothing_ails_a_healthy_server(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        make_group(client, 90, 90)
        client.xack("orders", "billing", *(each for each, _ in client.xrange("orders")))
        add(client, 5)
        found = examine(server, during=lambda: client.xreadgroup("billing", "alice", {"orders": ">"}, noack=True))
    assert found.findings == []
    assert "Nothing was found." in found.page()


def test_a_stream_with_a_bound_is_not_called_boundless(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:

        def work() -> None:
            for number in range(300):
                client.xadd("orders", {"number": number}, maxlen=250)

        work()
        assert "stream-unbounded" not in kinds(examine(server, during=work))
        client.xadd("expiring", {"a": 1})
        add(client, 300, "expiring")
        client.expire("expiring", 1000)
        assert "stream-unbounded" not in kinds(examine(server, during=lambda: add(client, 200, "expiring")))


# --- What it costs -------------------------------------------------------------------------------------------------------


def test_only_so_many_streams_are_looked_at(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        for number in range(30):
            add(client, 1, f"stream:{number}")
            client.set(f"string:{number}", "x")
        client.config_resetstat()
        found = examine(server, limits=Limits(streams=5))
        statistics = client.info("commandstats")
    assert (len(found.look.streams), found.look.is_whole) == (5, False)
    assert statistics["cmdstat_xinfo|stream"]["calls"] == 15
    assert statistics["cmdstat_scan"]["calls"] == 1
    assert "There are more streams" in found.page()
    assert set(examine(server, limits=Limits(match="stream:1?")).look.streams) == {
        b"stream:%d" % n for n in range(10, 20)
    }


# --- The page ----------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_worst_first_and_not_too_much(start: StartServer) -> None:
    server = start(appendfsync="everysec")
    with client_of(server) as client:
        for number in range(6):
            add(client, 100 + number, f"s{number}")
            client.xgroup_create(f"s{number}", "g", 0)
        found = examine(server)
    assert [each.severity for each in found.findings] == sorted(
        (each.severity for each in found.findings), key=SEVERITIES.index
    )
    page = found.page()
    assert page.index("stream s5, group g") < page.index("stream s4, group g") < page.index("3 more; --all")
    assert "stream s0, group g" not in page
    assert "stream s0, group g" in found.page(shows_all=True)
    assert set(kinds(found)) <= set(KINDS)


def test_names_are_written_so_that_the_commands_can_be_sent(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        client.xadd(b'my "orders"\n\xff', {"a": 1})
        client.xgroup_create(b'my "orders"\n\xff', "the group", 0)
    finding = the("group-abandoned", examine(server, Thresholds(lag=1)))
    fix(server, finding)
    assert "group-abandoned" not in kinds(examine(server, Thresholds(lag=1)))


# --- The program -------------------------------------------------------------------------------------------------------


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamd", "doctor", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=python_environment() | env, timeout=DEADLINE_S, check=False
    )


def test_the_exit_status_says_how_bad_it_is(start: StartServer) -> None:
    server = start()
    url = f"redis://127.0.0.1:{server.port}"
    assert run(url, "--interval", "0").returncode == 0
    with client_of(server) as client:
        make_group(client)
        said = run(url, "--interval", "0")
        assert (said.returncode, said.stderr) == (1, "")
        assert said.stdout.startswith(f"127.0.0.1:{server.port}: ")
        assert run(url, "--interval", "0", "--ignore", "group-abandoned").returncode == 0
        assert run(url, "--interval", "0", "--lag", "201").returncode == 0
        client.config_set("min-replicas-to-write", "1")
    assert run(url, "--interval", "0", "--json").returncode == 3


def test_json_has_every_figure(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        make_group(client, 100)
    said = json.loads(run("--json", "--interval", "0", STREAMD_URL=f"redis://127.0.0.1:{server.port}").stdout)
    (finding,) = said["findings"]
    assert (finding["kind"], finding["values"]["lag"], finding["values"]["idle_s"]) == ("group-abandoned", 100, None)
    assert said["counts"].keys() == set(SEVERITIES)
    assert (said["role"], said["streams"]) == ("primary", 1)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://127.0.0.1:PORT", "Could not connect to 127.0.0.1:PORT: Connection refused\n"),
        (
            "http://127.0.0.1",
            "http://127.0.0.1: a URL begins with redis://, rediss:// (TLS) or unix:// (a socket's path)\n",
        ),
    ],
)
def test_what_is_wrong_with_the_connection_is_said_in_one_line(url: str, text: str) -> None:
    port = str(free_port())
    said = run(url.replace("PORT", port))
    assert (said.returncode, said.stdout, said.stderr) == (4, "", text.replace("PORT", port))


def test_a_password_is_needed_and_a_user_without_rights_is_told(start: StartServer) -> None:
    server = start(requirepass="secret")
    url = f"127.0.0.1:{server.port}"
    refused = run(f"redis://{url}")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert refused.stderr.startswith("NOAUTH")
    assert run(f"redis://{url}", "--interval", "0", REDISCLI_AUTH="secret").returncode == 0
    with redis.Redis(port=server.port, password="secret") as client:
        client.acl_setuser(
            "guest", enabled=True, nopass=True, keys="*", commands=["+@read", "+time", "+info", "-xpending"]
        )
        client.xadd("orders", {"a": 1})
        client.xgroup_create("orders", "g", 0)
    said = run(f"redis://guest:x@{url}", "--interval", "0")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Not looked at: CONFIG GET (NOPERM" in said.stdout
    assert "Not looked at: XPENDING (NOPERM" in said.stdout
