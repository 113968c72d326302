"""The process around a server: crash reports, the watchdog, and the out-of-memory score.

`Process` is for a server's own process; a program that embeds a server handles this itself. Behaviour: Redis 8.6.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from streamd import __version__
from streamd.core.capability import Capability
from streamd.core.client_line import describe
from streamd.core.host import Host
from streamd.core.redaction import redacted
from streamd.debug import crash
from streamd.errors import ConfigError
from streamd.observe.info_report import Info
from streamd.process.log import log_file
from streamd.replication.replication import Replication
from streamd.settings.kinds import quote

if TYPE_CHECKING:
    from streamd.core.client import Client

__all__ = ["Process"]

log = logging.getLogger("streamd")

OOM_SCORE_FILE = "/proc/self/oom_score_adj"
PRIMARY, REPLICA, CHILD = 0, 1, 2
"""Indices in `oom-score-adj-values`."""
CLIENTS_SHOWN = 100
"""Number of clients in a report: the most recently active, with their last commands."""
ARGUMENTS_SHOWN, BYTES_SHOWN = 32, 128
"""How much is shown of the command that was running."""


class Process(Capability):
    """Applies a server's settings to its process; does nothing in a program that embeds the server."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._first_oom_score: int | None = None
        """The score before it was changed; None: never changed."""

        if not host.is_embedded:
            self._take_over()

    def _take_over(self) -> None:
        config = self._config
        crash.install(os.fsencode(log_file()), __version__, self.write_report)
        config.callbacks |= {
            "crash-log": self._follow_crash_log, "watchdog": self._follow_watchdog, "oom-score": self._follow_oom_score,
        }  # fmt: skip
        self._follow_crash_log()
        self._follow_watchdog()
        with suppress(ConfigError):  # the log says why, and the server starts
            self._follow_oom_score()

    def start(self) -> None:
        if not self._host.is_embedded:
            self._set_own_oom_score()
            self._host.get(Replication).role_observers.append(self._set_own_oom_score)

    def _follow_crash_log(self) -> None:
        crash.set_enabled(self._config.crash_log_enabled)

    # --- The watchdog ------------------------------------------------------------------------------------------------

    def _follow_watchdog(self) -> None:
        config = self._config
        if config.watchdog_period:
            # Less than twice the interval between beats would expire although nothing is wrong.
            config.watchdog_period = max(config.watchdog_period, 2 * (1000 // config.hz))
        crash.set_watchdog(config.watchdog_period)

    def beat(self) -> None:
        """The event loop has completed a turn; called only with a watchdog."""
        if not self._host.is_embedded:
            crash.set_watchdog(self._config.watchdog_period)

    # --- Out-of-memory score -----------------------------------------------------------------------------------------

    def _follow_oom_score(self) -> None:
        """Raises ConfigError."""
        values = self._config.oom_score_adj_values
        if list(values) != sorted(values):
            log.warning(
                "The oom-score-adj-values configuration may not work for non-privileged processes! Please consult the"
                " documentation."
            )
        if not self._set_own_oom_score():
            raise ConfigError("oom-score-adj", "Failed to set current oom_score_adj. Check server logs.")

    def _set_own_oom_score(self) -> bool:
        """Apply the score of a primary, or of a replica."""
        return self._set_oom_score(REPLICA if self._host.dispatcher.is_replica else PRIMARY)

    def _set_oom_score(self, place: int) -> bool:
        """Make the kernel kill this process earlier or later than others; False if that failed."""
        mode = self._config.oom_score_adj
        if mode == "no" and self._first_oom_score is None:
            return True
        try:
            if self._first_oom_score is None:
                with open(OOM_SCORE_FILE, encoding="ascii") as file:
                    self._first_oom_score = int(file.read())
        except (OSError, ValueError) as error:
            log.warning("Unable to read oom_score_adj: %s", getattr(error, "strerror", error))
            return False
        score = self._first_oom_score
        if mode != "no":
            score = self._config.oom_score_adj_values[place] + (0 if mode == "absolute" else score)
        try:
            with open(OOM_SCORE_FILE, "w", encoding="ascii") as file:
                file.write(str(min(1000, max(-1000, score))))
        except OSError as error:
            log.warning("Unable to write oom_score_adj: %s", error.strerror)
            return False
        if mode == "no":
            self._first_oom_score = None
        return True

    def child_begins(self) -> None:
        """Let the kernel kill children first."""
        if not self._host.is_embedded:
            self._set_oom_score(CHILD)

    # --- Crash report ------------------------------------------------------------------------------------------------

    def write_report(self, fd: int) -> None:
        """Write what is known about the server's state. The parent process has crashed: anything may be broken."""
        for title, section in (
            ("INFO OUTPUT", self._info),
            ("CURRENT CLIENT INFO", self._running),
            ("CLIENT LIST OUTPUT", self._clients),
        ):
            try:
                text = "\n".join(section())
            except Exception as error:
                text = f"not to be had: {error!r}"
            os.write(fd, f"\n------ {title} ------\n{text}\n".encode("utf-8", "backslashreplace"))

    def _info(self) -> Iterator[str]:
        yield from self._host.get(Info).render(["everything"]).decode(errors="surrogateescape").splitlines()

    def _running(self) -> Iterator[str]:
        """The command that was running, without passwords."""
        client, route, args = self._host.dispatcher.running()
        if client is None or route is None:
            yield "No command was running."
            return
        yield self._line(client)
        yield f"argc: '{len(args)}'"
        shown = redacted(route.command.full_name, list(args))[:ARGUMENTS_SHOWN]
        for number, arg in enumerate(shown):
            yield f"argv[{number}]: '{quote(arg[:BYTES_SHOWN].decode('utf-8', 'surrogateescape'))}'"

    def _clients(self) -> Iterator[str]:
        clients = sorted(self._host.clients.values(), key=lambda client: -client.last_interaction)
        yield from map(self._line, clients[:CLIENTS_SHOWN])
        if len(clients) > CLIENTS_SHOWN:
            yield f"({len(clients) - CLIENTS_SHOWN} more clients)"

    def _line(self, client: Client) -> str:
        return describe(client, time.monotonic()).decode("utf-8", "backslashreplace")
