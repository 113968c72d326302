"""What clients see of a planned switch: redis-py as it is, second by second.

    python -m benchmarks.switching [--seconds 6] [--rate 1000] [--port 7400] [--shutdown | --cluster [--client ioredis]]

Two servers, on 127.0.0.1 and 127.0.0.2 with one port, as on two machines. Ten threads and ten tasks of redis-py append to a stream each, at
the given rate together; in the middle FAILOVER hands over to the replica. Printed for each second and kind of client: requests, errors, the
longest request; in the end, what is missing or there twice. With --shutdown it is SHUTDOWN FAILOVER that hands over; with --cluster, too,
at one of three primaries, whose replicas are on the same machine, and --client takes ioredis or node-redis (redis) in the place of redis-py,
from the folder that NODE_PATH names. Another release of redis-py is used if PYTHONPATH has it. Servers are not pinned: the load shares the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from streamd.embedded import start_cluster

HOSTS = ("127.0.0.1", "127.0.0.2")
WRITERS = 10
"""Of each kind."""
START_DEADLINE_S = 60


class NodeLoad:
    """The same from a Node client, as a process: see switching.cjs."""

    def __init__(self, library: str, port: int, rate: float, seconds: float) -> None:
        self.seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        self.errors: dict[tuple[int, str], list[str]] = defaultdict(list)
        self.done: dict[str, int] = {}
        self._library = library
        script = str(Path(__file__).with_suffix(".cjs"))
        self._process = subprocess.Popen(
            ["node", script, library, str(port), str(seconds), str(rate)], stdout=subprocess.PIPE, text=True
        )

    def join(self) -> None:
        said, _ = self._process.communicate()
        for each in map(json.loads, said.splitlines()):
            if "done" in each:
                self.done = each["done"]
                continue
            where = each["second"], self._library
            self.seconds[where] = [each["longest"] / 1000] * each["requests"]
            self.errors[where] = [each["error"]] * each["errors"]


class Load:
    """Writers of both kinds, and what they have seen."""

    def __init__(self, port: int, rate: float, seconds: float, *, is_cluster: bool = False) -> None:
        self._place = {"host": HOSTS[0], "port": port}
        self._connect_async = redis.asyncio.RedisCluster if is_cluster else redis.asyncio.Redis
        self._period_s = 2 * WRITERS / rate
        self._begun = time.perf_counter()
        self._end = self._begun + seconds
        self._client = (redis.RedisCluster if is_cluster else redis.Redis)(**self._place)
        self.seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        self.errors: dict[tuple[int, str], list[str]] = defaultdict(list)
        self.done: dict[str, int] = {}
        self._threads = [threading.Thread(target=self._write, args=(f"sync-{number}",)) for number in range(WRITERS)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._write_all())))
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _note(self, name: str, begun: float, error: Exception | None) -> float:
        """Record a request; returns the seconds until the next one of this writer."""
        now = time.perf_counter()
        where = int(begun - self._begun), name.partition("-")[0]
        self.seconds[where].append(now - begun)
        if error is None:
            self.done[name] = self.done.get(name, 0) + 1
        else:
            self.errors[where].append(repr(error))
        return max(0.0, begun + self._period_s - now)

    def _write(self, name: str) -> None:
        while (begun := time.perf_counter()) < self._end:
            failure = None
            try:
                self._client.xadd(name, {"n": "1"})
            except redis.RedisError as error:
                failure = error
            time.sleep(self._note(name, begun, failure))

    async def _write_all(self) -> None:
        async with self._connect_async(**self._place) as client:
            await asyncio.gather(*(self._write_later(client, f"asyncio-{number}") for number in range(WRITERS)))

    async def _write_later(self, client: Any, name: str) -> None:
        while (begun := time.perf_counter()) < self._end:
            failure = None
            try:
                await client.xadd(name, {"n": "1"})
            except redis.RedisError as error:
                failure = error
            await asyncio.sleep(self._note(name, begun, failure))


def start(host: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """A server that answers."""
    folder.mkdir()
    settings = {"port": port, "bind": host, "dir": folder, "save": "", "logfile": folder / "log"}
    settings |= {"replica-announce-ip": host, "repl-diskless-sync-delay": 0}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([sys.executable, "-m", "streamd", "server", *words])
    deadline = time.monotonic() + START_DEADLINE_S
    with redis.Redis(host=host, port=port, retry=Retry(NoBackoff(), 0)) as client:
        while time.monotonic() < deadline:
            with suppress(redis.RedisError):
                client.ping()
                return process
            time.sleep(0.05)
    process.kill()
    raise SystemExit(f"The server on {host}:{port} does not answer. Its log: {folder / 'log'}")


def report(load: Load | NodeLoad) -> None:
    for (second, kind), took in sorted(load.seconds.items()):
        failed = load.errors[second, kind]
        shown = (
            f"{second:3} s  {kind:8} {len(took):5} requests {len(failed):4} errors  longest {1000 * max(took):7.1f} ms"
        )
        print(shown, failed[0] if failed else "")


def compare(load: Load | NodeLoad, client: Any) -> None:
    wrong = {name: (count, client.xlen(name)) for name, count in load.done.items() if client.xlen(name) != count}
    print("answered and stored:", wrong or "the same")


def run_in_cluster(arguments: argparse.Namespace) -> None:
    with start_cluster(nodes=6, replicas=1, repl_diskless_sync_delay=0) as cluster:
        primary, asked = cluster.nodes[0], cluster.nodes[1]
        with primary.client() as client:
            while client.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
        load: Load | NodeLoad
        if arguments.client is None:
            load = Load(asked.port, arguments.rate, arguments.seconds, is_cluster=True)
        else:
            load = NodeLoad(arguments.client, asked.port, arguments.rate, arguments.seconds)
        time.sleep(arguments.seconds / 2)
        print(f"SHUTDOWN FAILOVER of one of three primaries after {arguments.seconds / 2} s")
        with primary.client(protocol=2, retry=Retry(NoBackoff(), 0)) as client, suppress(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "FAILOVER")
        load.join()
        report(load)
        with redis.RedisCluster(host=HOSTS[0], port=asked.port) as client:
            compare(load, client)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show what clients see of a planned switch.")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long clients write; default: 6")
    parser.add_argument("--rate", type=float, default=1000.0, help="requests a second; default: 1000")
    parser.add_argument("--shutdown", action="store_true", help="SHUTDOWN FAILOVER hands over, not FAILOVER")
    parser.add_argument(
        "--cluster", action="store_true", help="shut down a primary of a cluster with SHUTDOWN FAILOVER"
    )
    parser.add_argument("--client", choices=["ioredis", "redis"], help="with --cluster: a Node client")
    parser.add_argument("--port", type=int, default=7400, help="of both servers; default: 7400")
    arguments = parser.parse_args()
    if arguments.cluster:
        run_in_cluster(arguments)
        return
    words = ("SHUTDOWN", "FAILOVER") if arguments.shutdown else ("FAILOVER",)
    servers = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for host in HOSTS:
                servers.append(start(host, arguments.port, Path(folder, host)))  # noqa: PERF401  (those started are ended)
            old, new = (redis.Redis(host=host, port=arguments.port) for host in HOSTS)
            new.replicaof(HOSTS[0], arguments.port)
            while old.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
            load = Load(arguments.port, arguments.rate, arguments.seconds)
            time.sleep(arguments.seconds / 2)
            print(f"{' '.join(words)} after {arguments.seconds / 2} s")
            with suppress(redis.ConnectionError):
                redis.Redis(host=HOSTS[0], port=arguments.port, protocol=2).execute_command(*words)
            load.join()
            report(load)
            compare(load, new)
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()


if __name__ == "__main__":
    main()
