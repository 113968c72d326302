"""Two nodes of a cluster compared with one: what a request costs the servers, without the load generator.

    python -m benchmarks.two_nodes [--requests 100000] [--rounds 3]

Clusters of one and of two primaries: each node gets the same requests, over four connections, each for a stream of its own:
XADD in pipelines of 16 (eight times as many) and one by one, and XREADGROUP COUNT 10 + XACK. Counted is the time of the processor of each node, from /proc, so it does
not matter what else the cores do. A node is busy when it has used a second of a core per second; so the requests that a second of
the busiest node's time serves are those that the cluster serves per second if each node has a core. Median of the rounds.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.servers import describe_machine
from streamd.embedded import EmbeddedCluster, start_cluster
from streamd.partitions.parts import tag_of
from streamd.protocol.request_bytes import encode_request

CONNECTIONS = 4
BATCH = 10


def cpu_s(pid: int) -> float:
    """The time of the processor that a process has used."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


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


def measure(cluster: EmbeddedCluster, act: Callable[[socket.socket, str], None]) -> float:
    """The time of the processor of the busiest node, for all connections together."""
    nodes = len(cluster.nodes)
    client = cluster.client()
    count = CONNECTIONS * nodes
    streams = [f"s:{{{tag_of(number, count)}}}" for number in range(count)]
    at = {node.port: number for number, node in enumerate(cluster.nodes)}
    owners = [at[client.get_node_from_key(stream).port] for stream in streams]
    if any(owners.count(number) != CONNECTIONS for number in range(nodes)):
        raise SystemExit(f"the streams are spread unevenly: {owners}")
    pids = [node.client().info("server")["process_id"] for node in cluster.nodes]
    before = list(map(cpu_s, pids))
    sockets = [socket.create_connection(("127.0.0.1", cluster.nodes[owner].port)) for owner in owners]
    threads = [threading.Thread(target=act, args=(sock, stream)) for sock, stream in zip(sockets, streams, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sock in sockets:
        sock.close()
    return max(cpu_s(pid) - begun for pid, begun in zip(pids, before, strict=True))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--requests", default=100_000, show_default=True, help="Entries for each node.")
@click.option("--rounds", default=3, show_default=True, help="Rounds, of which the median is shown.")
def main(requests: int, rounds: int) -> None:
    share = requests // CONNECTIONS
    loads: dict[str, Callable[[socket.socket, str], None]] = {
        "XADD, pipeline 16": lambda sock, stream: append(sock, stream, 8 * share, 16),
        "XADD": lambda sock, stream: append(sock, stream, share, 1),
        "XREADGROUP COUNT 10 + XACK": lambda sock, stream: consume(sock, stream, share),
    }
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for nodes in (1, 2):
            with start_cluster(nodes=nodes, own_process=True, save="") as cluster:
                for name, act in loads.items():
                    found.setdefault((name, nodes), []).append(measure(cluster, act))
    click.echo(describe_machine())
    click.echo(f"{'':28} {'one node':>12} {'two nodes':>12} {'times':>6}   entries per second of the busiest node")
    for name in loads:
        entries = (8 if "16" in name else 1) * share * CONNECTIONS
        one, two = (nodes * entries / statistics.median(found[name, nodes]) for nodes in (1, 2))
        click.echo(f"{name:28} {one:12,.0f} {two:12,.0f} {two / one:6.2f}")


if __name__ == "__main__":
    main()
