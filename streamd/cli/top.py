"""`streamd top`: what a server does now, on a screen, or once. The work is done in `streamd/watching`."""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
import threading
import time

import click

from streamd.cli.doctor import DEFAULT_URL, place_at, with_port
from streamd.cli.one_line import say
from streamd.client.place import Place
from streamd.errors import StreamdError
from streamd.watching.board import Board
from streamd.watching.cluster_reading import reader_of
from streamd.watching.look import Limits
from streamd.watching.tables import TABLES, render, shown_rows

__all__ = ["command"]

TERMINAL_LOOK_S = 0.5
"""How often it is checked that the terminal exists."""
NO_SCREEN = "The screen needs textual, of the extra `top`; --once prints without it."
TABLE_NAMES = [name for name in TABLES if name != "pending"]


@click.command("top")
@click.argument("url", default=DEFAULT_URL, envvar="STREAMD_URL", metavar="[URL|HOST:PORT]")
@with_port
@click.option("--once", is_flag=True, help="Print once and exit.  [default: if input or output is not a terminal]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all tables and exit.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh after this time.",
)
@click.option(
    "--table", type=click.Choice(TABLE_NAMES), default="groups", show_default=True, help="Show this table first."
)
@click.option(
    "--sort",
    default="",
    metavar="COLUMN",
    help="Sort by this column, as named in JSON.  [default: lag, or the most problematic first]",
)
@click.option("--filter", "wanted", default="", metavar="TEXT", help="Show only rows that contain this text.")
@click.option(
    "--rows", type=click.IntRange(1), default=20, show_default=True, help="With --once: print at most this many rows."
)
@click.option(
    "--match", default="*", show_default=True, metavar="PATTERN", help="Examine the streams whose keys match."
)
@click.option(
    "--streams", type=click.IntRange(1), default=200, show_default=True, help="Examine at most this many streams."
)
def command(
    url: str,
    port: int | None,
    once: bool,
    as_json: bool,
    interval_s: float,
    table: str,
    sort: str,
    wanted: str,
    rows: int,
    match: str,
    streams: int,
) -> None:
    """Show the current activity of a server (streamd, Redis 7.0 or newer, Valkey): groups by lag, streams, consumers, commands.

    Of any node of a cluster: the streams of all primaries, and the table `nodes` with a row for each node.
    Keys: 1 to 6 another table, < > r the order, / a filter, Enter opens a stream, a group, a pending entry, Esc goes back,
    Space pauses, q quits. The password may be in the URL, or in REDISCLI_AUTH. Exit status: 0 success, 1 no answer,
    2 wrong command line.
    """
    if sort and TABLES[table].column(sort) is None:
        raise click.UsageError(
            f"{table} has no column {sort}: {', '.join(each.name for each in TABLES[table].columns)}"
        )
    limits = Limits(match=match, streams=streams)
    try:
        place = place_at(url, port)
        if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            board = look_twice(place, limits, interval_s)
            if as_json:
                say(json.dumps(board.as_dict(), indent=1))
            else:
                shown = shown_rows(TABLES[table], board.rows(table), sort=sort, wanted=wanted)[:rows]
                say("\n".join([*board.headlines(), "", *render(TABLES[table], shown)]))
            return
        reader_of(place, limits).close()  # so that what is wrong with it is said in one line
    except StreamdError as error:
        raise click.ClickException(str(error)) from None
    try:
        from streamd.watching.screen import Top
    except ImportError:
        raise click.ClickException(NO_SCREEN) from None
    end_with_terminal(sys.stdin.fileno())
    Top(
        lambda: Board(reader_of(place, limits)), interval_s=interval_s, table=table, sort=sort, wanted=wanted,
    ).run()  # fmt: skip


def end_with_terminal(fd: int) -> None:
    """End the process by SIGHUP when the terminal disappears, also where the system sends that signal to others only.

    Textual would read the end of its input again and again.
    """
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def watch() -> None:
        try:
            while True:
                termios.tcgetattr(fd)
                time.sleep(TERMINAL_LOOK_S)
        except termios.error:
            os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=watch, name="terminal", daemon=True).start()


def look_twice(place: Place, limits: Limits, interval_s: float) -> Board:
    """A board with rates, whose connection is closed. Raises UnreachableError, ServerError."""
    reader = reader_of(place, limits)
    try:
        board = Board(reader)
        board.refresh()
        time.sleep(interval_s)
        board.refresh()
        return board
    finally:
        reader.close()
