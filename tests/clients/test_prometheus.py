"""The metrics in Prometheus: a real one scrapes a server under load, and answers what dashboard and alerts ask; and an exporter.

Needs Debian's `prometheus` (with promtool) and `prometheus-redis-exporter`; skipped, saying so, where they are missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, eventually, free_port
from support.tools import find_tool

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "streamd.json"
DEADLINE_S = 100
MAY_BE_EMPTY = ("streamd_connected_replica_", "> 0", "streamd_primary_link_up")
"""Queries with these have no answer while nothing is wrong, or without replicas."""


# --- Files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")],
)
def test_promtool_accepts_the_files(words: tuple[str, ...]) -> None:
    said = subprocess.run(
        [find_tool("promtool"), *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


def queries_of_dashboard() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def queries_of_alerts() -> list[str]:
    text = ALERTS.read_text()
    return [" ".join(each.split()) for each in re.findall(r"expr: (?:>\n)?((?:.|\n)*?)\n +(?:for|labels):", text)]


def test_every_panel_has_its_place() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(queries_of_dashboard()) > 30
    assert len(queries_of_alerts()) == ALERTS.read_text().count("- alert:")


# --- A real Prometheus ---------------------------------------------------------------------------------------------------


class Prometheus:
    """A Prometheus that scrapes a server twice a second."""

    def __init__(self, folder: Path, metrics_port: int) -> None:
        self.port = free_port()
        text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        text = text.replace("15s", "500ms").replace("localhost:9121", f"127.0.0.1:{metrics_port}")
        (folder / "prometheus.yml").write_text(text)
        (folder / "alerts.yml").write_text(ALERTS.read_text())
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                find_tool("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def get(self, path: str, **arguments: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
            return json.load(response)["data"]

    def query(self, text: str) -> list[Any]:
        found: list[Any] = self.get("query", query=text)["result"]
        return found

    def wait_for(self, text: str) -> list[Any]:
        """The answer to a query, as soon as there is one."""
        found: list[Any] = []
        eventually(lambda: found.extend(self.query(text)) or found, DEADLINE_S, text)
        return found

    def target(self) -> Any:
        """What it says of the server; None while it does not answer, or has not looked."""
        try:
            targets = self.get("targets")["activeTargets"]
        except OSError:
            return None
        return targets[0] if targets and targets[0]["health"] != "unknown" else None

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._log.close()


@contextmanager
def load(server: Server) -> Iterator[None]:
    """Producers and consumers at work; one consumer has gone, and one entry comes back again and again."""
    stop = threading.Event()
    with redis.Redis(port=server.port, protocol=2) as client:
        for stream in ("orders", "readings"):
            client.xgroup_create(stream, "billing", 0, mkstream=True)
            client.xgroup_create(stream, "archive", 0)
        client.xadd("orders", {"a": 1})
        client.xreadgroup("billing", "gone", {"orders": ">"})
        (poison,) = client.xpending_range("orders", "billing", "-", "+", 1)
        for _ in range(9):
            client.xclaim("orders", "billing", "gone", 0, [poison["message_id"]])

    def work() -> None:
        with redis.Redis(port=server.port, protocol=2) as client:
            while not stop.is_set():
                for stream in ("orders", "readings"):
                    for _ in range(5):
                        client.xadd(stream, {"a": 1}, maxlen=200)
                    got = client.xreadgroup("billing", "alice", {stream: ">"}, count=4)
                    client.xack(stream, "billing", *(entry for entry, _ in got[0][1][1:]))
                with pytest.raises(
                    redis.ResponseError, match="Operation against a key holding the wrong kind of value"
                ):
                    client.incr("orders")
                time.sleep(0.001)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def without_variables(query: str) -> str:
    return query.replace("$instance", ".*").replace("$stream", ".*").replace("$__rate_interval", "10s")


def test_prometheus_answers_what_dashboard_and_alerts_ask(new_streamd: StartServer, tmp_path: Path) -> None:
    find_tool("prometheus")
    metrics_port = free_port()
    server = new_streamd(metrics_port=str(metrics_port), slowlog_log_slower_than="0")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    prometheus = Prometheus(folder, metrics_port)
    try:
        with load(server):
            eventually(prometheus.target, DEADLINE_S, "the first scrape")
            eventually(
                lambda: prometheus.query("count_over_time(streamd_uptime_seconds[1m]) > 10"), DEADLINE_S, "scrapes"
            )
            # A scrape that the machine had no time for leaves a gap: answers come when there have been others.
            for query in map(without_variables, queries_of_dashboard()):
                if any(each in query for each in MAY_BE_EMPTY):
                    prometheus.query(query)
                else:
                    prometheus.wait_for(query)
            for query in queries_of_alerts():
                prometheus.query(query)
            (poison,) = prometheus.wait_for("streamd_group_often_delivered_entries > 0")
            assert (poison["metric"]["stream"], poison["metric"]["group"], poison["value"][1]) == (
                "orders",
                "billing",
                "1",
            )
            prometheus.wait_for('rate(streamd_stream_entries_added_total{stream="readings"}[10s]) > 0')
            quantiles = "histogram_quantile(0.99, rate(streamd_command_duration_seconds_bucket[10s]))"
            eventually(
                lambda: (
                    {each["metric"]["command"] for each in prometheus.query(quantiles)}
                    >= {"xadd", "xreadgroup", "xack"}
                ),
                DEADLINE_S,
                "quantiles",
            )
            eventually(
                lambda: [(prometheus.target() or {}).get(name) for name in ("health", "lastError")] == ["up", ""],
                DEADLINE_S,
            )
            (rules,) = prometheus.get("rules")["groups"]
            assert [rule["name"] for rule in rules["rules"] if rule["health"] == "err"] == []
        server.kill()
        eventually(lambda: prometheus.query('up{job="streamd"} == 0'), DEADLINE_S, "the end of the server")
    finally:
        prometheus.close()


# --- An exporter ---------------------------------------------------------------------------------------------------------


def exported(server: Server, folder: Path) -> set[str]:
    """The names of the metrics that redis_exporter makes of a server."""
    port = free_port()
    with (folder / f"{server.name}-exporter.log").open("wb") as log:
        exporter = subprocess.Popen(
            [
                find_tool("prometheus-redis-exporter"), "-redis.addr", f"redis://127.0.0.1:{server.port}",
                "-web.listen-address", f"127.0.0.1:{port}", "-check-streams", "db0=orders", "-check-keys", "db0=name",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip

    def get() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as response:
                text: str = response.read().decode()
                return text
        except OSError:
            return ""

    try:
        shown = ""

        def is_up() -> bool:
            nonlocal shown
            shown = get()
            return "\nredis_up 1\n" in shown

        eventually(is_up, DEADLINE_S, "the exporter")
        return set(re.findall(r"^redis_\w+", shown, re.MULTILINE))
    finally:
        exporter.terminate()
        exporter.wait(DEADLINE_S)


@pytest.mark.real
def test_redis_exporter_makes_the_same_metrics_of_streamd_as_of_redis(
    new_streamd: StartServer, new_redis: StartServer, tmp_path: Path
) -> None:
    names = []
    for start in (new_streamd, new_redis):
        server = start(appendonly="yes", slowlog_log_slower_than="0")
        replica = start(replicaof=f"127.0.0.1 {server.port}")
        with redis.Redis(port=server.port, protocol=2) as client:
            client.set("name", "value", ex=1000)
            client.xadd("orders", {"a": 1})
            client.xgroup_create("orders", "billing", 0)
            client.xreadgroup("billing", "alice", {"orders": ">"})
            with pytest.raises(redis.ResponseError, match="not an integer"):
                client.incr("name")
            # What names of metrics depend on: replicas, and that nothing is under way.
            eventually(lambda: client.info("replication").get("slave0", {}).get("state") == "online", DEADLINE_S)
        with redis.Redis(port=replica.port, protocol=2) as client:
            eventually(lambda: client.info("replication")["master_link_status"] == "up", DEADLINE_S)
        names.append(exported(server, tmp_path))
        names.append(exported(replica, tmp_path))
    ours, ours_as_replica, theirs, theirs_as_replica = names
    assert ours == theirs
    assert ours_as_replica == theirs_as_replica
    assert len(ours) > 100
