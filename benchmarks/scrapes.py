"""What scrapes of the metrics cost: the server's CPU, and the delay of other clients with and without them.

    python -m benchmarks.scrapes [--streams N] [--groups N] [--seconds N] [--rounds N] [--every SECONDS]

The streams have 50 entries each, and each of their groups two consumers with pending entries. CPU is that of the process, by INFO,
between two scrapes in a row: that of the HTTP side is in it. The delay is that of XADD after XADD on one connection, in turn
without scrapes and with one every so many seconds; the load and the scraper share a CPU that is not the server's.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from statistics import median

import click

from benchmarks.load import make_request
from benchmarks.servers import Server, describe_machine, end_in_order, pin_load, start_server

__all__ = ["main"]

ENTRIES = 50
SCRAPER = """
import sys, time, urllib.request
while True:
    began = time.monotonic()
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(max(0, float(sys.argv[2]) - (time.monotonic() - began)))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fill(server: Server, streams: int, groups: int) -> None:
    """Make the streams, their groups and what is pending there."""
    for number in range(streams):
        key = f"stream:{number}"
        requests: list[tuple[str | int, ...]] = [("XADD", key, "*", "name", "value") for _ in range(ENTRIES)]
        for group in range(groups):
            requests.append(("XGROUP", "CREATE", key, f"group:{group}", 0))
            read = ("XREADGROUP", "GROUP", f"group:{group}")
            requests += [(*read, consumer, "COUNT", 8, "STREAMS", key, ">") for consumer in ("alice", "bob")]
        end = b"the end %d" % number
        with server.connect() as sock:
            sock.sendall(b"".join(make_request(*request) for request in (*requests, ("ECHO", end))))
            tail = b""
            while not tail.endswith(end + b"\r\n"):
                tail = (tail + sock.recv(1 << 20))[-100:]


def scrape(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        text: bytes = response.read()
        return text


def cpu_of_scrapes_ms(server: Server, url: str, count: int = 20) -> tuple[float, int]:
    """The median CPU of a scrape, and its samples."""
    found = []
    text = scrape(url)
    for _ in range(count):
        before = server.cpu_s()
        text = scrape(url)
        found.append((server.cpu_s() - before) * 1000)
    return median(found), len(re.findall(rb"^[^#]", text, re.MULTILINE))


def delays_ms(server: Server, seconds: float) -> list[float]:
    """The delays of XADD after XADD, sorted."""
    request = make_request("XADD", "delay", "MAXLEN", "~", 1000, "*", "name", "value")
    found = []
    with server.connect() as sock:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            sock.sendall(request)
            sock.recv(100)
            found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


def show(name: str, delays: list[float]) -> str:
    at = (delays[len(delays) * part // 1000] for part in (500, 990, 999))
    return f"{name:28}" + "".join(f"{each:>9.3f}" for each in (*at, delays[-1])) + f"{len(delays):>12,}"


@click.command()
@click.option("--streams", default=1000, show_default=True)
@click.option("--groups", default=5, show_default=True, help="Of each stream.")
@click.option("--seconds", default=15.0, show_default=True, help="Of each measurement of delays.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--every", default=5.0, show_default=True, help="Seconds from one scrape to the next.")
def main(streams: int, groups: int, seconds: float, rounds: int, every: float) -> None:
    """Print what scrapes cost the server and its other clients."""
    pin_load()
    end_in_order()
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with start_server("streamd", "--metrics-port", str(port), "--metrics-max-consumers", str(0)) as server:
        fill(server, streams, groups)
        click.echo(
            describe_machine(server, streams=streams, groups=groups, seconds=seconds, rounds=rounds, every=every)
        )
        cpu_ms, samples = cpu_of_scrapes_ms(server, url)
        click.echo(f"CPU of a scrape: {cpu_ms:.1f} ms, {samples:,} samples")
        click.echo(f"{'delay of XADD, ms':28}{'median':>9}{'p99':>9}{'p99.9':>9}{'longest':>9}{'requests':>12}")
        for _ in range(rounds):
            click.echo(show("without scrapes", delays_ms(server, seconds)))
            scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, url, str(every)])
            try:
                click.echo(show(f"a scrape every {every:g} s", delays_ms(server, seconds)))
            finally:
                scraper.terminate()
                scraper.wait()


if __name__ == "__main__":
    main()
