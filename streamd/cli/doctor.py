"""`streamd doctor`: what is wrong with a server. The work is done in `streamd/watching`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import click

from streamd.errors import StreamdError
from streamd.shell.caller import Place
from streamd.watching.case import Thresholds
from streamd.watching.doctor import KINDS, Diagnosis, diagnose
from streamd.watching.reading import Limits

__all__ = ["DEFAULT_URL", "command", "place_at"]

DEFAULT_URL = "redis://localhost:6379"
WARNINGS, CRITICAL, NO_ANSWER = 1, 3, 4


@click.command("doctor")
@click.argument("url", default=DEFAULT_URL, envvar="STREAMD_URL", metavar="[URL]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the page.")
@click.option("--all", "shows_all", is_flag=True, help="Show every finding, not only the first three of each kind.")
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help="Leave out a kind of finding; may be repeated.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the server is watched.",
)
@click.option("--match", default="*", show_default=True, metavar="PATTERN", help="Streams to look at.")
@click.option("--streams", type=click.IntRange(1), default=1000, show_default=True, help="How many of them at most.")
@click.option(
    "--keys",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="How many keys are scanned for them at most.",
)
@click.option(
    "--lag",
    type=click.IntRange(1),
    default=Thresholds.lag,
    show_default=True,
    metavar="ENTRIES",
    help="A lag below this is none.",
)
@click.option(
    "--gone-after",
    "gone_s",
    type=click.FloatRange(0),
    default=Thresholds.gone_s,
    show_default=True,
    metavar="SECONDS",
    help="A consumer not seen for so long is gone.",
)
@click.option(
    "--deliveries",
    type=click.IntRange(1),
    default=Thresholds.deliveries,
    show_default=True,
    metavar="N",
    help="More deliveries of an entry are too many.",
)
@click.option(
    "--length",
    type=click.IntRange(1),
    default=Thresholds.length,
    show_default=True,
    metavar="ENTRIES",
    help="A stream shorter than this needs no bound.",
)
@click.option(
    "--memory-days",
    type=click.FloatRange(0),
    default=Thresholds.memory_days,
    show_default=True,
    metavar="DAYS",
    help="Memory that lasts longer is no worry.",
)
@click.option(
    "--done",
    type=click.IntRange(1),
    default=Thresholds.done,
    show_default=True,
    metavar="ENTRIES",
    help="So many acknowledged entries may be kept.",
)
@click.option(
    "--slow-ms",
    type=click.FloatRange(0),
    default=Thresholds.slow_ms,
    show_default=True,
    metavar="MS",
    help="A command that takes longer is slow.",
)
@click.option(
    "--replica-lag",
    "replica_s",
    type=click.FloatRange(0),
    default=Thresholds.replica_s,
    show_default=True,
    metavar="SECONDS",
    help="So long a replica may be silent.",
)
def command(
    url: str,
    as_json: bool,
    shows_all: bool,
    ignored: tuple[str, ...],
    interval_s: float,
    match: str,
    streams: int,
    keys: int,
    **thresholds: float,
) -> None:
    """Find what is wrong with a server (streamd, Redis 7.0 or newer, Valkey): one page of findings, worst first.

    Each finding has its figure, the reason why it matters and the command that fixes it. Nothing is changed. The password
    may be in the URL, or in REDISCLI_AUTH. Exit status: 0 nothing but notices, 1 warnings, 2 a wrong command line,
    3 something critical, 4 no answer. docs/watching.md describes the findings.
    """
    try:
        found = diagnose(
            place_at(url),
            Limits(match=match, keys=keys, streams=streams),
            Thresholds(**thresholds),  # type: ignore[arg-type]  # click has made them what they must be
            interval_s=interval_s,
            ignored=ignored,
        )
    except StreamdError as error:
        click.echo(str(error), err=True)
        sys.exit(NO_ANSWER)
    click.echo(json.dumps(found.as_dict(), indent=1) if as_json else found.page(shows_all=shows_all), nl=as_json)
    sys.exit(status_of(found))


def place_at(url: str) -> Place:
    """Where a URL says a server is; its password may be in the environment. Raises BadUrlError."""
    place = Place.from_url(url)
    secret = os.environ.get("REDISCLI_AUTH")
    return replace(place, password=secret) if secret and place.password is None else place


def status_of(found: Diagnosis) -> int:
    if found.count("critical"):
        return CRITICAL
    return WARNINGS if found.count("warning") else 0
