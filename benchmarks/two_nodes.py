"""Two nodes of a cluster compared with one: what a request costs the servers, without the load generator.

    python -m benchmarks.two_nodes [--requests 20000] [--rounds 15]

A cluster of two primaries, and two clusters of one, which do not know of each other. Each node gets the same load, from a process of its own: XADD in pipelines of 16 (eight times as many
entries) and one by one, and XREADGROUP COUNT 10 + XACK of all ten, to four streams one after the other, a request at a time. What is counted
is the CPU time of each node's process, so it does not matter what the load costs. A node and its load are bound to one core, and both cores
are busy in both cases: what two busy cores cost each other is not a cost of the cluster.

A node is at its limit when it uses a second of CPU in a second. So with a core for itself, it serves as many entries per second as it has
served here, divided by the CPU seconds that it has used, and the cluster serves the sum of its nodes; one node is the mean of the two that
are alone. Of each node, the round with the least CPU time counts.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import mean

import click

from benchmarks.servers import describe_machine
from streamd.embedded import EmbeddedCluster, start_cluster
from streamd.partitions.parts import tag_of
from streamd.protocol.request_bytes import encode_request

STREAMS = 4
BATCH = 10


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used, in nanoseconds' resolution; /proc has only hundredths of a second."""
    return time.clock_gettime(~pid << 3 | 2)


def receive(sock: socket.socket, ends: int, end: bytes) -> bytes:
    """Bytes until so many replies have ended."""
    data = b""
    while data.count(end) < ends:
        data += sock.recv(1 << 20)
    return data


def append(sock: socket.socket, stream: str, requests: int, pipeline: int) -> None:
    request = encode_request("XADD", stream, "*", "sensor-id", "1234", "temperature", "19.8") * pipeline
    for _ in range(requests // pipeline):
        sock.sendall(request)
        receive(sock, 2 * pipeline, b"\r\n")


def consume(sock: socket.socket, stream: str, requests: int) -> None:
    sock.sendall(encode_request("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM"))
    receive(sock, 1, b"\r\n")
    read = encode_request("XREADGROUP", "GROUP", "workers", "w", "COUNT", BATCH, "STREAMS", stream, ">")
    for _ in range(requests // BATCH):
        sock.sendall(read)
        data = receive(sock, BATCH, b"19.8\r\n")
        ids = [line for line in data.split(b"\r\n") if b"-" in line and line[:1].isdigit()]
        sock.sendall(encode_request("XACK", stream, "workers", *ids))
        receive(sock, 1, b"\r\n")


def put_load_on(port: int, streams: list[str], act: Callable[[socket.socket, str], None], core: int) -> None:
    os.sched_setaffinity(0, {core})
    for stream in streams:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            act(sock, stream)


def streams_by_port(cluster: EmbeddedCluster) -> dict[int, list[str]]:
    """Streams that are spread evenly over the nodes."""
    count = STREAMS * len(cluster.nodes)
    client = cluster.client()
    found: dict[int, list[str]] = {node.port: [] for node in cluster.nodes}
    for number in range(count):
        stream = f"s:{{{tag_of(number, count)}}}"
        found[client.get_node_from_key(stream).port].append(stream)
    if any(len(streams) != STREAMS for streams in found.values()):
        raise SystemExit(f"the streams are spread unevenly: {found}")
    return found


def measure(clusters: list[EmbeddedCluster], act: Callable[[socket.socket, str], None]) -> list[float]:
    """The CPU time of each node of clusters."""
    cores = sorted(os.sched_getaffinity(0))
    fork = multiprocessing.get_context("fork")
    pids, loads = [], []
    for cluster in clusters:
        streams = streams_by_port(cluster)
        for node in cluster.nodes:
            core = cores[len(pids)]
            with node.client() as client:
                pids.append(client.info("server")["process_id"])
            os.sched_setaffinity(pids[-1], {core})
            loads.append(fork.Process(target=put_load_on, args=(node.port, streams[node.port], act, core)))
    before = list(map(cpu_s, pids))
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    return [cpu_s(pid) - begun for pid, begun in zip(pids, before, strict=True)]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--requests", default=20_000, show_default=True, help="Entries for each node.")
@click.option("--rounds", default=15, show_default=True, help="Rounds, of which the least counts.")
def main(requests: int, rounds: int) -> None:
    share = requests // STREAMS
    loads: dict[str, Callable[[socket.socket, str], None]] = {
        "XADD, pipeline 16": lambda sock, stream: append(sock, stream, 8 * share, 16),
        "XADD": lambda sock, stream: append(sock, stream, share, 1),
        "XREADGROUP COUNT 10 + XACK": lambda sock, stream: consume(sock, stream, share),
    }
    found: dict[tuple[str, int], list[list[float]]] = {}
    for _ in range(rounds):
        for nodes in (1, 2):
            with ExitStack() as stack:
                clusters = [
                    stack.enter_context(start_cluster(nodes=nodes, own_process=True, save=""))
                    for _ in range(2 // nodes)
                ]
                for name, act in loads.items():
                    found.setdefault((name, nodes), []).append(measure(clusters, act))
    click.echo(describe_machine())
    click.echo(
        f"{'':28} {'one node':>12} {'two nodes':>12} {'times':>6}   entries per second, with a core for each node"
    )
    for name in loads:
        entries = (8 if "16" in name else 1) * share * STREAMS
        one, two = (
            nodes * mean(entries / min(node) for node in zip(*found[name, nodes], strict=True)) for nodes in (1, 2)
        )
        click.echo(f"{name:28} {one:12,.0f} {two:12,.0f} {two / one:6.2f}")


if __name__ == "__main__":
    main()
