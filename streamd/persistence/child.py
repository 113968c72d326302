"""A forked child: a copy of this process at one moment, which writes its data to a file while the server keeps running.

`Children` starts one child at a time and reports how it ended. Memory is shared with the child until either of the two
changes it. So a fork costs the page tables at once, and later one page for every page that is changed.

The child has the data and one pipe. It closes every other inherited descriptor at once, so that a connection that the
server closes is really closed. It reports on the pipe, one line at a time:

    keys N            keys written so far
    cow N             bytes copied so far
    done N            the job is done; bytes copied in total
    failed TEXT       the job failed
    log LEVEL TEXT    a line for the log

End of file on the pipe means that the child has ended. Its exit code counts as well: `done` with a non-zero exit code
is a failure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

__all__ = ["Child", "Children", "Report"]

log = logging.getLogger("streamd")

REPORT_EVERY_S = 0.5
MAX_FD = 1 << 20
"""Upper bound of open descriptors. Where the system closes a range in one call, a high bound costs nothing."""


class Report:
    """The child's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._next = time.monotonic() + REPORT_EVERY_S

    def keys(self, count: int) -> None:
        """Report progress; reports are rate-limited, so it may be called as often as convenient."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REPORT_EVERY_S
            self._send(f"keys {count}\ncow {own_memory()}")

    def log(self, level: int, text: str) -> None:
        """Have the server log a line on behalf of this process."""
        self._send(f"log {level} {text}")

    def done(self) -> None:
        self._send(f"done {own_memory()}")

    def failed(self, text: str) -> None:
        self._send(f"failed {text}")

    def _send(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape") + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]


class Child:
    """A child that is running or has ended.

    kind         `rdb`, `aof` or `backup`: what it writes
    pid          its process
    started      monotonic seconds
    keys_total   number of keys at the fork
    keys_done    keys written so far, as last reported
    cow_bytes    memory copied, as last reported; `cow_peak`: the maximum so far
    error        why it failed; empty as long as it has not
    signal       the signal that ended it; 0 if none did
    """

    def __init__(self, kind: str, pid: int, keys_total: int, fork_us: int) -> None:
        self.kind = kind
        self.pid = pid
        self.keys_total = keys_total
        self.fork_us = fork_us
        self.started = time.monotonic()
        self.keys_done = 0
        self.cow_bytes = self.cow_peak = 0
        self._cow_reported_at = self.started
        self._cow_sum = self._cow_count = 0
        self.signal = 0
        self.error = ""
        self.is_done = False
        self.was_killed = False
        self._unread = b""

    @property
    def seconds(self) -> int:
        """How long it has run, in whole seconds."""
        return int(time.monotonic() - self.started)

    @property
    def cow_age_s(self) -> int:
        """How old `cow_bytes` is, in whole seconds."""
        return int(time.monotonic() - self._cow_reported_at)

    @property
    def percent(self) -> float:
        """The percentage of keys written."""
        return 100 * self.keys_done / self.keys_total if self.keys_total else 0.0

    def take(self, data: bytes) -> None:
        """Parse what it has reported."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
            if word == "keys":
                self.keys_done = int(rest)
            elif word in ("cow", "done"):
                self.cow_bytes = int(rest)
                self.cow_peak = max(self.cow_peak, self.cow_bytes)
                self._cow_reported_at = time.monotonic()
                self._cow_sum += self.cow_bytes
                self._cow_count += 1
                self.is_done = self.is_done or word == "done"
                if self.is_done:
                    self._log_memory()
            elif word == "failed":
                self.error = rest
            elif word == "log":
                level, _, text = rest.partition(" ")
                self.log(int(level), text)

    def log(self, level: int, text: str) -> None:
        """Log a line of the child."""
        log.log(level, "%s", text, extra={"child": self.pid})

    def _log_memory(self) -> None:
        job = "RDB" if self.kind == "rdb" else "AOF rewrite"
        current, peak, average = (n >> 20 for n in (self.cow_bytes, self.cow_peak, self._cow_sum // self._cow_count))
        self.log(logging.INFO, f"Fork CoW for {job}: current {current} MB, peak {peak} MB, average {average} MB")

    def end(self, status: int) -> None:
        """Record its exit status, as returned by `waitpid`."""
        code = os.waitstatus_to_exitcode(status)
        if self.error:
            return
        if code < 0:
            self.signal = -code
            self.error = f"terminated by signal {-code}"
        elif code != 0 or not self.is_done:
            self.error = f"exited with code {code}"


class Children:
    """At most one child at a time. `current` is the running one, or None."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._on_end: Callable[[Child], None] | None = None
        self.begin: Callable[[], None] = lambda: None
        """Called in each child before its job."""
        self._pipe = -1
        self.current: Child | None = None
        self.last_fork_us = 0
        self.total_forks = 0

    def start(
        self,
        kind: str,
        job: Callable[[Report], None],
        on_end: Callable[[Child], None],
        *,
        keys_total: int,
        kept: Iterable[int] = (),
    ) -> Child:
        """Fork a child that runs `job`, and call `on_end` when it has ended. Raises OSError if the fork fails.

        job      runs in the child; an exception that it raises is the reason for the failure. It must not use the event
                 loop, threads or connections of the server.
        kept     descriptors that it uses; all others are closed in the child
        """
        assert self.current is None  # noqa: S101
        read_end, write_end = os.pipe()
        before = time.perf_counter_ns()
        try:
            with warnings.catch_warnings():
                # Other threads are known to exist; the child takes none of their locks.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(write_end)
            raise
        if pid == 0:
            _run(self.begin, job, write_end, kept)
        self.last_fork_us = (time.perf_counter_ns() - before) // 1000
        self.total_forks += 1
        os.close(write_end)
        os.set_blocking(read_end, False)
        self.current = child = Child(kind, pid, keys_total, self.last_fork_us)
        self._on_end = on_end
        self._pipe = read_end
        self._loop.add_reader(read_end, self._read)
        return child

    def kill(self) -> None:
        """Kill the child and wait until it has ended; `on_end` is called with the failure."""
        child = self.current
        if child is None:
            return
        child.was_killed = True
        with suppress(BlockingIOError):  # what it has reported, maybe why it is to be killed
            child.take(os.read(self._pipe, 65536))
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        self._finish()

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        if not data:
            self._finish()
        elif self.current is not None:
            self.current.take(data)

    def _finish(self) -> None:
        child, on_end = self.current, self._on_end
        assert child is not None  # noqa: S101
        assert on_end is not None  # noqa: S101
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        # The pipe is at its end because the child has ended or is about to.
        _, status = os.waitpid(child.pid, 0)
        child.end(status)
        self.current = self._on_end = None
        on_end(child)


def own_memory() -> int:
    """Bytes of memory private to this process; 0 where the system does not report it."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Private_Dirty:"))
    except OSError:
        return 0


def _run(begin: Callable[[], None], job: Callable[[Report], None], pipe: int, kept: Iterable[int]) -> NoReturn:
    """Run the job in the child, and exit."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server to handle
        first = 3
        for fd in sorted({pipe, *kept}):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, MAX_FD)
        logging.disable()
        begin()
        report = Report(pipe)
        try:
            job(report)
        except BaseException as error:  # whatever it is, report it to the server
            report.failed(str(error) or type(error).__name__)
        else:
            report.done()
            code = 0
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)
