"""How long clusters of one machine take to start: until all nodes see `cluster_state:ok`.

    python -m benchmarks.cluster_start [--times 5] [--entries 1000000]

embedded.start_cluster    three nodes, in threads of this program and in processes
streamd cluster start     two nodes, from the start of the command to its end, with --detach; an empty folder, then the same nodes again, with and
                          without `entries` entries of 1,000 streams, which are in snapshots
loading                   the longest of the nodes' own times for their snapshots, as their logs give them

The median of the starts counts, and the load of the machine is printed: with other processes on the cores, all of it takes longer.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from benchmarks.servers import describe_machine
from streamd.embedded import start_cluster
from streamd.embedded.hosted_cluster import free_ports, is_free

STREAMS = 1000
BUS_OFFSET = 10_000


def start_embedded(*, own_process: bool) -> float:
    began = time.perf_counter()
    with start_cluster(nodes=3, own_process=own_process):
        return time.perf_counter() - began


class Cluster:
    """Two nodes that the command starts in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = next(each for each in free_ports(100) if is_free(each + 1) and is_free(each + 1 + BUS_OFFSET))

    def _run(self, *words: str) -> float:
        began = time.perf_counter()
        command = [sys.executable, "-m", "streamd", "cluster", *words, "--dir", str(self._folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began

    def start(self) -> float:
        return self._run("start", "--detach", "--nodes", "2", "--port", str(self._port))

    def stop(self) -> float:
        return self._run("stop")

    def fill(self, entries: int) -> None:
        import redis

        with redis.RedisCluster(host="127.0.0.1", port=self._port) as client:
            for at in range(STREAMS):
                pipe = client.pipeline()
                for number in range(entries // STREAMS):
                    pipe.xadd(f"s:{at}", {"sensor-id": "1234", "temperature": "19.8", "n": number})
                pipe.execute()

    def loading_s(self) -> float:
        """The longest that a node took for its snapshot in the last start."""
        logs = [log.read_text() for log in self._folder.glob("*/streamd.log")]
        return max(float(re.findall(r"DB loaded from disk: ([0-9.]+) seconds", log)[-1]) for log in logs)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--times", default=5, show_default=True, help="Starts of each kind.")
@click.option("--entries", default=1_000_000, show_default=True, help="Entries that both nodes have together.")
def main(times: int, entries: int) -> None:
    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)

    for _ in range(times):
        note("embedded.start_cluster(nodes=3)", start_embedded(own_process=False))
        note("embedded.start_cluster(nodes=3, own_process=True)", start_embedded(own_process=True))
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder, "cluster"))
            note("streamd cluster start --nodes 2, a new cluster", cluster.start())
            cluster.stop()
            note("streamd cluster start, again", cluster.start())
            cluster.fill(entries)
            note(f"streamd cluster stop, {entries:,} entries", cluster.stop())
            note(f"streamd cluster start, {entries:,} entries", cluster.start())
            note("of that, loading, as the nodes report it", cluster.loading_s())
            cluster.stop()
    click.echo(describe_machine(load=f"{os.getloadavg()[0]:.1f}", entries=entries))
    for name, seconds in found.items():
        click.echo(f"{name:55} {statistics.median(seconds):6.2f} s   {min(seconds):6.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
