"""`streamd cluster` as a process: its life, its changes, and what keeps it from starting."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.pages.reader import block
from support.servers import eventually, python_environment

pytestmark = pytest.mark.long
CLOCK_S = 120


def run(*words: str, status: int = 0) -> str:
    """What `streamd cluster` prints, standard error last."""
    done = subprocess.run(
        [sys.executable, "-m", "streamd", "cluster", *words],
        env=python_environment(), capture_output=True, text=True, timeout=CLOCK_S, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def in_foreground(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streamd", "cluster", "start", *words], env=python_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What a process prints, up to a line with a text."""
    said = ""
    assert process.stdout is not None
    while text not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def processes_in(folder: Path) -> list[int]:
    """The nodes that run in a folder."""
    found = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [
        int(line.split()[0])
        for line in found.splitlines()
        if "--dir" in line and f"{folder}/" in line and " server " in line
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a cluster, whose nodes end with the test."""
    path = tmp_path / "cluster"
    yield path
    for pid in processes_in(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


FIRST_PORTS = range(22_000, 22_740)
"""The ports of their buses, 10,000 above, are given neither to other tests nor, by the kernel, to connections."""


def free_ports(count: int) -> int:
    """The first of consecutive free ports, whose buses have free ones, too."""
    while True:
        first = random.choice(FIRST_PORTS)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    for each in (port, port + 10_000):
                        stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return first


def start(folder: Path, nodes: int, *words: str) -> int:
    """Start a cluster that is detached; returns the port of its first node."""
    port = free_ports(nodes + 1)
    run("start", "--nodes", str(nodes), "--dir", str(folder), "--port", str(port), "--detach", *words)
    return port


def client(port: int) -> redis.RedisCluster:
    return redis.RedisCluster(host="127.0.0.1", port=port, decode_responses=True)


def fill(port: int) -> None:
    with client(port) as cluster:
        for number in range(100):
            cluster.xadd(f"s:{number}", {"n": number}, id="1-1")
            cluster.xgroup_create(f"s:{number}", "g", id="0")


def check(port: int) -> None:
    with client(port) as cluster:
        assert [cluster.xlen(f"s:{number}") for number in range(100)] == [1] * 100
        assert cluster.xinfo_groups("s:7")[0]["name"] == "g"


def slots_by_port(folder: Path) -> dict[int, str]:
    """The column SLOTS of `status`."""
    rows = run("status", "--dir", str(folder)).splitlines()[1:]
    return {int(row.split()[0]): re.split(r"  +", row)[4] for row in rows if row[0].isdigit()}


@contextlib.contextmanager
def one_core() -> Iterator[int]:
    """Let this process, and those that it starts, have one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield min(before)
    finally:
        os.sched_setaffinity(0, before)


# --- The life of a cluster -------------------------------------------------------------------------------------------------


def test_data_and_topology_survive_stop_and_start(folder: Path) -> None:
    port = start(folder, 3)
    fill(port)
    before = run("status", "--dir", str(folder))
    assert before.count("primary  ok     546") == 3
    assert run("stop", "--dir", str(folder)) == "3 nodes stopped.\n"
    assert processes_in(folder) == []
    assert run("stop", "--dir", str(folder)) == "No node was running.\n"
    assert "stopped" in run("status", "--dir", str(folder), status=1)
    assert f"redis-cli -c -p {port}" in run("start", "--dir", str(folder), "--detach")
    check(port)
    assert [row.split()[-1] for row in run("status", "--dir", str(folder)).splitlines()] == [
        row.split()[-1] for row in before.splitlines()
    ]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes to cores")
def test_a_machine_with_one_core_has_several_nodes(folder: Path) -> None:
    with one_core() as core:
        port = start(folder, 3)
        assert [os.sched_getaffinity(pid) for pid in processes_in(folder)] == [{core}] * 3
        fill(port)
        assert run("stop", "--dir", str(folder)) == "3 nodes stopped.\n"
        run("start", "--dir", str(folder), "--detach")
        check(port)


def test_replicas_and_settings_are_those_asked_for(folder: Path) -> None:
    port = start(folder, 4, "--replicas", "1", "--appendonly", "yes", "--requirepass", "--secret", "--save", "")
    said = subprocess.run(
        [sys.executable, "-m", "streamd", "cluster", "status", "--dir", str(folder)],
        env=python_environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.count(f"replica of {port}") == 1
    assert said.count(f"replica of {port + 1}") == 1
    assert "With 2 primaries no replica takes over by itself" in said
    with redis.Redis(port=port + 3, password="--secret", decode_responses=True) as node:
        assert node.config_get("appendonly", "save") == {"appendonly": "yes", "save": ""}
        eventually(lambda: node.info("replication")["master_link_status"] == "up")
        # A later start with another value records it.
    run("stop", "--dir", str(folder))
    run("start", "--dir", str(folder), "--detach", "--appendonly", "no")
    with redis.Redis(port=port, password="--secret", decode_responses=True) as node:
        assert node.config_get("appendonly") == {"appendonly": "no"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_foreground_ends_with_all_nodes(folder: Path, number: signal.Signals) -> None:
    port = free_ports(2)
    with in_foreground("--nodes", "2", "--dir", str(folder), "--port", str(port)) as starter:
        read_until(starter, "Ctrl-C stops all nodes")
        fill(port)
        starter.send_signal(number)
        assert starter.wait(CLOCK_S) == 0
    assert processes_in(folder) == []
    run("start", "--dir", str(folder), "--detach")
    check(port)


@pytest.mark.parametrize("moment", ["the folder", "a log", "an answer", "the slots"])
def test_ctrl_c_leaves_nothing_of_a_start_that_was_not_over(folder: Path, moment: str) -> None:
    port = free_ports(4)

    def has_come() -> bool:
        if moment == "the folder":
            return folder.exists()
        if moment == "a log":
            return (folder / str(port + 1) / "streamd.log").exists()
        with contextlib.suppress(redis.RedisError), redis.Redis(port=port, decode_responses=True) as node:
            return (moment == "an answer" and node.ping()) or node.cluster("INFO")["cluster_slots_assigned"] != "0"
        return False

    with in_foreground("--nodes", "4", "--dir", str(folder), "--port", str(port)) as starter:
        eventually(lambda: has_come() or starter.poll() is not None)
        starter.send_signal(signal.SIGINT)
        assert starter.stdout is not None
        said = starter.stdout.read()
        status = starter.wait(CLOCK_S)
    assert processes_in(folder) == []
    if "Ctrl-C stops" in said:  # it was faster than this test
        assert status == 0
    else:
        assert (status, said) == (130, "Stopped.\n")
        assert not folder.exists()


def test_nodes_live_on_when_their_starter_is_killed(folder: Path) -> None:
    port = free_ports(2)
    with in_foreground("--nodes", "2", "--dir", str(folder), "--port", str(port)) as starter:
        read_until(starter, "Ctrl-C stops all nodes")
        starter.kill()
    assert len(processes_in(folder)) == 2
    fill(port)
    assert "is running" in run("start", "--dir", str(folder), status=1)
    assert run("stop", "--dir", str(folder)) == "2 nodes stopped.\n"
    assert processes_in(folder) == []


def test_a_starter_that_is_killed_at_once_leaves_nodes_that_stop_ends(folder: Path) -> None:
    port = free_ports(2)
    with in_foreground("--nodes", "2", "--dir", str(folder), "--port", str(port)) as starter:
        eventually(lambda: (folder / str(port + 1) / "streamd.log").exists())
        starter.kill()
    eventually(lambda: not run_quietly("status", folder).count("stopped"))
    assert "was interrupted" in run("start", "--dir", str(folder), status=1)
    assert run("stop", "--dir", str(folder)) == "2 nodes stopped.\n"
    assert processes_in(folder) == []


def run_quietly(command: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", "streamd", "cluster", command, "--dir", str(folder)],
        env=python_environment(), capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def test_a_node_that_was_killed_is_reported_and_started_again(folder: Path) -> None:
    port = free_ports(2)
    with in_foreground(
        "--nodes", "2", "--dir", str(folder), "--port", str(port), "--appendonly", "yes", "--appendfsync", "always"
    ) as starter:
        read_until(starter, "Ctrl-C stops all nodes")
        fill(port)
        with redis.Redis(port=port + 1) as node:
            os.kill(node.info("server")["process_id"], signal.SIGKILL)
        assert f"The node {port + 1} has ended: " in read_until(starter, "starts it again")
        run("start", "--dir", str(folder), "--detach")
        check(port)
        starter.send_signal(signal.SIGINT)
        assert starter.wait(CLOCK_S) == 0
    assert processes_in(folder) == []


def test_the_page_shows_what_is_printed(folder: Path) -> None:
    command, *shown = block("docs/cluster.md", "$ streamd cluster start").splitlines()
    port = free_ports(4)
    words = ["--port", str(port), *(str(folder) if word == "cluster" else word for word in command.split()[4:])]
    with in_foreground(*words) as starter:
        said = read_until(starter, "Ctrl-C stops all nodes")
        starter.send_signal(signal.SIGINT)
        assert starter.wait(CLOCK_S) == 0
    for number in range(4):
        said = said.replace(str(port + number), str(7000 + number))

    def stable(lines: list[str]) -> list[list[str]]:
        """Without process IDs, memory and the IDs of nodes."""
        rows = [re.split(r"  +", line) for line in lines]
        return [[*row[:1], *row[2:6]] if len(row) > 6 else row for row in rows]

    assert stable(said.splitlines()) == stable(shown)


# --- Changes -----------------------------------------------------------------------------------------------------------------


def test_nodes_come_and_go_with_their_slots(folder: Path) -> None:
    port = start(folder, 2)
    fill(port)
    assert "has no slots yet" in run("add-node", "--dir", str(folder))
    assert slots_by_port(folder) == {port: "8192", port + 1: "8192", port + 2: "0"}
    assert run("rebalance", "--dir", str(folder)).endswith("5461 slots moved.\n")
    assert sorted(map(int, slots_by_port(folder).values())) == [5461, 5461, 5462]
    check(port)
    assert run("rebalance", "--dir", str(folder)) == "0 slots moved.\n"
    run("remove-node", "--dir", str(folder), str(port))
    assert sorted(map(int, slots_by_port(folder).values())) == [8192, 8192]
    check(port + 1)
    assert not (folder / str(port)).exists()
    assert len(processes_in(folder)) == 2
    run("stop", "--dir", str(folder))
    run("start", "--dir", str(folder), "--detach")
    check(port + 1)


def test_replicas_of_a_node_that_leaves_follow_another_one(folder: Path) -> None:
    port = start(folder, 2)
    run("add-node", "--dir", str(folder), "--replica-of", str(port))
    fill(port)
    assert slots_by_port(folder)[port + 2] == "-"
    run("remove-node", "--dir", str(folder), str(port))
    assert f"replica of {port + 1}" in run("status", "--dir", str(folder))
    check(port + 1)
    assert "is the only primary" in run("remove-node", "--dir", str(folder), str(port + 1), status=1)
    run("remove-node", "--dir", str(folder), str(port + 2))
    check(port + 1)


# --- What keeps it from starting -----------------------------------------------------------------------------------------------


def refused(folder: Path, *words: str) -> str:
    """The one line that `start` prints; nothing runs afterwards, and the folder is as it was."""
    before = sorted(folder.rglob("*")) if folder.exists() else None
    said = run("start", "--dir", str(folder), "--detach", *words, status=1)
    assert said.count("\n") == 1, said
    assert processes_in(folder) == []
    assert (sorted(folder.rglob("*")) if folder.exists() else None) == before
    return said


@pytest.mark.parametrize("offset", [0, 1, 10_001])
def test_a_port_that_is_taken_is_named(folder: Path, offset: int) -> None:
    port = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + offset))
        taken.listen()
        assert f" {port + offset} is taken" in refused(folder, "--nodes", "2", "--port", str(port))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--nodes", "9", "--port", "55530"), "9 nodes from port 55530 on need ports up to 55538"),
        (("--nodes", "50000"), "50000 nodes from port 7000 on need ports up to"),
        (("--nodes", "40000", "--port", "1"), "MB of memory without any data"),
        (("--nodes", "2", "--replicas", "2"), "2 nodes are too few for a primary with 2 replicas; start 3 or more"),
        (("--cluster-enabled", "no"), "--cluster-enabled is set by `streamd cluster`"),
        (("--unixsocket", "/x"), "--unixsocket cannot be the same for all nodes"),
    ],
)
def test_what_cannot_be_started_is_refused_before_anything_is(folder: Path, words: tuple[str, ...], text: str) -> None:
    assert text in refused(folder, *words)


def test_a_node_that_dies_while_starting_is_named_with_its_reason(folder: Path) -> None:
    port = free_ports(2)
    said = refused(folder, "--nodes", "2", "--port", str(port), "--maxmemory", "much")
    assert f"The node {port} did not start: " in said
    assert "argument must be a memory value" in said


def test_an_announced_address_that_nobody_reaches_is_named(folder: Path) -> None:
    port = free_ports(2)
    said = refused(folder, "--nodes", "2", "--port", str(port), "--cluster-announce-ip", "127.0.0.77")
    assert f"Nobody reaches the bus of node {port} at the announced address 127.0.0.77" in said


def test_a_folder_of_something_else_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "file").write_text("content")
    assert "is not empty, and holds no cluster" in refused(folder)
    (folder / "cluster.json").write_text("{}")
    assert "is damaged" in refused(folder)


def test_a_folder_of_other_nodes_is_left_alone(folder: Path) -> None:
    port = start(folder, 2)
    run("stop", "--dir", str(folder))
    one, other = (folder / str(port + number) / "nodes.conf" for number in (0, 1))
    text = one.read_text()
    one.write_text(other.read_text())
    assert f"{one} belongs to another node" in refused(folder)
    one.write_text(text)
    assert "has --nodes 2, not 3" in refused(folder, "--nodes", "3")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        said = run("start", "--dir", str(folder), "--detach", status=1)
    assert said.count("\n") == 1
    assert processes_in(folder) == []
    run("start", "--dir", str(folder), "--detach")


def test_a_folder_without_a_cluster_is_named(folder: Path) -> None:
    for command in ("stop", "status", "rebalance", "add-node"):
        assert f"{folder} holds no cluster" in run(command, "--dir", str(folder), status=1)
