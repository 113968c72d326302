"""What an open console costs: the server's CPU for what a page shows, and the delay of other clients with and without pages open.

    python -m benchmarks.console [--streams N] [--groups N] [--seconds N] [--rounds N] [--pages N]

The streams are those of benchmarks.scrapes. A page is a process that asks as the page of the console does: for all streams every
five seconds, for one stream and for the server every two, and it follows the stream that is written to. The delay is that of XADD
after XADD on one connection; the load and the pages share a CPU that is not the server's. CPU is that of the server's process, by
INFO: that of HTTP is in it. The longest piece is the most CPU between two turns of the event loop, while an answer is made by a
server in a thread of this process: so long others wait at least. Unlike delays it does not depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from statistics import median

import click

from benchmarks.scrapes import delays_ms, fill, free_port, show
from benchmarks.servers import Server, describe_machine, end_in_order, pin_load, start_server
from streamd.embedded.hosts import ThreadHost

__all__ = ["main"]

ASKED = ("streams?db=0", "overview", "stream?db=0&key=stream%3A0", "group?db=0&key=stream%3A0&group=group%3A0",
         "entries?db=0&key=stream%3A0", "clients", "slowlog", "settings", "memory")  # fmt: skip
PAGE = """
import sys, threading, time, urllib.request
address, cookie = sys.argv[1:]
def ask(name):
    return urllib.request.urlopen(urllib.request.Request(f"{address}/api/{name}", headers={"Cookie": cookie}))
def again(name, every_s):
    while True:
        began = time.monotonic()
        ask(name).read()
        took_s = time.monotonic() - began
        time.sleep(max(every_s - took_s, 20 * took_s))
def follow(name):
    for line in ask(name):
        pass
for name, every_s in (("streams?db=0", 5), ("stream?db=0&key=delay", 2), ("overview", 2)):
    threading.Thread(target=again, args=(name, every_s), daemon=True).start()
follow("tail?db=0&key=delay")
"""


def log_in(port: int) -> str:
    """The cookie of a session of the default user."""
    connection = HTTPConnection("127.0.0.1", port)
    origin = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
    connection.request("POST", "/api/session", body="{}", headers=origin)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.headers["Set-Cookie"].partition(";")[0]


def costs(server: Server, port: int, cookie: str, name: str, count: int = 10) -> tuple[float, int]:
    """The median CPU of the server for an answer in ms, and the answer's bytes."""
    connection = HTTPConnection("127.0.0.1", port)
    found, size = [], 0
    for _ in range(count + 1):
        before = server.cpu_s()
        connection.request("GET", f"/api/{name}", headers={"Cookie": cookie})
        data = connection.getresponse().read()
        found.append((server.cpu_s() - before) * 1000)
        size = len(data)
        if "error" in json.loads(data):
            raise SystemExit(f"{name}: {data.decode()}")
    connection.close()
    return median(found[1:]), size


class Watched:
    """A server in a thread of this process; `pieces_ms` are the CPU times between the turns of its event loop."""

    def __init__(self, folder: str, port: int) -> None:
        self._thread = ThreadHost({"dir": folder, "save": "", "http-port": port}, any_port=True)
        self._thread.wait()
        self.pieces_ms: list[float] = []
        self._task = self._thread.inside(lambda server: server.loop.create_task(self._watch()))

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.pieces_ms.append((now - last) * 1000)
            last = now

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._thread.port))

    def close(self) -> None:
        self._thread.inside(lambda server: self._task.cancel())
        self._thread.stop(save=False)


def longest_pieces_ms(streams: int, groups: int, count: int = 10) -> dict[str, float]:
    """The median of the longest piece of each answer."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        server = Watched(folder, port)
        fill(server, streams, groups)
        cookie, found = log_in(port), {}
        connection = HTTPConnection("127.0.0.1", port)
        for name in ASKED:
            longest = []
            for _ in range(count):
                server.pieces_ms.clear()
                connection.request("GET", f"/api/{name}", headers={"Cookie": cookie})
                connection.getresponse().read()
                longest.append(max(server.pieces_ms))
            found[name] = median(longest)
        connection.close()
        server.close()
    return found


@click.command()
@click.option("--streams", default=1000, show_default=True)
@click.option("--groups", default=5, show_default=True, help="Of each stream.")
@click.option("--seconds", default=15.0, show_default=True, help="Of each measurement of delays.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--pages", default=2, show_default=True, help="How many are open.")
def main(streams: int, groups: int, seconds: float, rounds: int, pages: int) -> None:
    """Print what a console costs the server and its other clients."""
    pin_load()
    end_in_order()
    port = free_port()
    with start_server("streamd", "--http-port", str(port)) as server:
        fill(server, streams, groups)
        click.echo(
            describe_machine(server, streams=streams, groups=groups, seconds=seconds, rounds=rounds, pages=pages)
        )
        cookie = log_in(port)
        longest_ms = longest_pieces_ms(streams, groups)
        click.echo(f"{'answer':44}{'CPU, ms':>9}{'longest piece':>15}{'bytes':>12}")
        for name in ASKED:
            cpu_ms, size = costs(server, port, cookie, name)
            click.echo(f"{name:44}{cpu_ms:>9.1f}{longest_ms[name]:>15.2f}{size:>12,}")
        click.echo(f"{'delay of XADD, ms':28}{'median':>9}{'p99':>9}{'p99.9':>9}{'longest':>9}{'requests':>12}")
        for _ in range(rounds):
            click.echo(show("without a console", delays_ms(server, seconds)))
            opened = [
                subprocess.Popen([sys.executable, "-c", PAGE, f"http://127.0.0.1:{port}", log_in(port)])
                for _ in range(pages)
            ]
            try:
                click.echo(show(f"{pages} pages open", delays_ms(server, seconds)))
            finally:
                for each in opened:
                    each.terminate()
                for each in opened:
                    each.wait()


if __name__ == "__main__":
    main()
