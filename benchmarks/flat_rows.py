"""How a table of text columns gets from Python into Spark: PySpark's ways, and what makes one faster or slower.

    python -m benchmarks.flat_rows [--rows N] [--rounds N] [--quick]

No server takes part, and nothing is decoded: all ways hand over one record batch of four columns again and again, as "transfer only" does
in benchmarks/spark_pipeline.py. What is left is the interface, the limit of any source in Python. Figures are CPU microseconds of a row
in the JVM and in all Python processes, medians of the rounds, and the median of each round's wall beside that of the first row, which
is how the data source hands rows over. "one of four columns" selects a column, which only the Parquet reader is told of; "a schema of one
column" is what a source can do about that. mapInArrow needs pandas, and is left out without it.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import describe_machine
from benchmarks.spark_pipeline import FLAT, PAYLOAD, cpu_of_spark, to_nowhere

if TYPE_CHECKING:
    import pyarrow as pa

WIDTH = 116
PARTS = 2
BATCH = 10_000
CODEGEN = "spark.sql.codegen.wholeStage"


def make_batch(names: list[str], rows: int) -> pa.RecordBatch:
    import pyarrow as pa

    values = {
        "sensor_id": [f"sensor-{at % 100}" for at in range(rows)],
        "temperature": [f"{20 + at % 1000 / 100:.2f}" for at in range(rows)],
        "num": [str(at) for at in range(rows)],
        "payload": [PAYLOAD] * rows,
    }
    return pa.record_batch([pa.array(values[name]) for name in names], names=names)


def batches(names: list[str], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    batch = make_batch(names, size)
    for done in range(0, rows, size):
        yield batch.slice(0, min(size, rows - done))


def register_source(spark: Any) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ConstantReader(DataSourceReader):
        def __init__(self, schema: Any, options: dict[str, str]) -> None:
            self.names, self.rows, self.size = schema.fieldNames(), int(options["rows"]), int(options["size"])

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            yield from batches(self.names, self.rows // PARTS, self.size)

    class ConstantSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "constant"

        def schema(self) -> str:
            return FLAT

        def reader(self, schema: Any) -> DataSourceReader:
            return ConstantReader(schema, dict(self.options))

    spark.dataSource.register(ConstantSource)


@dataclass
class Bench:
    spark: Any
    folder: Path
    rows: int

    def source(self, schema: str = FLAT, size: int = BATCH) -> Any:
        options = {"rows": str(self.rows), "size": str(size)}
        return self.spark.read.format("constant").options(**options).schema(schema).load()

    def hand_over(self) -> None:
        to_nowhere(self.source())

    def small_batches(self) -> None:
        to_nowhere(self.source(size=1_000))

    def large_batches(self) -> None:
        to_nowhere(self.source(size=100_000))

    def select_one(self) -> None:
        to_nowhere(self.source().select("num"))

    def schema_of_one(self) -> None:
        to_nowhere(self.source("num string"))

    def without_codegen(self) -> None:
        self.spark.conf.set(CODEGEN, "false")
        try:
            to_nowhere(self.source())
        finally:
            self.spark.conf.set(CODEGEN, "true")

    def map_in_arrow(self) -> None:
        names, rows, size = [each.split()[0] for each in FLAT.split(", ")], self.rows // PARTS, BATCH

        def made(given: Iterator[Any]) -> Iterator[Any]:
            for _ in given:
                yield from batches(names, rows, size)

        to_nowhere(self.spark.range(0, PARTS, 1, PARTS).mapInArrow(made, FLAT))

    def from_table(self) -> None:
        import pyarrow as pa

        names = [each.split()[0] for each in FLAT.split(", ")]
        to_nowhere(self.spark.createDataFrame(pa.Table.from_batches(batches(names, self.rows, BATCH))))

    def parquet(self) -> None:
        to_nowhere(self.spark.read.parquet(str(self.folder / "flat")))

    def parquet_one(self) -> None:
        to_nowhere(self.spark.read.parquet(str(self.folder / "flat")).select("num"))


def cases_of(bench: Bench) -> dict[str, Callable[[], None]]:
    found = {
        "data source, batches of 10,000 rows": bench.hand_over,
        "... of 1,000 rows": bench.small_batches,
        "... of 100,000 rows": bench.large_batches,
        "... one of four columns": bench.select_one,
        "... a schema of one column": bench.schema_of_one,
        "... without whole-stage code generation": bench.without_codegen,
        "mapInArrow": bench.map_in_arrow,
        "createDataFrame(pyarrow.Table), in the driver": bench.from_table,
        "Parquet reader": bench.parquet,
        "... one of four columns ": bench.parquet_one,
    }
    if importlib.util.find_spec("pandas") is None:
        del found["mapInArrow"]
    return found


@dataclass
class Found:
    walls: list[float] = field(default_factory=list)
    jvm: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)


@click.command(help=__doc__)
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Rounds of each case, after one to warm up.")
@click.option("--quick", is_flag=True, help="200,000 rows and two rounds.")
def main(rows: int, rounds: int, quick: bool) -> None:
    import pyspark

    import streamd.spark

    rows, rounds = (200_000, 2) if quick else (rows, rounds)
    console = Console(width=WIDTH)
    config = {"spark.driver.memory": "2g", "spark.sql.adaptive.enabled": "false"}
    with tempfile.TemporaryDirectory() as folder:
        console.print(describe_machine(rows=rows, rounds=rounds, master="local[2]", pyspark=pyspark.__version__))
        spark = streamd.spark.session("benchmark", master="local[2]", config=config)
        spark.sparkContext.setLogLevel("ERROR")
        jvm_pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        register_source(spark)
        bench = Bench(spark, Path(folder), rows)
        bench.source().write.parquet(str(bench.folder / "flat"))
        cases = cases_of(bench)
        found = {name: Found() for name in cases}
        for number in range(-1, rounds):  # the first round warms up
            for name, case in cases.items():
                before, began = cpu_of_spark(jvm_pid), time.monotonic()
                case()
                wall, after = time.monotonic() - began, cpu_of_spark(jvm_pid)
                if number >= 0:
                    found[name].walls.append(wall)
                    found[name].jvm.append((after[0] - before[0]) * 1e6 / rows)
                    found[name].python.append((after[1] - before[1]) * 1e6 / rows)
        spark.stop()
    table = Table(title="CPU microseconds per row, and rows per second")
    for heading in ("way", "JVM", "Python", "best rows/s", "to the first"):
        table.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    first = next(iter(found.values())).walls
    for name, each in found.items():
        beside = statistics.median(base / wall for base, wall in zip(first, each.walls, strict=True))
        cpus = (f"{statistics.median(column):.2f}" for column in (each.jvm, each.python))
        table.add_row(name, *cpus, f"{rows / min(each.walls):,.0f}", f"{beside:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
