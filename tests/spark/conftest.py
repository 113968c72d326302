"""Fixtures of the Spark tests: one session for all of them, and servers to read from and write to.

    spark           the session, with the data source registered; skips, saying why, without PySpark or Java
    server          streamd; a test that carries `support.spark.ON_BOTH` runs with a real Redis too
    store           redis-py on an empty database of that server
    source_options  what `options(**source_options)` needs to reach it

The session is started for the first test that needs it. Tests in this folder that carry the marker `spark` need it; those
that do not run without Java.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import redis
from support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2,3]"
"""Two tasks at a time, each tried up to three times: retries are part of what is tested."""


def do_without(reason: str) -> NoReturn:
    if os.environ.get("STREAMD_REQUIRE_SPARK"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def java() -> Path:
    """The home of a Java that Spark can run with."""
    try:
        from streamd.spark import JavaMissingError, find_java
    except ImportError as error:
        do_without(f"the Spark tests need PySpark: pip install 'streamd-server[spark]' ({error})")
    try:
        return find_java()
    except JavaMissingError as error:
        do_without(str(error))


@pytest.fixture(scope="session")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run."""
    import streamd.spark
    from streamd.spark.session import CI_SETTINGS

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **CI_SETTINGS,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
    }
    # Workers and planners are Python processes of their own: they find the package as this one does.
    root = str(Path(streamd.spark.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    session = streamd.spark.session("streamd-tests", master=MASTER, config=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """A server to work with: streamd, or what a test that carries ON_BOTH is run for."""
    wanted = getattr(request, "param", "streamd")
    found: Server = request.getfixturevalue("streamd_server" if wanted == "streamd" else "redis_server")
    return found


@pytest.fixture
def store(server: Server) -> Iterator[redis.Redis]:
    """A client on an empty database."""
    client = redis.Redis(port=server.port, protocol=2)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture
def source_options(server: Server) -> dict[str, str]:
    return {"host": "127.0.0.1", "port": str(server.port)}
