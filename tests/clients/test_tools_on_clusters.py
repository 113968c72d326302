"""export, load, history, report and archives on clusters, while slots move and primaries die."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import redis
from support.cluster.embedded import move, url_of, wait_for_replicas
from support.servers import eventually, python_environment

from streamd.archive.archiver import Archiver, ArchiveSettings
from streamd.archive.full_history import read_history
from streamd.archive.layout import Layout
from streamd.archive.live_stream import read_entries
from streamd.archive.manifest import Manifest
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.verify import verify_archive
from streamd.arrow.entry_table import default_table
from streamd.client.client_errors import OptionError, ServerError, UnreachableError
from streamd.client.connection import Connection, connect, find_topology, run
from streamd.client.points import MAX_ID
from streamd.client.primaries import on_primaries
from streamd.client.url_options import ConnectionOptions
from streamd.embedded import EmbeddedCluster
from streamd.transfer.partitions import scan
from streamd.transfer.read_options import SourceOptions

pytestmark = pytest.mark.long

STREAMS = 12
ENTRIES = 50


def options_of(cluster: EmbeddedCluster, *at: int, **more: str) -> ConnectionOptions:
    return ConnectionOptions.parse({"url": url_of(cluster, *at), **more})


def fill(cluster: EmbeddedCluster) -> redis.RedisCluster:
    client = cluster.client(decode_responses=True)
    with client.pipeline() as pipeline:
        for number in range(STREAMS):
            for entry in range(1, ENTRIES + 1):
                pipeline.xadd(f"s:{number}", {"n": entry}, id=f"{entry}-1")
        pipeline.execute()
    for number in range(STREAMS):
        client.xgroup_create(f"s:{number}", "g", id="0")
        client.xreadgroup("g", "c", {f"s:{number}": ">"}, count=10)
    return client


def check(client: redis.RedisCluster) -> None:
    for number in range(STREAMS):
        assert [entry_id for entry_id, _ in client.xrange(f"s:{number}")] == [f"{n}-1" for n in range(1, ENTRIES + 1)]
        assert client.xpending(f"s:{number}", "g")["pending"] == 10
        assert client.xinfo_groups(f"s:{number}")[0]["last-delivered-id"] == "10-1"


def streamd(*words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "streamd", *words],
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_streams_of_all_primaries_go_to_files_and_into_another_cluster(
    streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    one, other = streamd_start_cluster(nodes=3), streamd_start_cluster(nodes=2)
    fill(one)
    folder = tmp_path / "files"
    streamd("export", "--url", url_of(one, 1), "--pattern", "s:*", "--to", str(folder))
    assert len(list(folder.glob("*.parquet"))) == STREAMS
    streamd("load", "--url", url_of(other, 0, 1), str(folder))
    check(other.client(decode_responses=True))
    # Nothing is loaded twice, and a whole stream may replace what is there.
    streamd("load", "--url", url_of(other), str(folder))
    check(other.client(decode_responses=True))
    streamd("load", "--url", url_of(other), "--replace", "--again", str(folder))
    check(other.client(decode_responses=True))
    assert sum(1 for _ in other.client().scan_iter(match="s:*")) == STREAMS
    piped = streamd("export", "--url", url_of(one), "--pattern", "s:*", "--to", "-")
    assert len(piped.splitlines()) == STREAMS * ENTRIES


def test_history_and_report_find_the_node_of_a_stream(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(streamd_cluster)
    for number in range(STREAMS):
        lines = streamd(
            "history", f"s:{number}", "--url", url_of(streamd_cluster, number % 3), "--format", "json"
        ).splitlines()
        assert [json.loads(line)["id"] for line in lines] == [f"{n}-1" for n in range(1, ENTRIES + 1)]
        if number < 4:
            out = tmp_path / "report.json"
            streamd("report", f"s:{number}", "--url", url_of(streamd_cluster), "--out", str(out))
            assert json.loads(out.read_text())["length"] == ENTRIES


# --- What happens meanwhile ----------------------------------------------------------------------------------------------


@contextmanager
def in_background(work: Callable[[], object]) -> Iterator[threading.Event]:
    """Work again and again until the end of the block."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield is_over
    finally:
        is_over.set()
        thread.join()


def test_a_stream_that_moves_while_it_is_read_is_read_once(streamd_cluster: EmbeddedCluster) -> None:
    client = fill(streamd_cluster)
    slot = client.keyslot("s:1")
    owner = next(
        at for at, node in enumerate(streamd_cluster.nodes) if node.port == client.get_node_from_key("s:1").port
    )
    batches = read_entries(options_of(streamd_cluster), "s:1", 0, MAX_ID, default_table(), fetch_size=5, batch_rows=5)
    ids = []
    for number, batch in enumerate(batches):
        ids += batch.column(0).to_pylist()
        if number in (1, 4):
            owner = (owner + 1) % 3
            move(streamd_cluster, slot, slot, owner)
    assert ids == [f"{n}-1" for n in range(1, ENTRIES + 1)]


def mover(cluster: EmbeddedCluster) -> Callable[[], None]:
    """What moves the slots of each of three primaries to the next one."""
    turns = count(1)

    def move_all() -> None:
        turn = next(turns)
        for first in (0, 5461, 10923):
            try:
                move(cluster, first, min(first + 5460, 16383), (turn + first // 5461) % 3)
            except redis.ResponseError:  # slots that it has already
                continue

    return move_all


def test_slots_that_move_during_a_scan_hide_no_stream(streamd_cluster: EmbeddedCluster) -> None:
    fill(streamd_cluster)
    wanted = {f"s:{number}".encode() for number in range(STREAMS)}
    with in_background(mover(streamd_cluster)):
        for _ in range(5):
            assert on_primaries(options_of(streamd_cluster), lambda each: scan(each, b"s:*")) == wanted


def test_a_stream_that_moves_from_a_node_that_was_not_asked_to_one_that_was_is_found(
    streamd_cluster: EmbeddedCluster,
) -> None:
    client = fill(streamd_cluster)
    options = options_of(streamd_cluster)
    last = max(streamd_cluster.nodes, key=streamd_cluster.nodes.index)
    moved: list[bool] = []

    def scan_and_move(connection: Connection) -> set[bytes]:
        found = scan(connection, b"s:*")
        if not moved:  # at the first node, when it has been scanned
            moved.append(True)
            move(streamd_cluster, 10923, 16383, 0)
        return found

    assert any(client.get_node_from_key(f"s:{number}").port == last.port for number in range(STREAMS))
    assert on_primaries(options, scan_and_move) == {f"s:{number}".encode() for number in range(STREAMS)}


def test_what_is_sought_while_slots_move_all_the_time_fails(streamd_cluster: EmbeddedCluster) -> None:
    options = options_of(streamd_cluster, failoverTimeout="200ms", retries="1")
    with streamd_cluster.nodes[0].client() as source, streamd_cluster.nodes[1].client() as target:
        slot = next(
            at for at, owner in find_topology(options).owners.items() if owner.port == streamd_cluster.nodes[0].port
        )
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.execute_command("CLUSTER", "MYID"))
        with pytest.raises(UnreachableError, match="being moved all the time"):
            on_primaries(options, lambda each: scan(each, b"s:*"))
        source.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    assert on_primaries(options, lambda each: scan(each, b"s:*")) == set()


def test_requests_to_many_nodes_are_known_in_any_spelling(streamd_cluster: EmbeddedCluster) -> None:
    fill(streamd_cluster)
    names = [f"s:{number}" for number in range(STREAMS)]
    with connect(options_of(streamd_cluster)) as connection:
        for words in (("XREAD", "STREAMS"), (b"xread", b"streams")):
            assert len(connection.command(*words, *names, *["49-1"] * STREAMS)) == STREAMS
        found, cursor = set(), b"0"
        while True:
            cursor, keys = connection.command(b"scan", cursor)
            found.update(keys)
            if cursor == b"0":
                break
    assert found == {name.encode() for name in names}


def test_no_reply_to_an_earlier_request_is_read_after_a_node_broke(streamd_cluster: EmbeddedCluster) -> None:
    fill(streamd_cluster)
    names = [f"s:{number}" for number in range(STREAMS)]
    with connect(options_of(streamd_cluster)) as connection:
        connection.pipeline([("XLEN", name) for name in names])
        connection.at(names[0].encode()).socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(UnreachableError, match="broke"):
            connection.pipeline([("TYPE", name) for name in reversed(names)])
        assert connection.pipeline([("XLEN", name) for name in names]) == [ENTRIES] * STREAMS


NAMES = ("{a}:0", "{a}:1", "b", "c", "d", "e", "f")


def write_rows(path: Path, rows: int) -> dict[str, list[int]]:
    """A file of rows for several streams, and what each must have."""
    expected: dict[str, list[int]] = {}
    with path.open("w") as file:
        for number in range(rows):
            stream = NAMES[number * number % 23 % len(NAMES)]
            file.write(f'{{"stream": "{stream}", "n": {number}}}\n')
            expected.setdefault(stream, []).append(number)
    return expected


def numbers_of(client: redis.RedisCluster) -> dict[str, list[int]]:
    return {name: [int(fields["n"]) for _, fields in client.xrange(name)] for name in NAMES if client.exists(name)}


def test_rows_for_several_streams_are_loaded_once_however_often_the_load_is_killed(
    streamd_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    client = streamd_cluster.client(decode_responses=True)
    path = tmp_path / "rows.jsonl"
    expected = write_rows(path, 60_000)
    words = ["load", "--url", url_of(streamd_cluster, 0, 1), str(path)]
    for goal in (500, 3000, 6000):
        process = subprocess.Popen([sys.executable, "-m", "streamd", *words], env=python_environment())
        eventually(lambda goal=goal, process=process: client.xlen("c") > goal or process.poll() is not None)
        process.kill()
        process.wait()
        slot = client.keyslot("c")
        ports = [node.port for node in streamd_cluster.nodes]
        owner = ports.index(streamd_cluster.client().get_node_from_key("c").port)
        move(streamd_cluster, slot, slot, (owner + 1) % 3)
    (said,) = map(json.loads, streamd(*words, "--json").splitlines())
    assert numbers_of(client) == expected
    assert (said["rows"], said["streams"]) == (60_000, {name: len(each) for name, each in expected.items()})
    assert 0 < said["before"] <= 60_000
    streamd(*words)
    assert numbers_of(client) == expected
    streamd(*words, "--again")
    assert numbers_of(client) == {name: each * 2 for name, each in expected.items()}
    for name in NAMES:
        client.delete(name)
    streamd(*words)
    assert numbers_of(client) == expected


def test_many_streams_are_loaded_with_few_open_files(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"stream": "m{number % 150}", "n": {number}}}\n' for number in range(300)))
    words = [sys.executable, "-m", "streamd", "load", "--url", url_of(streamd_cluster), str(path)]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 120; exec "$@"', "sh", *words],
        env=python_environment(), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    client = streamd_cluster.client(decode_responses=True)
    for number in range(150):
        assert [int(fields["n"]) for _, fields in client.xrange(f"m{number}")] == [number, number + 150]


def test_a_load_that_fails_before_its_new_round_is_repeated(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    client = streamd_cluster.client(decode_responses=True)
    path = tmp_path / "rows.jsonl"
    expected = write_rows(path, 100)
    url = url_of(streamd_cluster, 0, 1)
    streamd("load", "--url", url, str(path))
    for node in streamd_cluster.nodes:
        with node.client() as each:
            each.acl_setuser("no-set", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-set"])
    for name in NAMES:
        client.delete(name)
    streamd("load", "--url", url.replace("//", "//no-set:any@"), str(path), status=1)
    streamd("load", "--url", url, str(path))
    assert numbers_of(client) == expected


def test_files_are_all_checked_before_one_is_loaded(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(streamd_cluster)
    folder = tmp_path / "files"
    streamd("export", "--url", url_of(streamd_cluster), "--pattern", "s:[12]", "--to", str(folder))
    client = streamd_cluster.client()
    client.delete("s:1", "s:2")
    words = ("load", "--url", url_of(streamd_cluster), str(folder), "--into", "t")
    assert "several streams with their groups cannot become one" in streamd(*words, status=1)
    assert not client.exists("t")


def test_a_primary_dies_while_its_stream_is_read_and_while_streams_are_found(
    streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=2000, repl_diskless_sync_delay=0)
    client = fill(cluster)
    for node in cluster.nodes[:3]:
        wait_for_replicas(cluster, node.port)
    options = options_of(cluster, 0, 1)
    owner = next(node for node in cluster.nodes if node.port == client.get_node_from_key("s:1").port)
    batches = read_entries(options, "s:1", 0, MAX_ID, default_table(), fetch_size=5, batch_rows=5)
    ids = []
    for number, batch in enumerate(batches):
        ids += batch.column(0).to_pylist()
        if number == 2:
            owner.kill()
    assert ids == [f"{n}-1" for n in range(1, ENTRIES + 1)]
    owner.restart()
    cluster.wait_until_ok()
    victim = next(node for node in cluster.nodes if node.port == client.get_node_from_key("s:2").port)
    victim.kill()
    streamd("export", "--url", url_of(cluster, 0, 1, 2), "--pattern", "s:*", "--to", str(tmp_path / "files"))
    assert len(list((tmp_path / "files").glob("*.parquet"))) == STREAMS


def use_every_tool(cluster: EmbeddedCluster, alive: int, folder: Path) -> None:
    """Those that only read; all streams are as `fill` has left them. alive: a node that runs."""
    url, ids = url_of(cluster, 0, 1, 2), [f"{n}-1" for n in range(1, ENTRIES + 1)]
    for number in range(3):
        lines = streamd("history", f"s:{number}", "--url", url, "--format", "json").splitlines()
        assert [json.loads(line)["id"] for line in lines] == ids
    out = folder / "report.json"
    streamd("report", "s:1", "--url", url, "--out", str(out))
    assert json.loads(out.read_text())["length"] == ENTRIES
    streamd("export", "--url", url, "--pattern", "s:*", "--to", str(folder / "files"), "--replace")
    assert len(list((folder / "files").glob("*.parquet"))) == STREAMS
    node = f"127.0.0.1:{cluster.nodes[alive].port}"
    done = subprocess.run(
        [sys.executable, "-m", "streamd", "doctor", node, "--json"],
        env=python_environment(), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode in (0, 1, 3), done.stderr) == (True, "")
    assert "findings" in json.loads(done.stdout)
    assert streamd("cli", "-c", "-p", str(cluster.nodes[alive].port), "PING") == "PONG\n"


def test_every_tool_while_slots_move(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(streamd_cluster)
    with in_background(mover(streamd_cluster)):
        use_every_tool(streamd_cluster, 1, tmp_path)


def test_every_tool_when_a_primary_dies(streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=2000, repl_diskless_sync_delay=0)
    client = fill(cluster)
    victim = next(node for node in cluster.nodes if node.port == client.get_node_from_key("s:1").port)
    wait_for_replicas(cluster, victim.port)
    victim.kill()
    alive = next(at for at, node in enumerate(cluster.nodes) if node is not victim)
    use_every_tool(cluster, alive, tmp_path)
    tables = json.loads(streamd("top", f"127.0.0.1:{cluster.nodes[alive].port}", "--json", "--rows", "100"))
    assert {each["stream"] for each in tables["streams"]} >= {f"s:{number}" for number in range(STREAMS)}


def test_a_load_goes_on_when_its_stream_moves(
    streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    cluster = streamd_start_cluster(
        nodes=6, replicas=1, cluster_node_timeout=2000, repl_diskless_sync_delay=0, min_replicas_to_write=1
    )
    client = cluster.client(decode_responses=True)
    rows = 60_000
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"n": {number}}}\n' for number in range(rows)))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamd", "load", "--url", url_of(cluster, 0, 1), "--into", "s", str(path)],
        env=python_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    eventually(lambda: client.xlen("s") > 1000)
    slot = client.keyslot("s")
    ports = [node.port for node in cluster.nodes]
    owner = ports.index(client.get_node_from_key("s").port)
    move(cluster, slot, slot, (owner + 1) % 3)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert client.xlen("s") == rows
    assert [int(fields["n"]) for _, fields in client.xrange("s")] == list(range(rows))


# --- Archives ---------------------------------------------------------------------------------------------------------------

RUN = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0, merge_files=2, checkpoint_every=1)


def archived(path: Path, number: int, cluster: EmbeddedCluster) -> list[str]:
    """The IDs of a stream, from its archive and its node."""
    found = read_history(
        SourceOptions.parse({"url": url_of(cluster, 0, 1), "stream": f"s:{number}", "archive": str(path)}),
        default_table(),
    )
    return [entry_id for batch in found for entry_id in batch.column(0).to_pylist()]


def test_the_streams_of_a_cluster_are_archived_verified_and_read_again(
    streamd_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    client, path, url = fill(streamd_cluster), tmp_path / "a", url_of(streamd_cluster)
    for number in range(STREAMS):
        client.xgroup_destroy(f"s:{number}", "g")
    words = ("--url", url, "--pattern", "s:*", "--keep", "0s", "--trim-delay", "0s")
    streamd("archive", "run", str(path), *words)
    assert [client.xlen(f"s:{number}") for number in range(STREAMS)] == [0] * STREAMS
    for number in range(STREAMS):
        client.xadd(f"s:{number}", {"n": ENTRIES + 1}, id=f"{ENTRIES + 1}-1")
    found = json.loads(streamd("archive", "status", str(path), "--url", url, "--max-age", "1h", "--json"))
    assert [(each["rows"], each["on_server"], each["behind_entries"]) for each in found] == [(ENTRIES, 1, 1)] * STREAMS
    assert streamd("archive", "verify", str(path), "--live", "--url", url).count(": valid;") == STREAMS
    lines = streamd("history", "s:3", "--archive", str(path), "--url", url, "--format", "json").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"{n}-1" for n in range(1, ENTRIES + 2)]
    streamd("archive", "delete", str(path), "s:3", "--id", "7-1", "--yes", "--url", url)
    streamd("archive", "restore", str(path), "s:3", "--into", "again", "--url", url)
    assert client.xlen("again") == ENTRIES - 1
    # A load into the stream, and one name of the data, whichever node is asked.
    assert {log.server_id for log in logs_of(path)} == {client.get("streamd:archive:server")}
    client.delete("s:5")
    client.xadd("s:5", {"n": 1}, id="99-1")
    assert "recreated" in streamd("archive", "run", str(path), *words, status=1)


def logs_of(path: Path) -> list[Manifest]:
    layout = Layout(path)
    return [last for stream in archived_streams(layout) if (last := ManifestLog.read(layout, stream).last) is not None]


@pytest.mark.parametrize(
    "step", ["locked", "staged", "moved", "pending", "committed", "trimming", "merge moved", "pruned"]
)
def test_a_slot_moves_during_a_run(streamd_cluster: EmbeddedCluster, tmp_path: Path, step: str) -> None:
    client, options = streamd_cluster.client(decode_responses=True), {"url": url_of(streamd_cluster), "stream": "s:1"}
    slot = client.keyslot("s:1")
    owners = [node.port for node in streamd_cluster.nodes]
    moved: list[str] = []

    def hook(name: str) -> None:
        if name == step and not moved:
            moved.append(name)
            move(streamd_cluster, slot, slot, (owners.index(client.get_node_from_key("s:1").port) + 1) % 3)

    ids = []
    for start in (1, 31, 61):
        for entry in range(start, start + 30):
            ids.append(client.xadd("s:1", {"n": entry}, id=f"{entry}-1"))
        (report,) = Archiver(str(tmp_path / "a"), options, RUN, hook=hook).run().streams
        assert (report.status, report.error, report.rows, report.trimmed) == ("archived", None, 30, 30)
    assert moved
    assert archived(tmp_path / "a", 1, streamd_cluster) == ids
    assert verify_archive(Layout(tmp_path / "a"), "s:1").is_whole
    assert client.xlen("s:1") == 0
    assert not [*client.scan_iter("streamd:archive:lock:*")]


@pytest.mark.parametrize("step", ["locked", "staged", "pending", "committed", "trimming"])
def test_a_primary_dies_during_a_run(
    streamd_start_cluster: Callable[..., EmbeddedCluster], tmp_path: Path, step: str
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=2000, repl_diskless_sync_delay=0)
    client, path = fill(cluster), tmp_path / "a"
    for number in range(STREAMS):
        client.xgroup_destroy(f"s:{number}", "g")
    options = {"url": url_of(cluster, 0, 1, 2), "streamPattern": "s:*"}
    by_port = {node.port: node for node in cluster.nodes}
    victims: list[int] = []

    def hook(name: str) -> None:
        if name == step and not victims:
            victims.append(client.get_node_from_key("s:1").port)
            wait_for_replicas(cluster, victims[0])
            by_port[victims[0]].kill()

    (first,) = Archiver(str(path), {"url": options["url"], "stream": "s:1"}, RUN, hook=hook).run().streams
    assert (first.status, first.error, first.rows) == ("archived", None, ENTRIES)
    report = Archiver(str(path), options, RUN).run()
    assert [each.error for each in report.streams] == [None] * STREAMS
    assert victims
    for number in range(STREAMS):
        assert archived(path, number, cluster) == [f"{n}-1" for n in range(1, ENTRIES + 1)]
        assert verify_archive(Layout(path), f"s:{number}").is_whole


def test_another_run_holds_the_lock_of_a_stream_of_a_cluster(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(streamd_cluster)
    options = {"url": url_of(streamd_cluster), "stream": "s:1"}
    inner: list[str | None] = []

    def hook(name: str) -> None:
        if name == "staged":
            inner.append(Archiver(str(tmp_path / "a"), options, RUN).run().streams[0].error_kind)

    assert Archiver(str(tmp_path / "a"), options, RUN, hook=hook).run().streams[0].error is None
    assert inner == ["LockedError"]


# --- What is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("archive", "run", "{dir}/a", "--stream", "s", "--primary", "redis://h"), "--primary has no meaning"),
        (("load", "{dir}/other.jsonl"), "{dir}/other.jsonl does not say which stream it is of: --into does"),
        (("export", "missing", "--to", "{dir}/x"), "there is no stream 'missing'"),
    ],
)  # fmt: skip
def test_what_is_not_done_on_clusters_is_refused_in_one_line(
    streamd_cluster: EmbeddedCluster, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    (tmp_path / "other.jsonl").write_text('{"n": 1}\n')
    said = streamd(*(each.format(dir=tmp_path) for each in words), "--url", url_of(streamd_cluster), status=1)
    assert text.format(dir=tmp_path) in said
    assert said.count("\n") == 1


def test_a_cluster_that_cannot_be_reached_is_named_in_one_line() -> None:
    options = ConnectionOptions.parse(
        {"url": "redis+cluster://127.0.0.1:1,127.0.0.1:2", "failoverTimeout": "100ms", "retries": "0"}
    )
    with pytest.raises(
        UnreachableError, match=r"^no node of the cluster of 127\.0\.0\.1:1, 127\.0\.0\.1:2 describes the cluster: "
    ):
        connect(options)


def test_a_wrong_password_is_not_tried_again(streamd_start_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = streamd_start_cluster(nodes=1, requirepass="secret")
    with pytest.raises(ServerError, match="WRONGPASS"):
        connect(options_of(cluster, password="wrong"))
    assert run(options_of(cluster, password="secret").at("k"), lambda each: each.command("PING")) == b"PONG"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "redis+cluster://h/3"}, "a cluster has only the database 0"),
        ({"clusterNodes": "h:1", "host": "h"}, "cannot be combined with the nodes of a cluster"),
        ({"clusterNodes": "h:1", "sentinels": "h:1"}, "cannot be combined with clusterNodes"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        ConnectionOptions.parse(options)
