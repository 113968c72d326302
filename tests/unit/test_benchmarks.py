"""The small parts of the benchmarks, so that they do not rot: counting replies, the load, cases, tables and pictures.

No figure is looked at: what takes how long is not for tests.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import types
import xml.dom.minidom
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import crowding, report, servers
from benchmarks import types as types_script
from benchmarks.__main__ import SCRIPTS
from benchmarks.__main__ import main as run_all
from benchmarks.cases import Case, Cell, Row, Sample, ensure_stream, fill, measure, run_cases
from benchmarks.load import (
    Counter,
    ErrorReply,
    Requests,
    library,
    make_request,
    open_connections,
    run_fan,
    run_loop,
)
from benchmarks.pubsub import Times
from benchmarks.script import command
from benchmarks.servers import Server, describe_machine, start_server

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator needs a C compiler")

ENTRY = b"*2\r\n$3\r\n1-0\r\n*4\r\n$1\r\na\r\n$1\r\n7\r\n$1\r\nb\r\n$5\r\nx\r\nyz\r\n"
REPLIES = {
    "status": (b"+OK\r\n", 1, 0, 0),
    "error": (b"-ERR no such thing\r\n", 1, 0, 1),
    "integers": (b":1\r\n:-2\r\n", 2, 0, 0),
    "bulk with line ends": (b"$6\r\n\r\n*1\r\n\r\n", 1, 0, 0),
    "empty and null": (b"$0\r\n\r\n$-1\r\n*0\r\n*-1\r\n", 4, 0, 0),
    "range": (b"*2\r\n" + ENTRY + ENTRY, 1, 0, 0),
    "nested and empty": (b"*3\r\n*0\r\n*1\r\n*-1\r\n$-1\r\n", 1, 0, 0),
    "error inside": (b"*2\r\n-WRONGTYPE no\r\n+OK\r\n", 1, 0, 1),
    "map": (b"%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n%0\r\n", 1, 0, 0),
    "scalars of RESP3": (b"_\r\n,3.5\r\n#t\r\n(123456789012345678901\r\n=7\r\ntxt:abc\r\n~1\r\n:1\r\n", 6, 0, 0),
    "push between": (b"+OK\r\n>3\r\n+message\r\n+c\r\n$2\r\nhi\r\n+OK\r\n", 2, 1, 0),
    "attribute": (b"|1\r\n+ttl\r\n:5\r\n*2\r\n|1\r\n+k\r\n*1\r\n:1\r\n:1\r\n:2\r\n", 1, 0, 0),
    "empty attribute": (b"|0\r\n+OK\r\n", 1, 0, 0),
}


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(servers.__file__).parent.glob("[a-z]*.py")))
def test_every_script_finds_what_it_needs(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(autouse=True)
def _this_process_as_it_was() -> Iterator[None]:
    """The commands keep this process on one processor and see to SIGTERM; other tests shall not find it so."""
    handler = signal.getsignal(signal.SIGTERM)
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    signal.signal(signal.SIGTERM, handler)
    if processors is not None:
        os.sched_setaffinity(0, processors)


# --- Counting replies ------------------------------------------------------------------------------------------------


def counted(*pieces: bytes) -> tuple[int, int, int]:
    counter = Counter()
    for piece in pieces:
        counter.feed(piece)
    return counter.replies, counter.pushes, counter.errors


@pytest.mark.parametrize("name", REPLIES)
def test_replies_are_counted_however_they_are_cut(name: str) -> None:
    data, *expected = REPLIES[name]
    assert counted(data) == tuple(expected)
    assert counted(*(data[i : i + 1] for i in range(len(data)))) == tuple(expected)
    for at in range(len(data)):
        assert counted(data[:at], data[at:]) == tuple(expected)


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_counts_when_its_last_byte_is_there(name: str) -> None:
    data, replies, pushes, _ = REPLIES[name]
    found = counted(data[:-1])
    assert sum(found[:2]) == replies + pushes - 1


def test_what_is_no_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="not replies"):
        counted(b"hello\r\n")
    with pytest.raises(ValueError, match="not replies"):
        counted(b"*1\r\n" * 100)


def test_buckets_hold_the_values_that_they_begin_with() -> None:
    bounds = [library().histogram_lower_bound(i) for i in range(library().histogram_buckets())]
    assert bounds == sorted(set(bounds))
    assert all(high - low <= max(1, low // 31) for low, high in pairwise(bounds))


def test_requests_are_repeated_whole() -> None:
    made = Requests([b"one", b"three"]).at_least(3)
    assert len(made) == 4
    assert list(made.offsets) == [0, 3, 8, 11, 16]
    assert made.data == b"onethreeonethree"


# --- The load, against streamd ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with start_server("streamd") as running:
        yield running


@pytest.mark.parametrize(("connections", "depth", "total"), [(1, 1, 7), (3, 4, 50), (5, 100, 333)])
def test_the_closed_loop_sends_exactly_what_is_asked(server: Server, connections: int, depth: int, total: int) -> None:
    server.send("DEL", "s")
    requests = Requests(make_request("XADD", "s", "*", "f", i) for i in range(10))
    with open_connections(server.port, connections) as socks:
        done = run_loop(socks, requests, total, depth=depth, is_timed=True)
    assert done.replies == total
    assert server.send("XLEN", "s") == b":%d\r\n" % total
    assert 0 < done.times.percentile_us(0.5) <= done.times.percentile_us(1.0)


def test_one_connection_keeps_the_order(server: Server) -> None:
    server.send("DEL", "s")
    with open_connections(server.port) as socks:
        run_loop(socks, Requests(make_request("XADD", "s", f"{i}-0", "f", "v") for i in range(1, 1000)), depth=7)
    assert server.send("XLEN", "s") == b":999\r\n"


def test_more_than_the_sockets_hold_is_under_way(server: Server) -> None:
    large = make_request("ECHO", b"x" * 1_000_000)
    with open_connections(server.port, 2) as socks:
        done = run_loop(socks, Requests([large]), 64, depth=16)
    assert done.replies == 64
    assert done.bytes_in > 64_000_000
    assert done.bytes_out > 64_000_000


def test_the_first_error_reply_ends_a_run(server: Server) -> None:
    requests = Requests([make_request("PING"), make_request("NO-SUCH"), make_request("PING")])
    with open_connections(server.port) as socks, pytest.raises(ErrorReply, match=r"^ERR unknown command 'NO-SUCH'"):
        run_loop(socks, requests, depth=3)


def test_a_connection_that_the_server_closes_is_reported(server: Server) -> None:
    with (
        open_connections(server.port) as socks,
        pytest.raises(ConnectionError, match="the server has closed a connection"),
    ):
        run_loop(socks, Requests([make_request("QUIT")]), 2)


def test_messages_to_listeners_are_counted(server: Server) -> None:
    with open_connections(server.port, 4) as (sender, *listeners):
        subscribe = Requests([make_request("SUBSCRIBE", "c")])
        run_loop(listeners, subscribe, len(listeners))
        publish = Requests([make_request("PUBLISH", "c", "hello")])
        done = run_fan(sender, listeners, publish, 20, expected=30, depth=10, window=2)
    assert done.messages == 20 * 10 * len(listeners)


def test_listeners_answer_and_a_barrier_keeps_rounds_apart(server: Server) -> None:
    server.send("DEL", "s")
    with open_connections(server.port, 3) as (sender, *listeners):
        waits = Requests(make_request("XREAD", "BLOCK", 0, "STREAMS", "s", f"{i}-0") for i in range(52))
        for sock in listeners:
            sock.sendall(waits.data[: waits.offsets[1]])
        adds = Requests(make_request("XADD", "s", f"{i}-0", "f", "v") for i in range(1, 51))
        ping = make_request("PING")
        done = run_fan(sender, listeners, adds, 50, expected=2, answers=waits, barrier=ping, is_timed=True)
        assert done.messages == 100
        assert done.times.total == 50
        run_loop([sender], Requests([ping]))


def test_an_answer_that_has_not_been_sent_whole_is_not_forgotten() -> None:
    sender, publisher = socket.socketpair()
    listener, subscriber = socket.socketpair()

    def serve() -> None:
        publisher.recv(100)
        subscriber.sendall(b"+one\r\n")
        subscriber.recv(1)  # the answer has begun to come; more than a byte of it is never read
        subscriber.sendall(b"+two\r\n")
        publisher.sendall(b"+PONG\r\n")

    answers = Requests([b"", b"x" * 50_000_000])
    peer = threading.Thread(target=serve)
    with sender, publisher, listener, subscriber:
        peer.start()
        with pytest.raises(RuntimeError, match="before its answer"):
            run_fan(sender, [listener], Requests([make_request("PING")]), 1, expected=2, answers=answers)
        peer.join()


def test_cpu_and_memory_are_those_of_the_server(server: Server) -> None:
    before = server.cpu_s()
    measure(server, Requests([make_request("PING")]), 5000, connections=2, depth=100)
    assert 0 < server.cpu_s() - before < 60
    assert server.rss_bytes() > 1_000_000
    assert "streamd" in describe_machine(server, rounds=1)


# --- Cases and reports -----------------------------------------------------------------------------------------------


def ping(server: Server, scale: float) -> Sample:
    return measure(server, Requests([make_request("PING")]), int(100 * scale), connections=2, depth=5)


def lacking(server: Server, scale: float) -> Sample:
    return measure(server, Requests([make_request("NO-SUCH")]), 1)


def test_a_server_that_lacks_a_command_has_an_empty_cell() -> None:
    rows = run_cases([Case("there", ping), Case("not there", lacking)], ["streamd"], rounds=2, scale=1.0)
    assert rows[0].cells["streamd"].figure > 0
    assert rows[0].cells["streamd"].per_s > 0
    assert not rows[1].cells
    assert rows[1].lacking["streamd"].startswith("ERR unknown command")


def test_other_errors_end_the_run() -> None:
    def wrong(server: Server, scale: float) -> Sample:
        return measure(server, Requests([make_request("XADD", "s", "0-0", "f", "v")]), 1)

    with pytest.raises(ErrorReply, match="must be greater than 0-0"):
        run_cases([Case("wrong", wrong)], ["streamd"])


def test_a_stream_is_filled_as_asked(server: Server) -> None:
    server.send("DEL", "s")
    fill(server, "s", 2050, first=998, step=3)
    assert server.send("XLEN", "s") == b":2050\r\n"
    entry = b"*1\r\n*2\r\n$%d\r\n%b\r\n*4\r\n$1\r\na\r\n$%d\r\n%b\r\n$1\r\nb\r\n$3\r\nxyz\r\n"
    assert server.send("XRANGE", "s", "-", "+", "COUNT", 1) == entry % (5, b"998-0", 3, b"998")
    assert server.send("XREVRANGE", "s", "+", "-", "COUNT", 1) == entry % (6, b"7145-0", 2, b"47")


def test_a_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "END_DEADLINE_S", 0.01)
    with start_server("streamd") as stopped:
        os.kill(stopped.pid, signal.SIGSTOP)
    with pytest.raises(ProcessLookupError, match="No such process"):
        os.kill(stopped.pid, 0)


def test_cases_are_prepared_once_unless_they_stand_alone() -> None:
    prepared = []

    def prepare(server: Server, scale: float) -> None:
        prepared.append(server.pid)
        ensure_stream(server, "s", 10)
        ensure_stream(server, "s", 10)
        assert server.send("XLEN", "s") == b":10\r\n"

    run_cases([Case("shared", ping, prepare=prepare)], ["streamd"], rounds=2)
    assert len(prepared) == 1
    run_cases([Case("alone", ping, prepare=prepare, is_alone=True)], ["streamd"], rounds=2)
    assert len(set(prepared)) == 3


def test_a_case_is_measured_on_the_servers_that_it_is_for() -> None:
    rows = run_cases(
        [Case("theirs", ping, names=("redis",)), Case("ours", ping, names=("streamd",))], ["streamd"], rounds=1
    )
    assert [[*row.cells] for row in rows] == [[], ["streamd"]]


def published(server: Server) -> int:
    """Calls of PUBLISH so far."""
    found = re.match(r"calls=(\d+)", server.info("commandstats").get("cmdstat_publish", ""))
    return int(found[1]) if found else 0


def test_percentiles_that_are_cases_of_their_own_tell_of_the_same_messages(server: Server) -> None:
    times, before = Times(3, 1000), published(server)
    median, longest = Case("a", times.percentile(0.5), by="us"), Case("b", times.percentile(1.0), by="us")
    bounds = [[case.figure_of(case.run(server, 0.05)) for _ in range(2)] for case in (median, longest)]
    assert published(server) - before == 2 * 50
    assert all(0 < middle <= most for middle, most in zip(*bounds, strict=True))


def test_a_percentile_has_no_rate() -> None:
    (row,) = run_cases([Case("a", Times(1, 1000).percentile(0.9), by="us")], ["streamd"], rounds=1, scale=0.05)
    cell = row.cells["streamd"]
    assert (cell.per_s, cell.bottleneck) == (0, "")
    assert report.show(cell.figure, row.by).endswith(" us")


def test_a_case_is_judged_by_what_is_known() -> None:
    with pytest.raises(ValueError, match="not by"):
        Case("odd", ping, by="feeling")


@pytest.fixture
def rows() -> list[Row]:
    def cell(figure: float, per_s: float = 0.0, **more: float) -> Cell:
        return Cell(figure, 0.05, per_s, figure, **more)

    short = Row("append", "XADD <P=1> | &c", aim=1.5, cells={"streamd": cell(8, 100, server_share=0.95), "redis": cell(9, 90)})  # fmt: skip
    good = Row("append", "XADD, P=16", aim=1.3, cells={"streamd": cell(1, 100, load_share=0.95), "redis": cell(2, 50)})
    good.cells["valkey"] = cell(3, 40)
    good.lacking["redis-7.0"] = "ERR unknown command 'X'"
    large = Row("memory", "bytes", "bytes", 4, 60, {"streamd": Cell(61), "redis": Cell(610)})
    alone = Row("memory", "only here", "ms", cells={"streamd": Cell(0.2)})
    return [short, good, large, alone]


def test_rows_are_held_against_their_aims(rows: list[Row]) -> None:
    assert [row.is_short for row in rows] == [True, False, True, False]
    assert [row.ratio() for row in rows] == [9 / 8, 2, 10, None]
    assert rows[0].ratio(of="per_s") == 100 / 90
    assert rows[1].ratio("valkey") == 2 / 3
    assert rows[0].cells["streamd"].bottleneck == "server"
    assert rows[1].cells["streamd"].bottleneck == "load"
    assert Cell(1, per_s=1, server_share=0.95, load_share=0.95).bottleneck == "both"
    assert rows[1].cells["redis"].bottleneck == "neither"
    assert rows[2].cells["redis"].bottleneck == ""


def test_a_run_is_written_and_read_again(rows: list[Row], tmp_path: Path) -> None:
    for script in ("append", "memory"):
        (tmp_path / f"{script}.svg").write_text("<svg/>")
    report.write(tmp_path, rows, "machine   one\nversions  many", ["memory"])
    page = (tmp_path / "table.md").read_text()
    assert "1 of 3 paths that have an aim reach it" in page
    assert "Short: XADD <P=1> | &c: 8 us, ratio 1.12; the aim is 1.5." in page
    assert "Empty: XADD, P=16: Redis 7.0 lacks it (ERR unknown command 'X')." in page
    assert "| XADD <P=1> \\| &c * | 8 us |" in page
    assert "(memory.svg)" in page
    assert "(append.svg)" not in page, "that is of an earlier run"
    for name in ("ratios.svg", "ratios-append.svg", "ratios-memory.svg"):
        assert f"({name})" in page
        xml.dom.minidom.parse(str(tmp_path / name))
    found = json.loads((tmp_path / "results.json").read_text())
    assert report.rows_of(found["rows"]) == rows
    result = CliRunner().invoke(report.main, [str(tmp_path / "results.json")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "table.md").read_text() == page


def test_rows_without_any_ratio_make_a_page_without_a_picture(rows: list[Row], tmp_path: Path) -> None:
    report.write(tmp_path, rows[3:], "machine   one")
    assert not list(tmp_path.glob("*.svg"))
    assert "svg" not in (tmp_path / "table.md").read_text()


def test_the_command_of_a_script_prints_a_table(tmp_path: Path) -> None:
    main = command([Case("PING, some", ping, 1.0), Case("other", ping)], "What it is.\n\nMore.", "tiny")
    file = tmp_path / "rows.json"
    done = CliRunner().invoke(main, ["--quick", "--servers", "streamd", "--only", "some", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "PING, some" in done.output
    assert "other" not in done.output
    assert [row["name"] for row in json.loads(file.read_text())] == ["PING, some"]


def test_all_scripts_together_write_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = types.ModuleType("benchmarks.tiny")
    tiny.CASES = [Case("PING, some", ping, 1.0), Case("PING, alone", ping, is_alone=True)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.tiny", tiny)
    arguments = ["--quick", "--scripts", "tiny", "--servers", "streamd", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(run_all, arguments)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "table.md").read_text()
    assert "| PING, some |" in page
    assert "| PING, alone |" in page
    assert "streamd 0." in page


def test_a_script_that_is_not_there_is_reported_before_anything_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        run_all, ["--scripts", "append,no_such", "--servers", "streamd", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 2
    assert "there is no script 'no_such'" in done.output
    assert not (tmp_path / "out").exists()


def test_every_script_has_cases_with_names_of_their_own() -> None:
    names = [case.name for script in SCRIPTS for case in importlib.import_module(f"benchmarks.{script}").CASES]
    assert len(names) == len(set(names))


def test_the_script_of_types_measures_requests_waiting_clients_and_memory() -> None:
    cases = {case.name: case for case in types_script.CASES}
    assert len(cases) == len(types_script.CASES)
    names = ("HGET", "LPOP", "ZRANK in 1M", "BZPOPMIN, 1 waits", "bytes of a list of 10")
    rows = run_cases([cases[name] for name in names], ["streamd"], rounds=1, scale=0.002)
    assert [row.name for row in rows] == list(names)
    assert all(row.cells["streamd"].per_s for row in rows[:4])
    assert rows[4].cells["streamd"].figure > 0


def test_members_of_the_script_of_types_are_different_and_of_one_length() -> None:
    members = [types_script.member(at) for at in range(1000)]
    assert len(set(members)) == 1000
    assert {len(each) for each in members} == {16}


# --- Crowds ------------------------------------------------------------------------------------------------------------


def test_pings_are_measured_while_a_crowd_reads_and_while_it_does_not() -> None:
    with start_server("streamd") as server:
        for reads in (True, False):
            crowd = crowding.Crowd(crowding.repeated(b"nothing at all\r\n", 10_000), reads=reads)
            delays, times = crowding.measure(server, crowd, 2.5)
            assert delays.ordered
            assert times > 0
        assert crowding.measure(server, crowding.CROWDS["nothing"], 0.01)[1] == 0
        assert int(server.info("stats")["total_error_replies"]) > 0
