"""The data pipeline: streams in and out of Spark, beside Spark's own Parquet reader on the same rows in the same run.

    python -m benchmarks.spark_pipeline [--rows N] [--rounds N] [--server streamd|redis] [--only WORD] [--quick]

Walls depend on the machine and on what else it does; CPU per row hardly does. So the table has the CPU microseconds per
row of each side (the JVM, all Python processes, the server), medians of the rounds, and for reads the ratio of the best
wall to that of the Parquet reader with the same columns. Naive readers and writers, tuples through redis-py, are there
to show what the compiled coders are for; they get a tenth of the rows. "Transfer only" is what PySpark's API allows: a
source that hands over one and the same record batch again and again, made beforehand; what a read costs beside that is
the server's work and the decoder's. What a job costs whatever its rows is in the figures, so judge by a million rows,
not by `--quick`: about 0.1 s for a read, and for a streaming query 0.8 s of Python, as PySpark starts a process for
each query, which imports PySpark again ("start of a query").

An entry has four fields, some 190 bytes in a reply of XRANGE. Spark runs in local mode with two threads.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, make_request, start_server

WIDTH = 116
STREAM = "readings"
START_MS = 1_700_000_000_000
PER_MS = 7
FLAT = "sensor_id string, temperature string, num string, payload string"
PAYLOAD = "payload-of-a-reading-" + "x" * 43
TICKS = os.sysconf("SC_CLK_TCK")


# --- CPU time of processes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cpu:
    """CPU seconds so far."""

    jvm: float
    python: float
    server: float

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.jvm - other.jvm, self.python - other.python, self.server - other.server)


@dataclass(frozen=True)
class Times:
    """One line of /proc/PID/stat: parent, own CPU seconds, those of children that have been reaped."""

    parent: int
    own: float
    waited_for: float


def times_of(pid: int) -> Times | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has ended
        return None
    cells = text.rpartition(")")[2].split()
    return Times(int(cells[1]), (int(cells[11]) + int(cells[12])) / TICKS, (int(cells[13]) + int(cells[14])) / TICKS)


def cpu_now(jvm_pid: int, server: Server) -> Cpu:
    return Cpu(*cpu_of_spark(jvm_pid), server.cpu_s())


def cpu_of_spark(jvm_pid: int) -> tuple[float, float]:
    """CPU seconds of the JVM and of Python, which is all that the JVM has started: daemons, workers, planners; and this process, the
    driver.
    """
    everyone = {int(each.name): times_of(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    alive = {pid: times for pid, times in everyone.items() if times is not None}
    below, found = {jvm_pid}, set[int]()
    while below:
        below = {pid for pid, times in alive.items() if times.parent in below}
        found |= below
    jvm = alive[jvm_pid]
    return jvm.own, jvm.waited_for + time.process_time() + sum(alive[pid].own + alive[pid].waited_for for pid in found)


# --- Cases ----------------------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """The environment of the cases."""

    spark: object
    server: Server
    folder: Path
    rows: int
    options: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def read(self, schema: str | None = None, **more: str) -> object:
        reader = self.spark.read.format("streamd").options(**self.options, **more)
        return (reader.schema(schema) if schema else reader).load()


def to_nowhere(frame: object) -> None:
    frame.write.format("noop").mode("overwrite").save()


def parquet_lossless(bench: Bench) -> int:
    to_nowhere(bench.spark.read.parquet(str(bench.folder / "lossless")))
    return bench.rows


def parquet_flat(bench: Bench) -> int:
    to_nowhere(bench.spark.read.parquet(str(bench.folder / "flat")))
    return bench.rows


def read_lossless(bench: Bench) -> int:
    to_nowhere(bench.read(stream=STREAM))
    return bench.rows


def read_flat(bench: Bench) -> int:
    to_nowhere(bench.read(FLAT, stream=STREAM))
    return bench.rows


def transfer(bench: Bench, schema: object) -> int:
    """The same table from a source that does nothing: each task returns its first batch repeatedly until all its rows are out."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    parts = 2

    class ConstantReader(DataSourceReader):
        def __init__(self, schema: object, options: dict[str, str], rows: int) -> None:
            self.schema, self.options, self.rows = schema, options, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(n) for n in range(parts)]

        def read(self, partition: InputPartition) -> Iterator[object]:
            from streamd.arrow.decode import EntryDecoder
            from streamd.spark.source.schema import table_layout
            from streamd.transfer.collector_pause import collector_paused
            from streamd.transfer.ranges import read_range
            from streamd.transfer.read_options import SourceOptions

            options = SourceOptions.parse(self.options)
            layout = table_layout(self.schema, options)
            decoder = EntryDecoder(layout, STREAM.encode())
            count = options.batch_size
            (batch,) = read_range(
                options.connection, decoder, STREAM.encode(), 1, 2**128 - 1, fetch_size=count, limit=count
            )
            with collector_paused():
                for done in range(0, self.rows // parts, count):
                    yield batch.slice(0, min(count, self.rows // parts - done))

    class ConstantSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "constant"

        def schema(self) -> object:
            from streamd.spark.source.schema import DEFAULT_SCHEMA

            return DEFAULT_SCHEMA

        def reader(self, schema: object) -> DataSourceReader:
            options = dict(self.options)
            return ConstantReader(schema, options, int(options.pop("rows")))

    bench.spark.dataSource.register(ConstantSource)
    reader = bench.spark.read.format("constant").options(**bench.options, stream=STREAM, rows=str(bench.rows))
    to_nowhere((reader.schema(schema) if schema else reader).load())
    return bench.rows


def transfer_lossless(bench: Bench) -> int:
    return transfer(bench, None)


def transfer_flat(bench: Bench) -> int:
    return transfer(bench, FLAT)


def read_naively(bench: Bench) -> int:
    """Entries by redis-py, rows as tuples: what a data source of twenty lines does."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class NaiveReader(DataSourceReader):
        def __init__(self, port: int, last: str) -> None:
            self.port, self.last = port, last

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str, ...]]:
            import redis

            client = redis.Redis(port=self.port, protocol=2, decode_responses=True)
            start = "-"
            while entries := client.xrange(STREAM, start, self.last, count=1000):
                for _, fields in entries:
                    yield tuple(fields.values())
                start = f"({entries[-1][0]}"

    class NaiveSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "naive"

        def schema(self) -> str:
            return FLAT

        def reader(self, schema: object) -> DataSourceReader:
            return NaiveReader(int(self.options["port"]), self.options["last"])

    rows = bench.rows // 10
    bench.spark.dataSource.register(NaiveSource)
    last = entry_id(rows - 1)
    to_nowhere(bench.spark.read.format("naive").option("port", bench.options["port"]).option("last", last).load())
    return rows


def write_stream(bench: Bench, **more: str) -> int:
    bench.server.send("DEL", "written")
    frame = bench.spark.read.parquet(str(bench.folder / "flat"))
    frame.write.format("streamd").options(**bench.options, **more).option("stream", "written").mode("append").save()
    return bench.rows


def write_plain(bench: Bench) -> int:
    return write_stream(bench)


def write_exactly_once(bench: Bench) -> int:
    return write_stream(bench, delivery="exactly-once")


def write_naively(bench: Bench) -> int:
    """Rows by foreachPartition and a pipeline of redis-py."""
    bench.server.send("DEL", "written")
    port = int(bench.options["port"])
    rows = bench.rows // 10

    def send(part: Iterator[object]) -> None:
        import redis

        pipe = redis.Redis(port=port, protocol=2).pipeline(transaction=False)
        for at, row in enumerate(part, 1):
            pipe.xadd("written", row.asDict())
            if at % 1000 == 0:
                pipe.execute()
        pipe.execute()

    bench.spark.read.parquet(str(bench.folder / "flat")).limit(rows).foreachPartition(send)
    return rows


def stream_through(bench: Bench, batches: int) -> int:
    """A streaming query over the whole stream, from the start, in about this number of batches."""
    reader = bench.spark.readStream.format("streamd").schema(FLAT).options(**bench.options).option("stream", STREAM)
    reader = reader.option("startingId", "earliest")
    if batches > 1:
        reader = reader.option("maxEntriesPerTrigger", str(-(-bench.rows // batches)))
    with tempfile.TemporaryDirectory(dir=bench.folder) as checkpoint:
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    done = sum(each["numInputRows"] for each in progress)
    if done != bench.rows:
        raise SystemExit(f"{done} rows came through the query instead of {bench.rows}")
    if batches > 1:
        parts = ("triggerExecution", "latestOffset", "walCommit", "addBatch", "commitOffsets")
        said = ", ".join(
            f"{part} {statistics.median(each['durationMs'].get(part, 0) for each in progress):.0f}" for part in parts
        )
        bench.notes.append(f"micro-batches of {bench.rows // batches:,}: median ms: {said}")
    return bench.rows


def stream_at_once(bench: Bench) -> int:
    return stream_through(bench, 1)


def start_query(bench: Bench) -> int:
    """A query with nothing to read. Costs are stated per row of the other cases, so that they can be subtracted."""
    reader = bench.spark.readStream.format("streamd").schema(FLAT).options(**bench.options).option("stream", "nothing")
    with tempfile.TemporaryDirectory(dir=bench.folder) as checkpoint:
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return bench.rows


def stream_in_batches(bench: Bench) -> int:
    return stream_through(bench, 20)


def to_parquet(bench: Bench) -> int:
    bench.read(stream=STREAM).write.mode("overwrite").option("compression", "zstd").parquet(str(bench.folder / "sunk"))
    return bench.rows


def archive_all(bench: Bench) -> int:
    """Everything into a new archive, without the trim at the end: the stream is needed again."""
    from streamd.archive.archiver import ArchiveSettings, archive

    path = bench.folder / "archive"
    shutil.rmtree(path, ignore_errors=True)
    settings = ArchiveSettings(hot_window_ms=0, trim=False)
    found = archive(str(path), {**bench.options, "stream": STREAM}, settings=settings)
    if not found.is_success or found.rows != bench.rows:
        raise SystemExit(f"archived {found.rows} of {bench.rows}: {[each.error for each in found.streams]}")
    return bench.rows


def read_history(bench: Bench) -> int:
    """Everything from the archive that `archive_all` has just written."""
    to_nowhere(bench.read(stream=STREAM, archive=str(bench.folder / "archive")))
    return bench.rows


@dataclass(frozen=True)
class Case:
    """One row of the table. `yardstick` names the case whose best time it is compared with."""

    name: str
    run: Callable[[Bench], int]
    yardstick: str = ""


CASES = [
    Case("Parquet reader, lossless (yardstick)", parquet_lossless),
    Case("read, lossless", read_lossless, "Parquet reader, lossless (yardstick)"),
    Case("transfer only: constant batches, lossless", transfer_lossless, "Parquet reader, lossless (yardstick)"),
    Case("Parquet reader, 4 columns (yardstick)", parquet_flat),
    Case("read, 4 columns", read_flat, "Parquet reader, 4 columns (yardstick)"),
    Case("transfer only: constant batches, 4 columns", transfer_flat, "Parquet reader, 4 columns (yardstick)"),
    Case("read naively: tuples by redis-py", read_naively, "Parquet reader, 4 columns (yardstick)"),
    Case("streaming read, start of a query", start_query),
    Case("streaming read, one batch", stream_at_once),
    Case("streaming read, 20 batches", stream_in_batches),
    Case("stream to Parquet, lossless", to_parquet),
    Case("write, 4 columns", write_plain),
    Case("write, exactly once", write_exactly_once),
    Case("write naively: rows by redis-py", write_naively),
    Case("archive", archive_all),
    Case("history, all of it archived", read_history),
]


# --- Preparing ------------------------------------------------------------------------------------------------------------


def entry_id(at: int) -> str:
    return f"{START_MS + at // PER_MS}-{at % PER_MS}"


def fill(server: Server, rows: int, *, start: int = 0) -> None:
    """The stream that is read, filled by prepared chunks of requests; `start`: entries that it has already."""
    with server.connect() as sock, sock.makefile("rb") as replies:
        for begin in range(start, rows, 5000):
            chunk = range(begin, min(begin + 5000, rows))
            sock.sendall(
                b"".join(
                    make_request(
                        "XADD", STREAM, entry_id(at), "sensor_id", f"sensor-{at % 100:04d}", "temperature",
                        f"{20 + at % 150 / 10:.1f}", "num", at, "payload", PAYLOAD,
                    )
                    for at in chunk
                )
            )  # fmt: skip
            for _ in chunk:
                header = replies.readline()
                replies.read(int(header[1:]) + 2)


def prepare(bench: Bench) -> None:
    """The same rows as Parquet files, for the yardsticks and as the input of writes."""
    bench.read(stream=STREAM).write.mode("overwrite").parquet(str(bench.folder / "lossless"))
    bench.read(FLAT, stream=STREAM).write.mode("overwrite").parquet(str(bench.folder / "flat"))
    found = (
        bench.spark.read.parquet(str(bench.folder / "lossless")).selectExpr("count(*)", "count(distinct id)").first()
    )
    if tuple(found) != (bench.rows, bench.rows):
        raise SystemExit(f"read {found} instead of {bench.rows} rows")


# --- The table ------------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """The rounds of one case."""

    walls: list[float] = field(default_factory=list)  # seconds for each row
    cpus: list[tuple[float, float, float]] = field(default_factory=list)  # us for each row: JVM, Python, server

    @property
    def best(self) -> float:
        return 1 / min(self.walls)


def measure(bench: Bench, case: Case, jvm_pid: int) -> tuple[float, tuple[float, float, float]]:
    before, began = cpu_now(jvm_pid, bench.server), time.monotonic()
    rows = case.run(bench)
    wall, used = time.monotonic() - began, cpu_now(jvm_pid, bench.server) - before
    return wall / rows, tuple(each * 1e6 / rows for each in (used.jvm, used.python, used.server))  # type: ignore[return-value]


def table_of(results: dict[str, Result], cases: list[Case]) -> Table:
    table = Table(title="CPU microseconds per row (medians), and rows per second (best)")
    for heading in ("case", "JVM", "Python", "server", "rows/s", "to Parquet", "rounds vary"):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    for case in cases:
        found = results[case.name]
        cpus = [f"{statistics.median(column):.2f}" for column in zip(*found.cpus, strict=True)]
        beside = results.get(case.yardstick)
        ratio = f"{found.best / beside.best:.2f}" if beside else ""
        varies = (max(found.walls) - min(found.walls)) / 2 / statistics.median(found.walls)
        table.add_row(case.name, *cpus, f"{found.best:,.0f}", ratio, f"{varies:.0%}")
    return table


@click.command()
@click.option("--rows", default=1_000_000, show_default=True, help="Entries of the stream.")
@click.option("--rounds", default=3, show_default=True, help="Rounds of each case, after one to warm up.")
@click.option("--server", "name", type=click.Choice(["streamd", "redis"]), default="streamd", show_default=True)
@click.option("--only", default="", help="Only cases whose name contains this, and the yardsticks.")
@click.option("--quick", is_flag=True, help="200,000 rows and two rounds.")
def main(rows: int, rounds: int, name: str, only: str, quick: bool) -> None:
    """Print the table."""
    import pyspark

    import streamd.spark

    rows, rounds = (200_000, 2) if quick else (rows, rounds)
    console = Console(width=WIDTH)
    cases = [case for case in CASES if only in case.name or "yardstick" in case.name]
    config = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g", "spark.sql.adaptive.enabled": "false"}
    with start_server(name) as server, tempfile.TemporaryDirectory() as folder:
        console.print(
            describe_machine(server, rows=rows, rounds=rounds, master="local[2]", pyspark=pyspark.__version__)
        )
        spark = streamd.spark.session("benchmark", master="local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        jvm_pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        bench = Bench(spark, server, Path(folder), rows, {"host": "127.0.0.1", "port": str(server.port)})
        fill(server, rows)
        prepare(bench)
        for case in cases:
            case.run(bench)
        bench.notes.clear()
        results = {case.name: Result() for case in cases}
        for _ in range(rounds):
            for case in cases:
                wall, cpu = measure(bench, case, jvm_pid)
                results[case.name].walls.append(wall)
                results[case.name].cpus.append(cpu)
        console.print(table_of(results, cases))
        for note in bench.notes[-1:]:
            console.print(note)
        spark.stop()


if __name__ == "__main__":
    main()
