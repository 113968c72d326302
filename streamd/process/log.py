"""The log: Redis's line format, over the `logging` module.

    1234:M 21 Nov 2026 10:00:00.123 * Ready to accept connections tcp
    pid    day and time             level: `.` debug, `-` verbose, `*` notice, `#` warning and worse
    M: the server, a primary; S: the server, a replica; C: a child, whose lines are logged by the server

The server logs only to the logger `streamd`. `setup` is for a process that is a server; a program that embeds one omits
it and configures the logger itself.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from streamd.errors import ConfigError
from streamd.printable import printable

if TYPE_CHECKING:
    from streamd.settings.config import Config

__all__ = ["VERBOSE", "LineFormatter", "interject", "log_file", "set_level", "setup", "show_role"]

VERBOSE = 15
"""Between DEBUG and INFO."""

LEVELS = {
    "debug": logging.DEBUG,
    "verbose": VERBOSE,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "nothing": logging.CRITICAL + 1,
}
"""`loglevel` as a level of the logging module. Redis's notice is INFO."""

# Not strftime's names: those depend on the locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

log = logging.getLogger("streamd")


class LineFormatter(logging.Formatter):
    """One line per record, in redis-server's format; a traceback follows in lines of its own.

    role  of the server: M or S
    """

    role = "M"

    def formatMessage(self, record: logging.LogRecord) -> str:
        t = time.localtime(record.created)
        date = f"{t.tm_mday:02} {MONTHS[t.tm_mon - 1]} {t.tm_year} {t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
        child: int | None = getattr(record, "child", None)
        who = f"{record.process}:{self.role}" if child is None else f"{child}:C"
        return f"{who} {date}.{int(record.msecs):03} {mark(record.levelno)} {printable(record.message)}"


def mark(level: int) -> str:
    """The character for a level in a line."""
    if level >= logging.WARNING:
        return "#"
    if level >= logging.INFO:
        return "*"
    return "-" if level >= VERBOSE else "."


def setup(config: Config) -> None:
    """Send the log to the configured destination; raises ConfigError when the file cannot be opened."""
    logging.addLevelName(VERBOSE, "VERBOSE")
    handler: logging.Handler
    if config.logfile:
        from logging.handlers import WatchedFileHandler

        # A relative path is resolved against `dir`, whichever of the two is set first. The file may be moved meanwhile.
        path = os.path.join(config.dir, config.logfile)
        try:
            handler = WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError("logfile", f"Can't open the log file: {error.strerror}") from error
    else:
        handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter())
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    log.addHandler(handler)
    log.propagate = False
    set_level(config)


def interject(text: str) -> None:
    """Log from a signal handler, which may have interrupted another log call: one write, in Redis's format.

    1234:signal-handler (1795332887) Received SIGTERM scheduling shutdown...
    """
    line = f"{os.getpid()}:signal-handler ({int(time.time())}) {text}\n".encode()
    for handler in log.handlers:
        if isinstance(handler, logging.StreamHandler):
            with suppress(OSError):
                os.write(handler.stream.fileno(), line)


def log_file() -> str:
    """The absolute path of the log file; empty: it goes to standard output."""
    return next((handler.baseFilename for handler in log.handlers if isinstance(handler, logging.FileHandler)), "")


def show_role(*, is_replica: bool) -> None:
    """Mark the lines that follow as those of a primary or a replica."""
    for handler in log.handlers:
        if isinstance(handler.formatter, LineFormatter):
            handler.formatter.role = "S" if is_replica else "M"


def set_level(config: Config) -> None:
    """Log records at `loglevel` and above."""
    log.setLevel(LEVELS[config.loglevel])
