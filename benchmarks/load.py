"""The load generator's Python side: load.c is compiled on first use, and called with the GIL released.

Requests are prepared beforehand (`Requests`), connections opened (`open_connections`), and a whole run is one call:
`run_loop` for a closed loop over many connections, `run_fan` for one sender and many listeners. What comes back is an
`Outcome`. The first error reply ends a run and raises `ErrorReply` with its text.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import socket
import subprocess
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["Counter", "ErrorReply", "Histogram", "Outcome", "Requests", "compile_library", "compile_source", "make_request",
           "open_connections", "run_fan", "run_loop"]  # fmt: skip

SOURCE = Path(__file__).with_name("load.c")
FLAGS = ("-O2", "-shared", "-fPIC")
TIMEOUT_MS = 60_000
"""How long a run waits for a server that sends nothing."""
ERROR_TEXT = 200
FAILED_SYSTEM, FAILED_SILENCE, FAILED_CLOSED, FAILED_PROTOCOL, FAILED_ERROR, FAILED_OVERRUN = range(-1, -7, -1)


class ErrorReply(Exception):
    """A server has answered with an error; the text is that of the first one."""


def make_request(*args: bytes | str | int) -> bytes:
    """A request as an array of bulk strings."""
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


# --- The compiled part ------------------------------------------------------------------------------------------------


class RawOutcome(ctypes.Structure):
    """`struct outcome` of load.c."""

    _fields_ = (
        ("seconds", ctypes.c_double),
        ("cpu_s", ctypes.c_double),
        ("replies", ctypes.c_int64),
        ("messages", ctypes.c_int64),
        ("bytes_in", ctypes.c_int64),
        ("bytes_out", ctypes.c_int64),
        ("system_error", ctypes.c_int32),
        ("error", ctypes.c_char * (ERROR_TEXT + 1)),
    )


class CounterHead(ctypes.Structure):
    """The first members of `struct counter`, those that Python reads."""

    _fields_ = (("replies", ctypes.c_int64), ("pushes", ctypes.c_int64), ("errors", ctypes.c_int64))


def compile_source(source: Path) -> Path:
    """The library that a C file has been compiled to; cached in a folder under a hash of its source."""
    compiler = os.environ.get("CC", "cc")
    made_from = source.read_bytes() + " ".join((compiler, *FLAGS, platform.platform())).encode()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamd-benchmarks"
    target = folder / f"{source.stem}-{hashlib.sha256(made_from).hexdigest()[:16]}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            made = Path(own) / target.name
            subprocess.run([*shlex.split(compiler), *FLAGS, "-o", str(made), str(source)], check=True)
            made.replace(target)
    return target


@cache
def compile_library(source: Path) -> ctypes.CDLL:
    """A C file, compiled and loaded."""
    return ctypes.CDLL(str(compile_source(source)))


@cache
def library() -> ctypes.CDLL:
    """load.c, compiled."""
    found = compile_library(SOURCE)
    found.counter_size.restype = ctypes.c_int64
    found.histogram_lower_bound.restype = ctypes.c_int64
    found.count_replies.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64)
    p, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    found.run_loop.argtypes = (p, i32, p, p, i64, i64, i64, i32, p, p)
    found.run_fan.argtypes = (
        p,
        i32,
        p,
        p,
        i64,
        i64,
        i64,
        i64,
        i64,
        p,
        p,
        i64,
        i32,
        ctypes.c_char_p,
        i64,
        i64,
        i32,
        p,
        p,
    )
    return found


class Counter:
    """Counts the replies in a server's output, fed in pieces cut anywhere."""

    def __init__(self) -> None:
        self.raw = ctypes.create_string_buffer(library().counter_size())
        self.head = CounterHead.from_buffer(self.raw)

    def feed(self, data: bytes) -> None:
        """Count the replies that end in these bytes. Raises ValueError when they are not replies."""
        if library().count_replies(self.raw, data, len(data)):
            raise ValueError("these bytes are not replies")

    @property
    def replies(self) -> int:
        return int(self.head.replies)

    @property
    def pushes(self) -> int:
        return int(self.head.pushes)

    @property
    def errors(self) -> int:
        return int(self.head.errors)


# --- What goes in, and what comes out ----------------------------------------------------------------------------------


class Requests:
    """Prepared requests: their bytes, one after the other, and where each starts."""

    def __init__(self, requests: Iterable[bytes]) -> None:
        offsets = array("q", [0])
        parts = []
        for request in requests:
            parts.append(request)
            offsets.append(offsets[-1] + len(request))
        self.data = b"".join(parts)
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def at_least(self, number: int) -> Requests:
        """The same requests, over and over, `number` of them or more."""
        if len(self) >= number or not len(self):
            return self
        times = -(-number // len(self))
        more = Requests(())
        more.data = self.data * times
        size = self.offsets[-1]
        more.offsets = array("q", [0])
        for at in range(times):
            more.offsets.extend(at * size + each for each in self.offsets[1:])
        return more

    @property
    def addresses(self) -> tuple[bytes, int]:
        """Arguments for load.c: the bytes, and the address of the offsets, valid while this object exists."""
        return self.data, self.offsets.buffer_info()[0]


class Histogram:
    """Times in nanoseconds, counted in buckets of 3 % width."""

    def __init__(self) -> None:
        self.counts = array("q", bytes(8 * library().histogram_buckets()))

    @property
    def address(self) -> int:
        return self.counts.buffer_info()[0]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def add(self, other: Histogram) -> None:
        """Count the times of another one too."""
        for bucket, count in enumerate(other.counts):
            if count:
                self.counts[bucket] += count

    def percentile_us(self, share: float) -> float:
        """The time below which that share of all times lies, in microseconds."""
        left = share * self.total
        for bucket, count in enumerate(self.counts):
            left -= count
            if count and left <= 0:
                bound = library().histogram_lower_bound
                return float(bound(bucket) + bound(bucket + 1)) / 2000
        return 0.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    seconds: float  # of the clock
    cpu_s: float  # of the load generator
    replies: int  # of all connections
    messages: int  # of listeners
    bytes_in: int
    bytes_out: int
    times: Histogram = field(repr=False)  # round trips of batches; empty unless asked for


def finish(failed: int, raw: RawOutcome, times: Histogram) -> Outcome:
    """The outcome of a run, or raise the exception for its failure."""
    if failed == FAILED_ERROR:
        raise ErrorReply(raw.error.decode("latin-1"))
    if failed == FAILED_SILENCE:
        raise TimeoutError(f"the server has sent nothing for {TIMEOUT_MS / 1000:.0f} s, after {raw.replies} replies")
    if failed == FAILED_CLOSED:
        raise ConnectionError("the server has closed a connection")
    if failed == FAILED_PROTOCOL:
        raise ValueError("the server has sent something that is not a reply")
    if failed == FAILED_OVERRUN:
        raise RuntimeError("a listener has another message before its answer to the last one has been sent")
    if failed == FAILED_SYSTEM:
        raise OSError(raw.system_error, os.strerror(raw.system_error))
    return Outcome(raw.seconds, raw.cpu_s, raw.replies, raw.messages, raw.bytes_in, raw.bytes_out, times)


# --- Running ------------------------------------------------------------------------------------------------------------


@contextmanager
def open_connections(port: int, number: int = 1) -> Iterator[list[socket.socket]]:
    """Connections to a server on this machine, as runs need them, until the block ends."""
    socks: list[socket.socket] = []
    try:
        for _ in range(number):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            socks.append(sock)
        yield socks
    finally:
        for sock in socks:
            sock.close()


@contextmanager
def without_waiting(socks: Sequence[socket.socket]) -> Iterator[array[int]]:
    """The sockets' file descriptors, non-blocking until the block ends."""
    for sock in socks:
        sock.setblocking(False)
    try:
        yield array("i", [sock.fileno() for sock in socks])
    finally:
        for sock in socks:
            sock.setblocking(True)


def run_loop(socks: Sequence[socket.socket], requests: Requests, total: int = 0, *, depth: int = 1,
             is_timed: bool = False) -> Outcome:  # fmt: skip
    """Send `total` requests (default: each once) over the connections, `depth` at a time on each, and await the replies.

    The requests are a ring. On one connection they are sent in their order; with `depth` requests under way per
    connection, the next ones follow when all are answered. `is_timed`: round trips go into the outcome's histogram.
    """
    total = total or len(requests)
    ring = requests.at_least(min(depth, total))
    raw, times = RawOutcome(), Histogram()
    with without_waiting(socks) as fds:
        data, offsets = ring.addresses
        failed = library().run_loop(
            fds.buffer_info()[0], len(fds), data, offsets, len(ring), total, depth, TIMEOUT_MS,
            times.address if is_timed else None, ctypes.byref(raw),
        )  # fmt: skip
    return finish(failed, raw, times)


def run_fan(sender: socket.socket, listeners: Sequence[socket.socket], requests: Requests, rounds: int, *,
            expected: int, depth: int = 1, window: int = 1, answers: Requests | None = None, has_own_answers: bool = False,
            barrier: bytes = b"", interval_s: float = 0, is_timed: bool = False) -> Outcome:  # fmt: skip
    """One connection sends, others listen: messages to subscribers, or to clients that wait in a blocking command.

    requests  of the sender, a ring; `depth` of them make a round
    expected  messages (replies or pushes) that a round brings, over all listeners
    window    rounds under way at a time
    answers   what a listener sends for each message that it receives: its k-th message (from 1) is answered with request k
              of the ring; request 0 is the one that the caller has sent already
    has_own_answers  `answers` is no ring but has a request for each listener, which it sends for each message
    barrier   a request that the sender sends between rounds, its reply awaited; needs a window of 1
    interval_s  time between the starts of rounds, or longer when a round takes longer
    is_timed  the time of each round, until its last message, goes into the outcome's histogram
    """
    if barrier and window != 1:
        raise ValueError("a barrier between rounds needs a window of 1")
    ring = requests.at_least(depth)
    reaction = Requests(()) if answers is None else answers
    raw, times = RawOutcome(), Histogram()
    with without_waiting([sender, *listeners]) as fds:
        data, offsets = ring.addresses
        answer_data, answer_offsets = reaction.addresses
        failed = library().run_fan(
            fds.buffer_info()[0], len(fds), data, offsets, len(ring), rounds, depth, window, expected,
            answer_data, answer_offsets, len(reaction), has_own_answers, barrier, len(barrier),
            int(interval_s * 1e9), TIMEOUT_MS,
            times.address if is_timed else None, ctypes.byref(raw),
        )  # fmt: skip
    return finish(failed, raw, times)
