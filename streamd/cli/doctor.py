"""`streamd doctor`: what is wrong with a server. The work is done in `streamd/watching`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace

import click

from streamd.cli.one_line import say
from streamd.client.place import Place
from streamd.errors import StreamdError
from streamd.watching.case import Thresholds
from streamd.watching.diagnosis import KINDS, Diagnosis, diagnose
from streamd.watching.look import Limits

__all__ = ["DEFAULT_URL", "command", "place_at", "with_port"]

DEFAULT_URL = "redis://localhost:6379"
WARNINGS, CRITICAL, NO_ANSWER = 1, 3, 4


THRESHOLDS = (
    ("lag", "lag", click.IntRange(1), "ENTRIES", "Ignore a lag below this."),
    ("gone-after", "gone_s", click.FloatRange(0), "SECONDS", "Report consumers that have not been seen for this long."),
    ("deliveries", "deliveries", click.IntRange(1), "N", "Report entries that were delivered more often."),
    ("length", "length", click.IntRange(1), "ENTRIES", "Ignore unbounded streams shorter than this."),
    ("memory-days", "memory_days", click.FloatRange(0), "DAYS", "Report memory that will be used up within this time."),
    ("done", "done", click.IntRange(1), "ENTRIES", "Ignore up to this many acknowledged entries that are kept."),
    (
        "elements",
        "elements",
        click.IntRange(100),
        "N",
        "Report hashes, lists, sets and sorted sets with more elements.",
    ),
    ("slow-ms", "slow_ms", click.FloatRange(0), "MS", "Report commands that took longer."),
    ("replica-lag", "replica_s", click.FloatRange(0), "SECONDS", "Report replicas that have been silent for longer."),
    (
        "archive-held",
        "held_s",
        click.FloatRange(0),
        "SECONDS",
        "Report groups that need entries this much older than the last archived one.",
    ),
    (
        "skew",
        "skew",
        click.FloatRange(1),
        "TIMES",
        "Report a primary with more than this many times the mean of slots, memory or commands.",
    ),
    ("hot", "hot", click.FloatRange(0, 1), "SHARE", "Report a stream that gets more of a cluster's entries than this."),
)
"""The options for the attributes of Thresholds: option, attribute, type, unit, help."""


def with_thresholds(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of THRESHOLDS to a command."""
    for option, attribute, kind, unit, text in reversed(THRESHOLDS):
        default = getattr(Thresholds, attribute)
        function = click.option(
            f"--{option}", attribute, type=kind, default=default, show_default=True, metavar=unit, help=text
        )(function)
    return function


with_port = click.option(
    "-p", "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Connect to this port on this machine."
)


@click.command("doctor")
@click.argument("url", default=DEFAULT_URL, envvar="STREAMD_URL", metavar="[URL|HOST:PORT]")
@with_port
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the page.")
@click.option("--all", "shows_all", is_flag=True, help="Show every finding, not only the first three of each kind.")
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help="Omit a kind of finding; may be repeated.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Watch the server for this time.",
)
@click.option(
    "--match", default="*", show_default=True, metavar="PATTERN", help="Examine the streams whose keys match."
)
@click.option(
    "--streams", type=click.IntRange(1), default=1000, show_default=True, help="Examine at most this many streams."
)
@click.option(
    "--keys",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Scan at most this many keys.",
)
@with_thresholds
def command(
    url: str,
    port: int | None,
    as_json: bool,
    shows_all: bool,
    ignored: tuple[str, ...],
    interval_s: float,
    match: str,
    streams: int,
    keys: int,
    **thresholds: float,
) -> None:
    """Report the problems of a server (streamd, Redis 7.0 or newer, Valkey): one page of findings, worst first.

    Of any node of a cluster: the problems of the whole cluster and of all its nodes.

    Each finding has a figure, the reason why it matters and the command that fixes it. Nothing is changed. The password
    may be in the URL, or in REDISCLI_AUTH. Exit status: 0 only notices, 1 warnings, 2 wrong command line,
    3 critical findings, 4 no answer. docs/watching.md describes the findings.
    """
    try:
        found = diagnose(
            place_at(url, port),
            Limits(match=match, keys=keys, streams=streams),
            Thresholds(**thresholds),  # type: ignore[arg-type]  # click has made them what they must be
            interval_s=interval_s,
            ignored=ignored,
        )
    except StreamdError as error:
        say(str(error), err=True)
        sys.exit(NO_ANSWER)
    say(json.dumps(found.as_dict(), indent=1) if as_json else found.page(shows_all=shows_all), nl=as_json)
    sys.exit(status_of(found))


def place_at(url: str, port: int | None = None) -> Place:
    """Where a URL, or `host:port`, says a server is; its password may be in the environment. Raises BadUrlError.

    port  of this machine, instead of the default URL
    """
    if port is not None:
        if url != DEFAULT_URL:
            raise click.UsageError(f"either {url} or --port {port}")
        url = f"localhost:{port}"
    place = Place.from_url(url if "://" in url else f"redis://{url}")
    secret = os.environ.get("REDISCLI_AUTH")
    return replace(place, password=secret) if secret and place.password is None else place


def status_of(found: Diagnosis) -> int:
    if found.count("critical"):
        return CRITICAL
    return WARNINGS if found.count("warning") else 0
