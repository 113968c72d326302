"""Pictures of what streamd draws, for looking at: reports, the benchmarks' charts and `streamd top`, in headless Chromium.

    python -m tests.support.pages.screenshots FOLDER          starts a server, fills streams, makes a report, and takes PNGs

Each page is taken at 1280 and at 400 pixels, on a light and on a dark screen; `top` in a wide and in a narrow terminal.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import redis

import streamd.embedded

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HEIGHT = 1400
SCREENS = 5
"""So many screens are taken of a report."""
LOOKS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]
SCHEMES = {"dark": 0, "light": 1}
"""What Chromium calls them in `preferredColorScheme`."""
CHARTS = ("docs/figures.svg", "benchmarks/results/ratios.svg", "benchmarks/results/latency.svg")
ROOT = Path(__file__).parents[3]
TERMINALS = ((140, 30), (80, 24))
START_MS = 1_795_255_200_000


def take(page: Path, folder: Path, screens: int = 1, looks: Sequence[tuple[int, str]] = LOOKS) -> Iterator[Path]:
    """PNGs of a page, at each width on each screen, so many screens long. Raises RuntimeError without Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise RuntimeError("there is no Chromium: apt-get install chromium")
    frame = folder / "frame.html"
    for (width, scheme), at in itertools.product(looks, range(screens)):
        # A window is never narrower than 500 pixels, but a frame may be. It is moved up to show what is further down.
        style = f"border:0;width:{width}px;height:{HEIGHT * screens}px;margin-top:-{HEIGHT * at}px"
        frame.write_text(f'<body style="margin:0"><iframe src="{page.resolve().as_uri()}" style="{style}"></iframe>')
        out = folder / f"{page.stem}-{width}-{scheme}{f'-{at + 1}' if screens > 1 else ''}.png"
        subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--window-size={max(width, 500)},{HEIGHT}",
                f"--user-data-dir={folder / 'chromium'}", f"--screenshot={out}", frame.resolve().as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        yield out
    frame.unlink()
    shutil.rmtree(folder / "chromium", ignore_errors=True)


def fill(client: redis.Redis) -> None:
    """A stream with bursts, a long gap, numbers, groups with long names, entries that come back and a consumer that hangs."""
    source = random.Random(1)
    at = START_MS
    pipe = client.pipeline(transaction=False)
    for number in range(20_000):
        at += 1 + int(source.expovariate(1 / 400)) if number % 5000 > 1500 else 1 + int(source.expovariate(1 / 4000))
        at += 3 * 3_600_000 if number == 12_000 else 0
        celsius = 20 + 4 * (number % 5000) / 5000 + source.gauss(0, 0.8)
        pipe.xadd(
            "readings",
            {"sensor": f"room-{number % 7}", "celsius": f"{celsius:.2f}", "volts": f"{source.random():.3f}"},
            id=f"{at}-0",
        )
    pipe.execute()
    names = ["billing", *(f"a-service-with-a-rather-long-name-in-a-region-{each}" for each in ("north", "south"))]
    for rank, name in enumerate(names):
        client.xgroup_create("readings", name, "0")
        for turn in range(6 - 2 * rank):
            read = client.xreadgroup(name, f"worker-{turn % 3}", {"readings": ">"}, count=900)
            ids = [entry for entry, _ in read[0][1]]
            client.xack("readings", name, *ids[: len(ids) - 40 * (turn + 1)])
    for _ in range(8):
        client.xautoclaim("readings", "billing", "worker-2", 0, "0", count=12)
    client.xgroup_create("readings", "nobody-reads-this", "$")
    for number in range(30):
        client.xadd("orders", {"number": number, "note": "of May"})
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "alice", {"orders": ">"}, count=10)
    client.config_set("slowlog-log-slower-than", 200)


async def draw_top(url: str, client: redis.Redis, folder: Path) -> list[Path]:
    """Each table of `streamd top` as an SVG, while entries come in."""
    from streamd.cli.doctor import place_at
    from streamd.watching.board import Board
    from streamd.watching.look import Limits, Reader
    from streamd.watching.screen import Top

    made = []
    for columns, lines in TERMINALS:
        top = Top(lambda: Board(Reader(place_at(url), Limits())), interval_s=0.2)
        async with top.run_test(size=(columns, lines)) as pilot:
            for key, name in enumerate(("groups", "streams", "consumers", "commands", "slow"), 1):
                await pilot.press(str(key))
                for _ in range(20):
                    client.xadd("orders", {"number": key})
                    await pilot.pause(0.05)
                made.append(folder / f"top-{name}-{columns}.svg")
                made[-1].write_text(top.export_screenshot())
            await pilot.press("1", "enter")
            await pilot.pause(0.5)
            made.append(folder / f"top-pending-{columns}.svg")
            made[-1].write_text(top.export_screenshot())
    return made


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Take pictures of a report, the charts and `streamd top`, into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = [ROOT / each for each in CHARTS]
    with streamd.embedded.start() as server:
        client = server.client()
        fill(client)
        from streamd.cli.report import ReportRequest, make_report

        out = folder / "report.html"
        make_report(ReportRequest("readings", {"url": server.url}, out=str(out)))
        screens = asyncio.run(draw_top(server.url, client, folder))
        client.close()
    taken = [take(out, folder, SCREENS), *(take(page, folder) for page in pages)]
    taken += [take(screen, folder, looks=[(1280, "dark")]) for screen in screens]
    for each in itertools.chain(*taken):
        click.echo(f"written    {each}")


if __name__ == "__main__":
    main()
