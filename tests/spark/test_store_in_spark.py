"""Archives in object stores that Spark reads. A session learns of a store when it starts, so it runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

pytest.importorskip("obstore", reason="object stores need streamd-server[store]")
pytest.importorskip("moto.server", reason="the emulators come with streamd-server[test]")

from support.archives.object_stores import LocalStore, running_store
from support.archives.runs import KEY, archive_once, fill
from support.servers import python_environment

from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.client.points import parse_entry_id

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(400)]

READ = """
import json, sys
import streamd.spark
from streamd.spark.session import CI_SETTINGS
spark = streamd.spark.session("archives", master="local[2]", config=CI_SETTINGS)
reader = spark.read.format("streamd").options(**json.loads(sys.argv[1]))
print(json.dumps([row.id for row in reader.load().select("id").collect()]))
"""


# What differs between them is tested without Spark, in test_store.py.
@pytest.fixture(scope="module", params=["s3", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gs", "az"))])
def emulator(request: pytest.FixtureRequest) -> Iterator[LocalStore]:
    with running_store(request.param) as found:
        yield found


@pytest.mark.usefixtures("java")
def test_spark_reads_what_is_archived_and_what_is_live_as_one(
    emulator: LocalStore, store: redis.Redis, source_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After merges and a deletion, too."""
    known = emulator.environment(emulator.endpoint)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    place = emulator.make_bucket("reading") + "/archives/one"
    produced: list[str] = []
    for number in range(3):
        produced += fill(store, 500, start_ms=1_700_000_000_000 + number * 40_000_000)
        assert archive_once(place, source_options, merge_files=2).is_success
    assert any(each.kind == "rewrite" for each in ManifestLog.read(Layout(place), KEY).manifests)
    number = parse_entry_id(produced.pop(7))
    assert delete(place, KEY, source_options, [(number, number)]).archived == 1
    produced += fill(store, 10, start_ms=1_800_000_000_000)
    options = json.dumps({**source_options, "stream": KEY, "archive": place})
    read = subprocess.run(
        [sys.executable, "-c", READ, options],
        capture_output=True, text=True, timeout=300, env={**os.environ, **python_environment(), **known}, check=False,
    )  # fmt: skip
    assert read.returncode == 0, read.stderr[-5000:]
    assert sorted(json.loads(read.stdout)) == sorted(produced)
