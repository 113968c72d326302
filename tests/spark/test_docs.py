"""The Python of docs/spark.md, and what README shows of Spark, run as they stand there, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from support.pages.reader import block
from support.spark.session import QUERIES

from streamd.archive.archiver import archive

README = Path(__file__).parents[2] / "README.md"
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
FIRST_MS = 1_767_225_600_000


@QUERIES
def test_the_snippets_run_one_after_the_other(
    spark: SparkSession, store: redis.Redis, source_options: dict[str, str], tmp_path: Path
) -> None:
    for at in range(6):
        store.xadd("readings", {"sensor": f"room-{at % 2}", "celsius": f"{19 + at}.5"})
    more = "".join(f".option({name!r}, {value!r})" for name, value in source_options.items())
    archive(str(tmp_path / "archive"), source_options | {"stream": "readings"})
    names: dict[str, Any] = {}
    try:
        for snippet in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            here = snippet.replace('format("streamd")', f'format("streamd"){more}').replace("/var/lib", str(tmp_path))
            exec(compile(here, str(PAGE), "exec"), names)
            if "query" in names:
                names["query"].processAllAvailable()
                names.pop("query").stop()
    finally:
        if "query" in names:
            names["query"].stop()
    assert names["readings"].count() == 6
    assert store.xlen("copy") == 6
    assert store.xlen("audit") == 6
    assert pytest.approx(float(store.xrevrange("copy", count=1)[0][1][b"celsius"])) == 24.5


def test_the_first_example_shows_what_is_in_the_stream(
    spark: SparkSession, store: redis.Redis, source_options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store.xadd("readings", {"sensor": "a", "celsius": "19.8"}, id="1795255200000-0")
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [each for each in blocks if "streamd.spark" in each]
    port = f'.option("port", {source_options["port"]})'
    exec(compile(block.replace('format("streamd")', f'format("streamd"){port}'), str(README), "exec"), {})
    assert "|1795255200000-0|2026-11-21 10:00:00|[{sensor, a}, {celsius, 19.8}]|" in capsys.readouterr().out


def test_a_history_and_an_analysis_of_it(
    spark: SparkSession,
    store: redis.Redis,
    source_options: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for at in range(6):
        store.xadd(
            "readings", {"sensor": f"room-{at % 2}", "celsius": f"{19 + at}.5"}, id=f"{FIRST_MS + at * 10_000}-0"
        )
    store.xadd("readings", {"sensor": "room-0", "celsius": "25.5"})
    assert archive(str(tmp_path / "archive"), source_options | {"stream": "readings"}).rows == 6
    names: dict[str, Any] = {"spark": spark}
    more = "".join(f".option({name!r}, {value!r})" for name, value in source_options.items())
    read = block("docs/archive.md", "history = spark.read")
    exec(read.replace('format("streamd")', f'format("streamd"){more}').replace("/var/lib", str(tmp_path)), names)
    assert names["history"].count() == 7
    names["entries"] = names["history"]
    names["readings"] = names["history"].selectExpr(
        "time", "cast(fields[0].value as string) sensor", "cast(cast(fields[1].value as string) as double) celsius"
    )
    exec(block("docs/reports.md", "from streamd.spark.analytics"), names)
    assert "10000" in capsys.readouterr().out, "the gaps"
    assert {row["sensor"] for row in names["means"].collect()} == {"room-0", "room-1"}
