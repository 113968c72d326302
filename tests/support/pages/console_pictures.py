"""Pictures of the console: its views at 1280 and 400 px, light and dark, of a server under a small load.

    python -m tests.support.pages.console_pictures FOLDER [--seconds N] [--view streams --view group ...]

The names are those of the views: streams-1280-light.png. `--seconds` is how long charts are drawn before they are photographed.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from pathlib import Path

import click
import redis

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.pages.browser import Browser
from support.servers import free_port, start_streamd

VIEWS = {
    "streams": "streams",
    "stream": "stream?db=0&key=orders",
    "group": "group?db=0&key=orders&group=billing",
    "overview": "overview",
    "clients": "clients",
    "slowlog": "slowlog",
    "memory": "memory",
    "settings": "settings",
}
WITH_CHARTS = ("streams", "stream", "overview")
STREAMS = {
    "orders": 40, "payments": 25, "shipments": 12, "audit": 60, "clicks:eu": 90, "clients:events": 8, "sensors:hall-1": 30,
    "sensors:hall-2": 30, "mail:out": 3, "alerts": 1,
}  # fmt: skip
"""Streams, and how many entries a second they get."""
GROUPS = {
    "orders": ("billing", "shipping", "search"),
    "payments": ("ledger",),
    "audit": ("archive", "fraud"),
    "mail:out": ("smtp",),
}


class Load:
    """Producers and consumers of some streams, in a thread, until it is closed."""

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)
        self._chance = random.Random(1)
        self._end = threading.Event()
        for key, names in GROUPS.items():
            for name in names:
                self._client.xgroup_create(key, name, 0, mkstream=True)
        for _ in range(40):
            self._step()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(0.1):
            self._step()

    def _step(self) -> None:
        chance = self._chance
        for key, rate in STREAMS.items():
            for _ in range(chance.randint(0, max(1, rate // 5))):
                order = {
                    "order": chance.randint(10_000, 99_999),
                    "customer": f"c{chance.randint(1, 500)}",
                    "amount": chance.randint(5, 900),
                }
                self._client.xadd(key, order, maxlen=5000)
        for key, names in GROUPS.items():
            for at, name in enumerate(names):
                consumer = chance.choice(("alice", "bob", "carol"))
                found = self._client.xreadgroup(name, consumer, {key: ">"}, count=chance.randint(1, 9 - 3 * at))
                for _, entries in found:
                    self._client.xack(
                        key, name, *(entry_id for entry_id, _ in entries if chance.random() < 0.9), b"0-1"
                    )

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._client.close()


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--view", "views", multiple=True, type=click.Choice([*VIEWS]), help="Only these.")
def main(folder: Path, seconds: float, views: tuple[str, ...]) -> None:
    """Write pictures of the console into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        server = start_streamd(
            place, {"http-port": str(port), "http-allow-writes": "yes", "slowlog-log-slower-than": "100"}
        )
        load = Load(server.port)
        try:
            with Browser(place) as browser:
                for name in views or VIEWS:
                    pages = {
                        (width, scheme): browser.open(
                            f"http://127.0.0.1:{port}/#/{VIEWS[name]}",
                            width=width,
                            height=800,
                            is_dark=scheme == "dark",
                        )
                        for width in (1280, 400)
                        for scheme in ("light", "dark")
                    }
                    for page in pages.values():
                        page.wait(f"document.querySelector('main[data-view={name}][aria-busy=false]')")
                    if name in WITH_CHARTS:
                        threading.Event().wait(seconds)
                    for (width, scheme), page in pages.items():
                        page.photograph(folder / f"{name}-{width}-{scheme}.png")
                        page.call("Page.close")
                        click.echo(f"{name}-{width}-{scheme}.png")
        finally:
            load.close()
            server.stop()


if __name__ == "__main__":
    main()
