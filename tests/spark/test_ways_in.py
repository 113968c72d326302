"""Every way to a server, and every kind of server, through Spark: batches and queries, in and out. And no password anywhere.

streamd is behind TLS, users and unix sockets here, the newest Redis behind a Sentinel.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from support.servers import Server, eventually, free_port, python_environment
from support.spark.session import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark, QUERIES]

Options = dict[str, str]

COUNT = 40


def pass_through(spark: SparkSession, options: Options, folder: Path) -> None:
    """A batch write to `in`, a query from there to `out`, and a batch read of both."""
    rows = spark.range(COUNT).selectExpr("string(id) AS n")
    exactly = {"delivery": "exactly-once", "runId": "rows"}
    rows.write.format("streamd").mode("append").options(stream="in", **exactly, **options).save()
    query = (
        spark.readStream.format("streamd")
        .options(stream="in", group="spark", **options)
        .load()
        .select("fields")
        .writeStream.format("streamd")
        .options(stream="out", delivery="exactly-once", **options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    both = spark.read.format("streamd").options(streams="in,out", **options).schema("stream string, n int").load()
    found = [(row.stream, row.n) for row in both.collect()]
    assert sorted(found) == [(stream, n) for stream in ("in", "out") for n in range(COUNT)]


# --- Servers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["older_redis", "valkey_server"])
def test_servers_without_new_commands_are_read_and_written(
    name: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    with redis.Redis(port=server.port, protocol=2) as store:
        store.flushall()
        pass_through(spark, {"port": str(server.port)}, tmp_path)
        assert [group["name"] for group in store.xinfo_groups("in")] == [b"spark"]
        store.flushall()


# --- Ways -----------------------------------------------------------------------------------------------------------------


def test_tls_with_a_certificate_of_the_client(
    spark: SparkSession, new_streamd: Any, certificate: Path, tmp_path: Path
) -> None:
    port, file = str(free_port()), str(certificate)
    new_streamd(tls_port=port, tls_cert_file=file, tls_key_file=file, tls_ca_cert_file=file, tls_auth_clients="yes")
    options = {"url": f"rediss://localhost:{port}", "tlsCaFile": file, "tlsCertFile": file}
    pass_through(spark, options, tmp_path)


def test_a_user_with_few_permissions(spark: SparkSession, new_streamd: Any, tmp_path: Path) -> None:
    server = new_streamd(requirepass="main")
    with redis.Redis(port=server.port, password="main", protocol=2) as store:
        store.execute_command(
            "ACL", "SETUSER", "spark", "on", ">hidden-word", "~in", "~out", "~streamd:sink:*",
            "+@read", "+@stream", "+@string", "+@transaction", "+@connection", "+info", "+time", "-flushall",
        )  # fmt: skip
    secret = tmp_path / "password"
    secret.write_text("hidden-word\n")
    options = {"port": str(server.port), "username": "spark", "passwordFile": str(secret)}
    pass_through(spark, options, tmp_path)
    with pytest.raises(Exception, match="NOPERM"):
        spark.read.format("streamd").options(stream="other", **options).load().count()


def test_a_unix_socket(spark: SparkSession, new_streamd: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    new_streamd(unixsocket=str(path))
    pass_through(spark, {"unixSocketPath": str(path)}, tmp_path)


@pytest.mark.real(since="7.0")
def test_a_sentinel(spark: SparkSession, sentinel: tuple[int, Server, Server], tmp_path: Path) -> None:
    port, primary, _ = sentinel
    pass_through(spark, {"sentinels": f"127.0.0.1:{port}", "sentinelMaster": "main"}, tmp_path)
    with redis.Redis(port=primary.port, protocol=2) as store:
        assert store.xlen("out") == COUNT


@pytest.mark.real(since="7.0")
@pytest.mark.parametrize("sentinel", ["streamd"], indirect=True)
def test_a_query_goes_on_after_a_fail_over(
    spark: SparkSession, sentinel: tuple[int, Server, Server], tmp_path: Path
) -> None:
    """Its tasks and its planner find the new primary themselves: the query has one run, and every entry arrives once."""
    port, primary, replica = sentinel
    options = {"url": f"redis+sentinel://127.0.0.1:{port}/main"}
    with redis.Redis(port=primary.port, protocol=2) as store:
        add(store, 0, COUNT)
        query = (
            spark.readStream.format("streamd")
            .options(stream="in", **options)
            .load()
            .select("fields")
            .writeStream.format("streamd")
            .options(stream="out", delivery="exactly-once", **options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            eventually(lambda: store.xlen("out") == COUNT, 200, "the entries of the first primary")
            # Nothing is lost by the fail-over itself: what is under way waits, and the replica has all that was answered.
            store.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
            offset = store.info("replication")["master_repl_offset"]
            with redis.Redis(port=replica.port, protocol=2) as other:
                eventually(
                    lambda: other.info("replication")["slave_repl_offset"] >= offset, 100, "the replica's offset"
                )
                primary.kill()
                eventually(lambda: other.info("replication")["role"] == "master", 200, "the fail-over")
                add(other, COUNT, 2 * COUNT)
                eventually(
                    lambda: other.xlen("out") >= 2 * COUNT or not query.isActive, 200, "the entries of the second"
                )
                assert query.exception() is None
                found = [int(fields[b"n"]) for _, fields in other.xrange("out")]
                assert found == [*range(2 * COUNT)]
        finally:
            query.stop()


def add(store: redis.Redis, start: int, stop: int) -> None:
    for number in range(start, stop):
        store.xadd("in", {"n": number})


# --- Passwords ------------------------------------------------------------------------------------------------------------


def test_passwords_are_in_no_log_plan_or_checkpoint(
    spark: SparkSession, spark_folder: Path, new_streamd: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = new_streamd(requirepass="hidden-word")
    options = {"url": f"redis://:hidden-word@127.0.0.1:{server.port}/0"}
    spark.sparkContext.setLogLevel("INFO")
    try:
        pass_through(spark, options, tmp_path)
        spark.read.format("streamd").options(stream="in", **options).load().explain("extended")
        wrong = {"port": str(server.port), "password": "no-hidden-word"}
        with pytest.raises(Exception, match="WRONGPASS") as refused:
            spark.read.format("streamd").options(stream="in", **wrong).load().count()
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    log = (spark_folder / "log").read_text(errors="replace")
    assert " INFO " in log, "it logs what it does"
    printed = "".join(capfd.readouterr())
    assert "Physical Plan" in printed
    assert "hidden-word" not in log + printed + str(refused.value)
    files = [each for folder in (spark_folder / "events", tmp_path / "checkpoint") for each in folder.rglob("*")]
    files = [path for path in files if path.is_file()]
    assert len(files) > 3
    assert [str(path) for path in files if b"hidden-word" in path.read_bytes()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_passwords_are_in_nothing_that_a_session_prints_or_writes(new_streamd: Any, tmp_path: Path) -> None:
    """In a session of its own: what it and its processes print, its log of events, its warehouse and its checkpoints."""
    server = new_streamd(requirepass="hidden-word")
    with redis.Redis(port=server.port, password="hidden-word", protocol=2) as store:
        for number in range(COUNT):
            store.xadd("in", {"n": number})
    port, url = str(server.port), f"redis://:hidden-word@127.0.0.1:{server.port}/0"
    # The other ways, passwordFile and passwordEnv, do not even put it among the options.
    ways = [{"port": port, "password": "hidden-word"}, {"url": url}]
    wrong = [{"port": port, "password": "no-hidden-word"}, {"url": url.replace("hidden", "no-hidden")}]
    folder = tmp_path / "work"
    (folder / "events").mkdir(parents=True)
    env = python_environment()
    env["PYTHONPATH"] = str(Path(__file__).parents[1]) + ":" + env["PYTHONPATH"]
    ran = subprocess.run(
        [sys.executable, "-m", "support.spark.passwords", str(folder)], input=json.dumps({"ways": ways, "wrong": wrong}), env=env, cwd=folder,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-5000:]
    assert "INFO" in ran.stderr, "it logs what it does"
    assert ran.stdout.count("WRONGPASS") == 2
    assert "hidden-word" not in ran.stdout
    assert [line for line in ran.stderr.splitlines() if "hidden-word" in line] == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).parts[0] for path in files} >= {"events", "checkpoint", "archive"}
    assert [str(path) for path in files if b"hidden-word" in path.read_bytes()] == []
    with redis.Redis(port=server.port, password="hidden-word", protocol=2) as store:
        assert store.xlen("out") == COUNT


# --- Names as paths, and tables of SQL ------------------------------------------------------------------------------------


def test_a_path_is_the_name_of_a_stream(
    spark: SparkSession, store: redis.Redis, source_options: Options, tmp_path: Path
) -> None:
    rows = spark.range(COUNT).selectExpr("string(id) AS n")
    rows.write.format("streamd").mode("append").options(**source_options).save("in")
    query = (
        spark.readStream.format("streamd")
        .options(**source_options)
        .load("in")
        .select("fields")
        .writeStream.format("streamd")
        .options(checkpointLocation=str(tmp_path), **source_options)
        .trigger(availableNow=True)
        .start("out")
    )
    assert query.awaitTermination(200)
    assert store.xlen("out") == COUNT
    assert spark.read.format("streamd").options(**source_options).load(["in", "out"]).count() == 2 * COUNT


def test_tables_of_sql_are_views_or_are_refused_with_the_reason(
    spark: SparkSession, store: redis.Redis, server: Server
) -> None:
    store.xadd("s", {"n": 5})
    options = f"(stream 's', port '{server.port}')"
    spark.sql(f"CREATE TEMPORARY VIEW of_stream USING streamd OPTIONS {options}")
    assert spark.sql("SELECT stream FROM of_stream").collect()[0].stream == "s"
    with pytest.raises(Exception, match=r"use CREATE TEMPORARY VIEW \.\.\. USING streamd OPTIONS"):
        spark.sql(f"CREATE TABLE of_options USING streamd OPTIONS {options}")
    # Spark does not ask about a table that is given columns; but what reads it has no options.
    spark.sql(f"CREATE TABLE of_columns (n int) USING streamd OPTIONS {options}")
    try:
        with pytest.raises(Exception, match=r"use CREATE TEMPORARY VIEW \.\.\. USING streamd OPTIONS"):
            spark.sql("SELECT n FROM of_columns").collect()
        found = spark.sql(f"SELECT n FROM of_columns WITH (stream = 's', port = '{server.port}')").collect()
        assert [row.n for row in found] == [5]
    finally:
        spark.sql("DROP TABLE of_columns")


def test_another_python_of_the_workers_is_named(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 'No module named pyspark_streamd' >&2\nexit 1\n")
    other.chmod(0o755)
    program = "import streamd.spark; streamd.spark.session(master='local[1]')"
    env = {**python_environment(), "PYSPARK_PYTHON": str(other)}
    found = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert f"Spark's workers run '{other}', which cannot load streamd (No module named pyspark_streamd)" in found.stderr
    assert f"set PYSPARK_PYTHON={sys.executable}" in found.stderr
