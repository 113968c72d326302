"""The blocks of the pages for the shell, and the programs beside them, typed word for word on a machine as the pages assume it.

What a page says that is printed is compared with what was printed; figures and times may differ.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages.reader import ROOT, Reader, block, missing
from support.servers import eventually

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

DAY_MS = 86_400_000
FIRST_MS = 1_767_225_600_000
"""2026-01-01: the pages ask for entries from then on."""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path) as found:
        yield found


def is_like(printed: str, shown: str) -> bool:
    """Whether these lines, except for figures and their units, are among those printed, one after the other."""
    figure = r"\d(?:[\d,.]*\d)?(?: (?:d|h|min|ms|us|s|bytes|[KMG]iB)\b)?"

    def pattern(part: str) -> str:
        return figure if part[:1].isdigit() else " +" if not part.strip(" ") else re.escape(part)

    parts = filter(None, re.split(f"({figure}| +)", shown.strip()))
    return re.search("".join(map(pattern, parts)), printed) is not None


def add_readings(reader: Reader, key: str = "readings") -> None:
    """Twenty entries of two days, and one of now."""
    ids = [f"{FIRST_MS + at * DAY_MS // 10}-0" for at in range(20)]
    lines = [f"XADD {key} {each} sensor room-{at % 2} celsius {19 + at}.5\n" for at, each in enumerate([*ids, "*"])]
    reader.run("redis-cli", "".join(lines))


def length(reader: Reader, key: str, where: str = "") -> int:
    return int(reader.run(f"redis-cli {where} XLEN {key}"))


@pytest.fixture
def served(reader: Reader) -> Reader:
    """A server with the stream `readings`."""
    reader.start("streamd server --port 6379")
    add_readings(reader)
    return reader


# Archives


def test_an_archive(served: Reader) -> None:
    served.type(block("docs/archive.md", "./install '.[archive]'"))
    printed = served.type(
        block("docs/archive.md", "streamd archive run /var/lib/archive --pattern 'readings*' --keep 2d"), "y\n"
    )
    assert '"rows": 20' in printed
    assert "readings: valid; 20 entries" in printed
    assert length(served, "lost") == 10
    assert length(served, "readings") == 20, "one was deleted"
    assert printed.splitlines()[-1].startswith('"1767389760000-0",1767389760000,0,')

    listed = {line.split("/")[0].split()[0] for line in block("docs/archive.md", "archive.json").splitlines()}
    made = {each.name for each in (served.lib / "archive").iterdir()}
    assert made <= listed
    assert {"archive.json", "data", "_manifest"} <= made

    history = served.type(block("docs/archive.md", "streamd history readings --archive").splitlines()[0])
    assert [json.loads(line)["fields"]["celsius"] for line in history.splitlines()] == ["39.5"]
    printed = served.python(block("docs/archive.md", "from streamd.archive.archiver"))
    assert printed == "0 True\n"


@pytest.mark.slow
@pytest.mark.spark
def test_a_history_by_spark(served: Reader) -> None:
    served.environment["PATH"] += f":{os.environ['PATH']}"
    served.run("streamd archive run /var/lib/archive --pattern readings")
    printed = served.type(block("docs/archive.md", "streamd history readings --archive"))
    assert re.findall(r"  (\d+\.\d)$", printed, re.MULTILINE) == [f"{celsius}.5" for celsius in range(30, 40)]


def test_an_archive_by_a_replica(served: Reader) -> None:
    served.start("streamd server --port 6379 --bind 127.0.0.3 --replicaof 127.0.0.1 6379")
    eventually(lambda: length(served, "readings", "-h replica") == 21)
    printed = served.type(block("docs/archive.md", "streamd archive run /var/lib/archive --pattern 'readings*' --url"))
    assert "readings: 20 entries" in printed


def test_an_archive_in_a_store(served: Reader) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    (endpoint,) = re.findall(r"AWS_ENDPOINT_URL=(\S+)", block("docs/archive.md", "s3  Amazon S3"))
    served.environment |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    served.environment["AWS_ENDPOINT_URL"] = endpoint
    served.start(f"{sys.executable} -m moto.server -H 127.0.0.4 -p 9000")
    make = f"curl -s -o made -w '%{{http_code}}' -X PUT {endpoint}/bucket || true"
    eventually(lambda: served.run(make) == "200")
    printed = served.type(block("docs/archive.md", "./install '.[store]'"))
    assert "readings: 20 entries" in printed
    assert "celsius=39.5" in printed, "the entry that is not archived"


def test_tables_of_an_archive(served: Reader) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("deltalake")
    served.run(f"redis-cli XADD orders {FIRST_MS}-0 user ann amount 9.5 at 2026-01-01T00:00:00Z")
    served.run("streamd archive run /var/lib/archive --pattern '*'")
    assert "iceberg: 3 files of 2 streams" in served.type(block("docs/archive.md", "./install '.[tables]'"))
    served.type(block("docs/archive.md", "streamd archive publish /var/lib/archive --format delta --stream orders"))
    program = (
        block("docs/archive.md", "import deltalake")
        + "assert (readings.num_rows, everything.num_rows) == (20, 20)\n"
        + "key = 'a2V5'\n"
        + block("docs/archive.md", "settings = {")
        + block("docs/archive.md", "orders = deltalake")
        + "print(amounts.drop(['time']).to_pylist(), flush=True)\n"
        # Threads of pyarrow may still let go of deltalake's files when the interpreter ends, which then aborts, once in
        # some hundred times. No code of streamd runs in this process: leave without the interpreter's end.
        + "__import__('os')._exit(0)\n"
    )
    assert served.python(program) == "[{'user': 'ann', 'amount': 9.5}]\n"


# Files


def test_export(served: Reader) -> None:
    served.start("streamd server --port 6380 --dir /var/lib")
    add_readings(served, "alerts")
    served.run("redis-cli XGROUP CREATE readings workers 0")
    served.type(block("docs/moving-data.md", "streamd export readings alerts"))
    for each in ("readings", "alerts"):
        assert length(served, each, "-p 6380") == 21
        assert served.run(f"redis-cli -p 6380 XINFO STREAM {each} FULL") == served.run(
            f"redis-cli XINFO STREAM {each} FULL"
        )
    assert served.run("zcat readings.csv.gz").count("\n") == 22


def test_history_to_others(served: Reader) -> None:
    served.write(served.programs / "my-program", "exec cat\n")
    printed = served.type(
        block("docs/moving-data.md", "streamd history readings").replace("my-program", "my-program | wc -c")
    )
    assert int(printed) > 100
    assert (served.home / "readings.csv").read_text().count("\n") == 22


def test_load(reader: Reader) -> None:
    reader.start("streamd server --port 6379")
    table = "{'entry_id': ['1-1', '2-1'], 'device': ['a', 'b'], 'celsius': [1.5, 2.5]}"
    reader.python(
        f"import pyarrow, pyarrow.parquet\npyarrow.parquet.write_table(pyarrow.table({table}), 'rows.parquet')"
    )
    (reader.home / "one.csv").write_text("sensor,celsius\na,1\nb,\n")
    reader.run("""printf '{"sensor": "a"}\\n' | gzip > rows.jsonl.gz""")
    reader.type(block("docs/moving-data.md", "streamd load rows.parquet"))
    assert length(reader, "readings") == 5
    assert reader.run("redis-cli XRANGE a - +") == "1-1\ncelsius\n1.5\n"


# Servers


@pytest.mark.real("8.6")
def test_from_redis_and_back(reader: Reader) -> None:
    reader.start("redis-server --port 6379 --bind 127.0.0.2 --protected-mode no --save ''")
    keys = [f"VADD session:{at} VALUES 3 1 2 3 ann" for at in range(50)] + [f"SET k:{at} v" for at in range(5000)]
    keys += ["SELECT 1", *(f"XADD s:{at} * a b" for at in range(101))]
    reader.run("redis-cli -h old-host", "\n".join(keys))
    reader.type(block("docs/migration.md", "mkdir -p /var/lib/streamd"))
    printed = reader.run(
        block("docs/migration.md", "streamd import redis://old-host:6379 --to redis://localhost:6380\n"), status=1
    )
    assert is_like(printed, block("docs/migration.md", "The source is Redis"))

    followed = reader.type(
        block("docs/migration.md", "streamd import redis://old-host:6379 --to redis://localhost:6380 --skip"), "\n"
    )
    assert reader.run("redis-cli -p 6380 DBSIZE") == "5000\n", followed
    assert reader.run("redis-cli -p 6380 ROLE").startswith("master")

    reader.run("redis-cli -h old-host SHUTDOWN NOSAVE")
    server, info, *rest = block("docs/migration.md", "redis-server --port 6379").splitlines()
    reader.type(server)
    eventually(lambda: "master_link_status:up" in reader.type(info))
    assert reader.type("\n".join(rest)) == "OK\nOK\n"
    assert reader.run("redis-cli DBSIZE; redis-cli -n 1 DBSIZE; redis-cli ROLE").startswith("5000\n101\nmaster\n")


def test_a_primary_and_a_replica(reader: Reader) -> None:
    *servers, info = block("docs/replication.md", "mkdir -p /var/lib/streamd-1").splitlines()
    reader.type("\n".join(servers))
    assert "role:slave" in reader.type(info)
    eventually(lambda: "master_link_status:up" in reader.type(info))
    reader.run("redis-cli SET k v && redis-cli WAIT 1 0")
    assert reader.run("redis-cli -p 6380 GET k") == "v\n"


def test_the_search_that_finds_a_loss(reader: Reader) -> None:
    *_, quick = block("docs/replication.md", "python -m tests.support.failover.protocol").splitlines()
    assert "WRONG" in reader.run(f"cd {ROOT}; {quick} || true")


def test_the_doctor(reader: Reader) -> None:
    command, *shown, rest = block("docs/watching.md", "$ streamd doctor").splitlines()
    assert rest == "..."
    reader.start("streamd server --port 6379")
    old = "".join(f"XADD orders {FIRST_MS}-{at} a b\n" for at in range(5000))
    reader.run("redis-cli", old + "XGROUP CREATE orders billing 0\nXADD others * a b\nXGROUP CREATE others all $\n")
    reader.start("while :; do echo XADD orders '*' a b; sleep 0.01; done | redis-cli")
    reader.start(
        "while :; do echo XREADGROUP GROUP billing one COUNT 1 STREAMS orders '>'; sleep 0.1; done | redis-cli"
    )
    found = f"{command.removeprefix('$ ')} || [ $? = 3 ]"
    eventually(lambda: is_like(reader.run(found), "\n".join(shown)), what="growing lag")


def test_the_top(reader: Reader) -> None:
    """Its output is a pipe here, so it prints once: what is on the screen, without the line of tabs and the sort mark."""
    command, head, rates, _, columns, *_ = block("docs/watching.md", "$ streamd top").splitlines()
    reader.start("streamd server --port 6379")
    reader.run("redis-cli", f"XADD orders {FIRST_MS}-0 a b\nXGROUP CREATE orders billing 0\n")
    printed = reader.type(command)
    assert is_like(printed, f"{head.strip()}\n{rates.strip()}")
    assert columns.replace("*", "").split() in [line.split() for line in printed.splitlines()]


def test_metrics(reader: Reader) -> None:
    assert 'streamd_server_info{redis_version="8.6.3"' in reader.type(
        block("docs/watching.md", "$ streamd server --metrics-port")
    )


@pytest.mark.parametrize("page", ["docs/console.md", "docs/watching.md"])
def test_the_console(reader: Reader, page: str) -> None:
    shown = {
        "docs/console.md": block("docs/console.md", "$ ./install"),
        "docs/watching.md": block("docs/watching.md", "$ streamd server --http-port"),
    }
    reader.type(shown[page])
    assert "<title>streamd" in reader.run("curl -s http://localhost:8080/")


def test_a_report(served: Reader) -> None:
    served.type(block("docs/reports.md", "streamd report"))
    assert "readings" in (served.home / "report.html").read_text()
