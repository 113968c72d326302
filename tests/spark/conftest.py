"""Fixtures of the Spark tests: one session for all of them, and servers to read from and write to.

    spark           the session, with the data source registered; skips, saying why, without PySpark or Java
    spark_session   the same for fixtures of a wider scope
    spark_folder    where that writes
    server          streamd; a test that carries `support.spark.session.ON_BOTH` runs with a real Redis too
    store           redis-py on an empty database of that server
    source_options  what `options(**source_options)` needs to reach it
    valkey_server   Valkey, where there is one beside Redis
    older_redis     the system's Redis, where it is another version than the one of the other tests
    certificate     a file with a certificate for localhost and its key
    sentinel        a Sentinel that watches a Redis and its replica

The session is started for the first test that needs it. Tests in this folder that carry the marker `spark` need it; those
that do not run without Java.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import redis
from support.files.real_files import all_oracles
from support.servers import (
    Oracle,
    Server,
    directive_arguments,
    eventually,
    find_oracle,
    find_valkey,
    free_port,
    wait_for_start,
)

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
    """The home of a Java that Spark can use."""
    try:
        from streamd.spark import JavaMissingError, find_java
    except ImportError as error:
        do_without(f"the Spark tests need PySpark: pip install 'streamd-server[spark]' ({error})")
    try:
        return find_java()
    except JavaMissingError as error:
        do_without(str(error))


LOGGING = """
rootLogger.level = error
rootLogger.appenderRefs = file
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
"""


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session writes: `log`, what it logs; `events`, its log of events; and all else."""
    return tmp_path_factory.mktemp("spark")


def pytest_exception_interact() -> None:
    """Close this thread's connection to Java after a failure.

    A test that was ended while it waited for a reply, by its time limit for example, leaves it unread: the next call would take it for its
    own, and so would all tests that follow.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark and pyspark.SparkContext._gateway
    connection = gateway and gateway._gateway_client.get_thread_connection()
    if connection:
        connection.close()


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:
    """The one Spark session of the run, active also where the thread that runs this test talks to Spark over a new connection."""
    from streamd.spark import register

    register(spark_session)
    return spark_session


@pytest.fixture(scope="session")
def spark_session(java: Path, spark_folder: Path) -> Iterator[SparkSession]:
    import streamd.spark
    from streamd.spark.session import CI_SETTINGS

    folder = spark_folder
    (folder / "events").mkdir()
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING.format(file=folder / "log"))
    java_options = CI_SETTINGS["spark.driver.extraJavaOptions"]
    settings = {
        **CI_SETTINGS,
        "spark.driver.extraJavaOptions": f"{java_options} -Dlog4j2.configurationFile={logging}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events"),
        "spark.eventLog.compress": "false",
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


# --- Other servers, and other ways to them --------------------------------------------------------------------------------


def run_for_the_session(name: str, program: str, folder: Path) -> Iterator[Server]:
    port = free_port()
    server = Server(name, [program, "--port", str(port), *directive_arguments({})], port, folder, os.environ)
    try:
        yield wait_for_start(server)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program = find_valkey()
    if program is None:
        pytest.skip("no valkey-server beside redis-server, or on the PATH")
    yield from run_for_the_session("valkey", program, tmp_path_factory.mktemp("valkey"))


@pytest.fixture(scope="session")
def older_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = all_oracles()
    if len(found) < 2:
        pytest.skip("no second redis-server of another version on PATH")
    yield from run_for_the_session("older redis", found[1].server, tmp_path_factory.mktemp("older"))


@pytest.fixture
def sentinel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Server, Server]]:
    """The port of a Sentinel that watches a primary with one replica: two Redis, or what the test's parameter says."""
    start = request.getfixturevalue(f"new_{getattr(request, 'param', 'redis')}")
    oracle = find_oracle()
    assert isinstance(oracle, Oracle)
    # Without the delay for more replicas, which is five seconds by itself.
    primary = start(repl_diskless_sync_delay="0")
    replica = start()
    with redis.Redis(port=replica.port, protocol=2) as client, redis.Redis(port=primary.port, protocol=2) as other:
        client.replicaof("127.0.0.1", primary.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up", 100, "the replica's link")
        # A Sentinel asks the primary for its replicas at once, and then not for ten seconds.
        eventually(lambda: other.info("replication").get("slave0", {}).get("state") == "online", 100, "the replica")
    port = free_port()
    folder = tmp_path / "sentinel"
    folder.mkdir()
    config = folder / "sentinel.conf"
    config.write_text(
        # Longer than a busy machine may leave a server without a turn.
        f"port {port}\nsentinel monitor main 127.0.0.1 {primary.port} 1\nsentinel down-after-milliseconds main 5000\n"
        "sentinel failover-timeout main 5000\n"
    )
    server = wait_for_start(Server("sentinel", [oracle.server, str(config), "--sentinel"], port, folder, os.environ))
    try:
        eventually(lambda: knows_the_replica(port), 100, "the Sentinel's knowledge of the replica")
        yield port, primary, replica
    finally:
        server.stop()


def knows_the_replica(port: int) -> bool:
    asked = redis.Redis(port=port, protocol=2)
    try:
        found = asked.execute_command("SENTINEL", "REPLICAS", "main")
    except redis.ConnectionError:  # not there yet
        return False
    finally:
        asked.close()
    return bool(found)
