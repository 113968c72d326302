"""The archiver as a service: runs that follow each other, each over the streams that exist then, until somebody stops it.

A round is one run (archiver.py). What fails is reported and tried again in the next round; streams that are made meanwhile join there.
A round ends at its next step when the service is to stop: the lock of the stream is released, and the next run, of this service or of
another one, goes on where it ended, as after a kill. If its server does not answer then, the process ends as if it were killed. Small files are merged in the background, beside the rounds. Two services share the
streams by their locks: one leaves to the other what that one is working on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from streamd.archive.archive_errors import ArchiveError, NoStreamsError
from streamd.archive.archiver import Archiver, ArchiveSettings
from streamd.archive.background_merge import BackgroundMerges
from streamd.archive.layout import Layout
from streamd.archive.object_disk import disk_for
from streamd.archive.places import find_places
from streamd.archive.run_outcome import Round, RunReport
from streamd.client.client_errors import OptionError, UnreachableError
from streamd.client.connection import connect
from streamd.client.url_options import ConnectionOptions
from streamd.errors import StreamdError

__all__ = ["ArchiveService", "Stop"]

STOP_S = 3.0
"""How long a round may go on after a stop is requested before the server is asked whether it answers, and again after each answer."""

ANSWER_S = 2.0
"""Within which time it must answer then."""


class Stop(Protocol):
    """Whether, and when, to stop."""

    @property
    def is_requested(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Return after this time, or earlier if a stop is requested."""


class StoppedError(Exception):
    """A run ends because the service is to stop. No StreamdError: nothing has failed."""


class ArchiveService:
    """Archives again and again. All its dependencies are passed in.

    path, options, settings  as for `archive`; `every_ms` of the settings is the time between the starts of rounds
    tell_round               called with the report of each round
    tell_failure             called with the reason why a round could not be run at all
    after_round              called at the end of each round that was not stopped; an OSError is reported
    give_up                  called, by another thread, with the reason why the round does not end although a stop is requested: the
                             server does not answer. It ends the process: what the round waits for would take a minute
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, str],
        settings: ArchiveSettings,
        *,
        stop: Stop,
        tell_round: Callable[[RunReport], None],
        tell_failure: Callable[[str], None],
        after_round: Callable[[Round], None] | None = None,
        give_up: Callable[[str], None] | None = None,
    ) -> None:
        if not settings.every_ms:
            raise ValueError("the time between rounds must be positive")
        self.every_s = settings.every_ms / 1000
        self.path = path
        self.options = dict(options)
        self.settings = settings
        self.stop = stop
        self.tell_round = tell_round
        self.tell_failure = tell_failure
        self.after_round = after_round
        self.give_up = give_up
        self.layout = Layout(path)
        self._archive_id: str | None = None  # of the archive that the first rounds have found or made
        self._merges = BackgroundMerges()
        self._has_no_streams = False  # whether the last round found none
        self._stream: str | None = None  # the last one that a round has worked on

    def run(self) -> None:
        """Run rounds until a stop is requested. Raises what no later round can mend: OptionError, ArchiveError for the path."""
        due = time.monotonic()
        if self.give_up is not None:
            threading.Thread(target=self.watch_stop, args=(self.give_up,), name="archive stop", daemon=True).start()
        try:
            while not self.stop.is_requested:
                self.round()
                # Rounds that were missed because one was long are not made up for.
                due = max(due + self.every_s, time.monotonic())
                self.stop.wait(due - time.monotonic())
        finally:
            self._merges.close()

    def round(self) -> None:
        started = time.monotonic()
        try:
            report = self.try_round()
        except StoppedError:
            return
        if self.after_round is None:
            return
        seconds = time.monotonic() - started
        try:
            self.after_round(Round(time.time(), seconds, failed=True) if report is None else report.to_round(seconds))
        except OSError as error:
            self.tell_failure(text_of(error))

    def try_round(self) -> RunReport | None:
        """Run a round, and tell of it; None if it could not be run."""
        try:
            self.check_archive()
            report = Archiver(
                self.path, self.options, self.settings, hook=self.step, progress=self.progress,
                archive_id=self._archive_id, merges=self._merges,
            ).run()  # fmt: skip
        except OptionError:
            raise
        except NoStreamsError as error:
            self._merges.close()
            # Streams may come: no reason to say this again and again.
            if not self._has_no_streams:
                self.tell_failure(text_of(error))
            self._has_no_streams = True
            return RunReport("", self.path)
        except (StreamdError, OSError) as error:
            if self._archive_id is None and isinstance(error, ArchiveError):
                raise
            self._has_no_streams = False
            self.tell_failure(text_of(error))
            return None
        self._has_no_streams = False
        self.tell_round(report)
        return report

    def check_archive(self) -> None:
        """Make the archive, before there are streams, so that its state can be asked; later see that it is still the same one."""
        if self._archive_id is None:
            self.layout.create(disk_for(self.layout.root))
            self._archive_id = self.layout.id
        self.layout.check_is(self._archive_id)

    def progress(self, stream: str, step: str) -> None:
        self._stream = stream
        self.step(step)

    def step(self, name: str) -> None:
        if self.stop.is_requested:
            raise StoppedError(name)

    def watch_stop(self, give_up: Callable[[str], None]) -> None:
        """Once a stop is requested, see that the server still answers, until the process ends."""
        while not self.stop.is_requested:
            self.stop.wait(60.0)
        while True:
            time.sleep(STOP_S)
            try:
                self.ask_server()
            except UnreachableError as error:
                give_up(
                    f"stopped as if it were killed, since the server does not answer: {error}. The next run cleans up; on another machine "
                    f"it finds the stream locked for up to {self.settings.lock_ttl_ms} ms"
                )
                return
            except StreamdError:
                pass  # an answer

    def ask_server(self) -> None:
        """Raise UnreachableError if a server that the round may wait for does not answer."""
        limits = {"connectTimeout": f"{ANSWER_S}s", "readTimeout": f"{ANSWER_S}s", "retries": "0"}
        usual = ConnectionOptions.parse(self.options)
        if usual.sentinels or usual.cluster_nodes:
            limits["failoverTimeout"] = "0s"
        control = find_places({**self.options, **limits}, self.settings.primary).control
        with connect(control if self._stream is None else control.at(self._stream)) as connection:
            connection.command("PING")


def text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
