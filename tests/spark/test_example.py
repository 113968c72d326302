"""The examples run as they stand, and say what is true."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import redis
from support.servers import Server
from support.spark.session import QUERIES

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / "streams.ipynb").read_text(encoding="utf-8"))
    return found


def code_cells() -> list[str]:
    return ["".join(cell["source"]) for cell in notebook()["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def sensors(spark: SparkSession) -> Iterator[ModuleType]:
    """The example as a module; `spark` first, since it needs PySpark."""
    spec = importlib.util.spec_from_file_location("sensors", EXAMPLES / "sensors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sensors"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sensors"]


@pytest.fixture
def closes_windows(spark: SparkSession) -> Iterator[None]:
    """Batches without entries close the last windows: Spark's default, which the other tests do without."""
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    yield
    spark.conf.set(name, str(before))


@pytest.mark.spark
@QUERIES
@pytest.mark.usefixtures("closes_windows")
def test_from_sensors_to_history(
    spark: SparkSession, sensors: ModuleType, server: Server, store: redis.Redis, tmp_path: Path
) -> None:
    found = sensors.run(spark, f"redis://127.0.0.1:{server.port}", tmp_path)
    sensor_count, minutes = len(sensors.SENSORS), 120
    assert found.produced == minutes * 6 * sensor_count
    # Every reading is in the history once; the older half is archived, and no longer on the server.
    assert found.history == found.produced
    assert found.archived + found.live == found.produced
    assert found.archived >= found.produced // 2
    # A window for each sensor and minute but the last, which is open; each once, although the query was run twice.
    assert found.windows == (minutes - 1) * sensor_count
    windows = [fields for _, fields in store.xrange(sensors.BY_MINUTE)]
    assert len({(fields[b"window_start"], fields[b"sensor"]) for fields in windows}) == found.windows
    assert {fields[b"celsius_count"] for fields in windows} == {b"6"}
    assert found.alarms > 0
    assert store.xpending("readings", "alarms")["pending"] == 0
    text = (tmp_path / "report.html").read_text()
    assert text.count("<svg") == 3
    assert f"{found.produced:,}" in text


def test_the_notebook_is_in_order() -> None:
    found = notebook()
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in found["cells"]]
    assert len(set(names)) == len(names)
    for cell in found["cells"]:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert all(line.endswith("\n") for line in cell["source"][:-1])
    for source in code_cells():
        compile(source, "cell", "exec")


@pytest.mark.spark
def test_the_notebook_runs(spark: SparkSession) -> None:
    names: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for source in code_cells():
            exec(compile(source, "cell", "exec"), names)
    assert " readings" in said.getvalue()
    picture = names["report"]._repr_html_()
    assert picture.startswith("<iframe")
    assert "&lt;svg" in picture


def test_the_notebook_is_stored_with_its_outputs_and_pictures() -> None:
    """Pages that show notebooks run none: nbclient has filled them in. Cells that print or end in a value have something."""
    cells = [cell for cell in notebook()["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    for cell in cells:
        code = "".join(cell["source"])
        if "print(" in code or ".show(" in code or code.endswith("\nreport"):
            assert cell["outputs"], code
        assert not [each for each in cell["outputs"] if each["output_type"] == "error"]
    (picture,) = [each["data"]["text/html"] for cell in cells for each in cell["outputs"] if "data" in each]
    assert "&lt;svg" in "".join(picture), "in a frame of its own"
