"""`streamd doctor`: each illness is made on a streamd, a Redis and a Valkey, and is found; what is said to fix it is sent as it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.pages.illnesses import (
    CONFLICTS,
    HEALTHY,
    ILLNESSES,
    LOW,
    Illness,
    add,
    client_of,
    examine,
    fix,
    kinds,
    make_group,
    the,
)
from support.servers import Server, eventually, free_port, python_environment

from streamd.watching.case import Thresholds
from streamd.watching.diagnosis import KINDS
from streamd.watching.findings import SEVERITIES
from streamd.watching.look import Limits

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0")), "valkey"])
def start(request: pytest.FixtureRequest) -> StartServer:
    """Start a server of each kind, without an illness."""
    new: StartServer = request.getfixturevalue(f"new_{request.param}")
    return lambda **directives: new(**{**HEALTHY, **directives})


# --- The illnesses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("illness", ILLNESSES, ids=[each.name for each in ILLNESSES])
def test_an_illness_is_found(start: StartServer, illness: Illness) -> None:
    illness.examine(start(**illness.directives))


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
    eventually(lambda: "replication-lag" not in kinds(examine(replica)), DEADLINE_S)
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


def test_a_rate_is_that_of_the_time_between_the_looks(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        now_ms, seconds = 1000 * client.time()[0], 10 * 86_400
        for at in range(500):
            client.xadd("orders", {"number": at}, id=f"{now_ms - 1000 * seconds + at * 1000 * seconds // 500}-0")
        rests = the("stream-unbounded", examine(server))
        grows = the("stream-unbounded", examine(server, during=lambda: add(client, 200)))
    assert rests.values["in_per_s"] == pytest.approx(500 / seconds, rel=0.1)
    assert "more each second on average since its first entry" in rests.figure
    assert grows.values["in_per_s"] > 0.1
    assert "more each second" in grows.figure
    assert "on average" not in grows.figure


def test_a_consumer_is_deleted_when_nothing_of_it_is_pending(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        make_group(client, 250, 250)
        finding = the("consumer-gone", examine(server, LOW))
        assert finding.values["pending"] == 250
        fix(server, finding)
        assert client.xpending("orders", "billing")["pending"] == 250, "what can be pasted drops nothing"
        claim, _, check, delete = finding.fix
        words, said = claim.split(), delete.removeprefix("# ").partition("   ")[0]
        assert said == "XGROUP DELCONSUMER orders billing alice"
        with server.connect() as wire:
            assert wire.call(*check.split()).plain(), "100 are claimed, 150 are not"
            while wire.call(*check.split()).plain():
                words[5] = wire.call(*words).plain()[0].decode()
            assert wire.call(*said.split()).plain() == 0
        assert client.xpending("orders", "billing")["pending"] == 250


def test_a_lag_below_zero_is_unknown(start: StartServer) -> None:
    server = start()
    with client_of(server) as client:
        for number in range(1, 7):
            client.xadd("orders", {"a": 1}, id=f"{number}-0")
        client.xgroup_create("orders", "billing", "3-0", entries_read=6)
        client.xreadgroup("billing", "alice", {"orders": ">"}, count=2)
        assert client.xinfo_groups("orders")[0]["lag"] == -2
        found = examine(server, Thresholds(lag=1))
    ((_, group),) = found.look.groups()
    assert group.lag is None
    assert "-2" not in found.page()


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
    knows_sizes = any("_distrib_" in name for name in found.look.info)
    assert statistics["cmdstat_scan"]["calls"] == (1 if knows_sizes else 5)
    assert "More streams exist" in found.page()
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


def test_a_server_is_named_by_url_host_and_port_or_port(streamd_server: Server) -> None:
    port = str(streamd_server.port)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "streamd", *arguments]
        return subprocess.run(program, capture_output=True, text=True, env=python_environment())

    for command in (["doctor", "--interval", "0"], ["top", "--once", "--interval", "0.1"]):
        for place in ([f"redis://localhost:{port}"], [f"localhost:{port}"], ["-p", port], ["--port", port]):
            done = run(*command, *place)
            assert done.returncode in (0, 1, 3), done.stderr
            assert done.stderr == ""
    said = run("doctor", "localhost:1", "-p", port)
    assert said.returncode == 2
    assert "either localhost:1 or --port" in said.stderr
