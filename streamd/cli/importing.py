"""`streamd import`: take over the data of a running Redis. The work is done in `streamd/importing`."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import click

from streamd.cli.exit_status import STOPPED
from streamd.cli.one_line import say
from streamd.client.place import BadUrlError, Place
from streamd.errors import StreamdError
from streamd.importing.run import ImportStoppedError, Plan, Signals, run_import
from streamd.printable import in_one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["command"]

PRINT_EVERY_S = 10.0


@click.command("import")
@click.argument("url", metavar="redis://[USER:PASSWORD@]HOST:PORT[/DB]")
@click.option(
    "--to",
    default="redis://localhost:6379",
    show_default=True,
    metavar="URL",
    help="URL of the running streamd, or of a node of a cluster.",
)
@click.option("--user", "username", metavar="NAME", help="ACL user for the source.")
@click.option("--password-env", metavar="NAME", help="Environment variable that holds the password of the source.")
@click.option("--password-file", type=click.Path(dir_okay=False), help="File whose first line is that password.")
@click.option("--to-password-env", metavar="NAME", help="Environment variable that holds the password of the target.")
@click.option(
    "--cacert",
    "ca_file",
    type=click.Path(dir_okay=False),
    help="Certificates of the authorities that verify the source's certificate.",
)
@click.option("--cert", "cert_file", type=click.Path(dir_okay=False), help="Client certificate for the source.")
@click.option("--key", "key_file", type=click.Path(dir_okay=False), help="Its private key.")
@click.option("--insecure", is_flag=True, help="Do not check the source's certificate.")
@click.option(
    "--source-address", metavar="HOST:PORT", help="Address of the source for the target.  [default: as in the URL]"
)
@click.option(
    "--follow", is_flag=True, help="Remain a replica until Enter, Ctrl-C or SIGTERM; then promote the target."
)
@click.option(
    "--until-lag", type=click.IntRange(0), metavar="BYTES",
    help="With --follow: promote the target once it is at most this far behind.",
)  # fmt: skip
@click.option(
    "--pause-source", "pause_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="At the end, pause the writes of the source for this time, while clients are switched to the target.",
)  # fmt: skip
@click.option("--replace", "replaces", is_flag=True, help="Drop the data of the target.")
@click.option("--skip-unsupported", "skip", is_flag=True, help="Skip keys of types that streamd does not have.")
@click.option("--copy", "copies", is_flag=True, help="Copy key by key, without replication.")
def command(
    url: str,
    to: str,
    source_address: str | None,
    follow: bool,
    until_lag: int | None,
    pause_s: float | None,
    replaces: bool,
    skip: bool,
    copies: bool,
    to_password_env: str | None,
    **login: Any,
) -> None:
    """Take over the data of a running Redis, except values of modules, without downtime.

    The target becomes a replica of the source, and a primary again at the end. If it is a node of a
    cluster, keys are copied to the owners of their slots instead, and changes are applied there. Nothing is written
    before the source has been examined. Exit status: 0 success, 1 failure, 130 stopped; in any case the
    target is a primary with its own settings afterwards. docs/migration.md has the details.
    """
    if (follow and copies) or (until_lag is not None and not follow):
        raise click.UsageError("--follow needs replication, not --copy; --until-lag needs --follow")
    try:
        source, target = source_of(url, login), Place.from_url(to)
        if target.db:
            raise BadUrlError(f"{to}: the databases keep their numbers; omit /{target.db}")
        if to_password_env is not None:
            target = replace(target, password=from_environment(to_password_env))
        plan = Plan(
            database=source.db if names_database(url) else None,
            address=None if source_address is None else address_of(source_address),
            follows=follow,
            until_lag=until_lag,
            pause_s=pause_s or 0.0,
            replace=replaces,
            skip=skip,
            copies=copies,
        )
        with asked() as signals:
            run_import(replace(source, db=0), target, plan, make_screen(), signals)
    except ImportStoppedError as error:
        say(str(error), err=True)
        sys.exit(STOPPED)
    except (StreamdError, OSError) as error:
        raise click.ClickException(str(error)) from None


# --- Where the servers are -----------------------------------------------------------------------------------------------------


def source_of(url: str, login: dict[str, Any]) -> Place:
    """The source's place: the URL, and the options that add to it. Raises BadUrlError, OSError."""
    place = Place.from_url(url)
    if login["password_file"] is not None:
        with open(login["password_file"], encoding="utf-8") as file:
            place = replace(place, password=file.readline().rstrip("\r\n"))
    if login["password_env"] is not None:
        place = replace(place, password=from_environment(login["password_env"]))
    given = {name: login[name] for name in ("username", "ca_file", "cert_file", "key_file") if login[name] is not None}
    return replace(place, **given, is_verified=place.is_verified and not login["insecure"])


def from_environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise BadUrlError(f"There is no environment variable {name}") from None


def names_database(url: str) -> bool:
    parts = urlsplit(url)
    return "db" in parse_qs(parts.query) or (parts.scheme != "unix" and parts.path.strip("/") != "")


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise BadUrlError(f"--source-address takes HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


# --- What the user asks for ------------------------------------------------------------------------------------------------------


class Asked:
    """Counts SIGINT, SIGTERM and, while it listens, lines on the standard input."""

    def __init__(self) -> None:
        self.times = 0
        self._reads_input = True
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._bell, False)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.times += 1
        os.write(self._ring, b"!")

    def wait(self, seconds: float, *, listens: bool = False) -> None:
        streams: list[Any] = [self._bell]
        if listens and self._reads_input:
            streams.append(sys.stdin)
        ready, _, _ = select.select(streams, [], [], seconds)
        if self._bell in ready:
            os.read(self._bell, 100)
        if sys.stdin in ready:
            if os.read(sys.stdin.fileno(), 1000):
                self.times += 1
            else:
                self._reads_input = False  # there will never be a line

    def close(self) -> None:
        os.close(self._bell)
        os.close(self._ring)


@contextmanager
def asked() -> Iterator[Signals]:
    """Signals, for as long as an import runs."""
    signals = Asked()
    before = {number: signal.signal(number, signals.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()


# --- What the user sees ------------------------------------------------------------------------------------------------------------


class Lines:
    """Progress as lines, now and then: for logs, and where rich is not installed."""

    def __init__(self) -> None:
        self._step = ""
        self._printed_at = 0.0

    def line(self, text: str) -> None:
        say(text)

    def progress(self, step: str, done: int, size: int, text: str) -> None:
        if step == self._step and time.monotonic() < self._printed_at + PRINT_EVERY_S:
            return
        self._step, self._printed_at = step, time.monotonic()
        share = f" {100 * done / size:.0f} %" if size else ""
        say(f"{step}{share}: {text}")

    def finish(self) -> None:
        self._step = ""


class Bars(Lines):
    """Progress as a bar with the time that remains."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def progress(self, step: str, done: int, size: int, text: str) -> None:
        if self._progress is None:
            self._progress = self._started()
        if step != self._step or self._task is None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(step, total=size or None, text=in_one_line(text))
            self._step = step
        self._progress.update(self._task, completed=done, total=size or None, text=in_one_line(text))

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}", markup=False),
            TimeRemainingColumn(), transient=True,
        )  # fmt: skip
        progress.start()
        return progress

    def finish(self) -> None:
        super().finish()
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None


def make_screen() -> Lines:
    if not sys.stdout.isatty():
        return Lines()
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return Lines()
    return Bars()
