"""HotKeys: the keys that take most time and most bytes, for HOTKEYS.

While a session runs, the dispatcher reports every command that it has run (`note`); otherwise this costs nothing. A
command with several keys is charged to them in equal parts. One that had to wait for a key is not counted.

The number of keys is limited: beyond MOST_KEYS, or MOST_BYTES of names, the lighter half is dropped. The heaviest keys
of a session keep being charged, and survive that; the weight of light ones is lost.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.core.route import Route
from streamd.core.spec import keys_of
from streamd.errors import CommandError, NotIntegerError, OptionSyntaxError
from streamd.integers import INT32_MAX
from streamd.keyspace.hash_slot import SLOTS, slot_of

__all__ = ["HotKeys", "Session", "SessionOptions", "SlotRange", "Weights", "request_size"]

SlotRange = tuple[int, int]
"""The first slot and the last one."""

MOST_KEYS = 8192
MOST_BYTES = 16 * 1024 * 1024
MOST_SECONDS = 1_000_000
MOST_SHOWN = 64


class SessionOptions(NamedTuple):
    """The options of HOTKEYS START.

    has_cpu, has_net  METRICS: by time, by bytes
    shown             COUNT: how many keys are returned
    seconds           DURATION; 0: until it is stopped
    ratio             SAMPLE: one in `ratio` commands is counted for its keys
    slots             SLOTS: only keys of these are counted; empty: of all
    """

    has_cpu: bool
    has_net: bool
    shown: int = 10
    seconds: int = 0
    ratio: int = 1
    slots: tuple[int, ...] = ()

    @classmethod
    def parse(cls, words: list[bytes], own_slots: Sequence[SlotRange] | None = None) -> SessionOptions:
        """Read the arguments after START; CommandError. METRICS comes first, and accepts any words within its count.

        own_slots  those of this node, or None outside a cluster
        """
        if len(words) < 2 or words[0].upper() != b"METRICS":
            raise CommandError("ERR METRICS parameter is required")
        count = _number(words[1], 1, 2, "METRICS count must be > 0 and <= 2")
        metrics = [word.upper() for word in words[2 : 2 + count]]
        if len(metrics) < count:
            raise CommandError("ERR METRICS count does not match number of metric types provided")
        for metric in (b"CPU", b"NET"):
            if metrics.count(metric) > 1:
                raise CommandError(f"ERR METRICS {metric.decode()} defined more than once!")
        if not {b"CPU", b"NET"}.intersection(metrics):
            raise CommandError("ERR METRICS no valid metrics passed. Supported: CPU|NET")
        numbers = {"shown": 10, "seconds": 0, "ratio": 1}
        slots: tuple[int, ...] = ()
        rest = iter(words[2 + count :])
        for text in rest:
            word, operand = text.upper(), next(rest, None)
            if operand is None:
                raise OptionSyntaxError
            if word == b"COUNT":
                numbers["shown"] = _number(operand, 1, MOST_SHOWN, f"COUNT must be between 1 and {MOST_SHOWN}")
            elif word == b"DURATION":
                numbers["seconds"] = _number(operand, 1, MOST_SECONDS, f"DURATION must be between 1 and {MOST_SECONDS}")
            elif word == b"SAMPLE":
                numbers["ratio"] = _number(operand, 1, INT32_MAX, "SAMPLE ratio must be positive")
            elif word == b"SLOTS":
                if own_slots is None:
                    raise CommandError("ERR SLOTS parameter cannot be used in non-cluster mode")
                if slots:
                    raise CommandError("ERR SLOTS parameter already specified")
                slots = _read_slots(operand, rest, own_slots)
            else:
                raise OptionSyntaxError
        return cls(b"CPU" in metrics, b"NET" in metrics, **numbers, slots=slots)


def _read_slots(count: bytes, rest: Iterator[bytes], own_slots: Sequence[SlotRange]) -> tuple[int, ...]:
    """The slots of SLOTS. As in Redis, each is checked before the next one is read."""
    wanted = _number(count, 1, SLOTS, f"SLOTS count must be between 1 and {SLOTS}")
    words = list(islice(rest, wanted))
    if len(words) < wanted:
        raise CommandError("ERR not enough slot numbers provided")
    found: list[int] = []
    for text in words:
        slot = _number(text, 0, SLOTS - 1, "Invalid or out of range slot")
        if not any(first <= slot <= last for first, last in own_slots):
            raise CommandError(f"ERR slot {slot} not handled by this node")
        if slot in found:
            raise CommandError("ERR duplicate slot number")
        found.append(slot)
    return tuple(sorted(found))


def _number(text: bytes, least: int, most: int, otherwise: str) -> int:
    try:
        number = int(read_integer(text))
    except NotIntegerError:
        number = least - 1
    if not least <= number <= most:
        raise CommandError(f"ERR {otherwise}")
    return number


class Weights:
    """The heaviest keys, by their accumulated weight."""

    def __init__(self, most_keys: int = MOST_KEYS, most_bytes: int = MOST_BYTES) -> None:
        self.total = 0
        self._most_keys = most_keys
        self._most_bytes = most_bytes
        self._by_key: dict[bytes, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, key: bytes, weight: int) -> None:
        self.total += weight
        if key in self._by_key:
            self._by_key[key] += weight
            return
        self._by_key[key] = weight
        self._bytes += len(key)
        while len(self._by_key) > self._most_keys or self._bytes > self._most_bytes:
            self._by_key = dict(self.heaviest(len(self._by_key) // 2))
            self._bytes = sum(map(len, self._by_key))

    def heaviest(self, count: int) -> list[tuple[bytes, int]]:
        """At most `count` keys with their weights, the heaviest first."""
        return sorted(self._by_key.items(), key=lambda item: item[1], reverse=True)[:count]


class Session:
    """The counts from HOTKEYS START to HOTKEYS STOP.

    options     as requested
    started_ms  Unix time
    is_active   whether it still counts
    time_us     of all commands with keys, sampled or not
    net_bytes   of their requests and replies
    selected_us, selected_bytes  the same, of the slots of the options
    sampled_us, sampled_bytes    the same, of those that were counted for their keys
    time        by key, in us; None when it was not requested
    bytes       by key; None when it was not requested
    """

    def __init__(self, options: SessionOptions, started_ms: int) -> None:
        self.options = options
        self.started_ms = started_ms
        self.is_active = True
        self.time_us = 0
        self.net_bytes = 0
        self.selected_us = self.selected_bytes = 0
        self.sampled_us = self.sampled_bytes = 0
        self._slots = frozenset(options.slots)
        self.time = Weights() if options.has_cpu else None
        self.bytes = Weights() if options.has_net else None
        self._started = time.monotonic()
        self._cpu_started = _cpu_ms()
        self._duration_ms = 0
        self._cpu = (0, 0)
        self._draw: Callable[[int], int] | None = None
        if options.ratio > 1:
            from random import randrange

            self._draw = randrange

    @property
    def duration_ms(self) -> int:
        """Length of the session."""
        return int((time.monotonic() - self._started) * 1000) if self.is_active else self._duration_ms

    @property
    def cpu_ms(self) -> tuple[int, int]:
        """CPU time of the process meanwhile, in user and in system mode."""
        if not self.is_active:
            return self._cpu
        user, system = _cpu_ms()
        return user - self._cpu_started[0], system - self._cpu_started[1]

    def stop(self) -> None:
        self._duration_ms, self._cpu = self.duration_ms, self.cpu_ms
        self.is_active = False

    def note(self, keys: Sequence[bytes], took_us: int, net_bytes: int) -> None:
        """Count a command that names `keys`."""
        self.time_us += took_us
        self.net_bytes += net_bytes
        if self._slots:
            if slot_of(keys[0]) not in self._slots:
                return
            self.selected_us += took_us
            self.selected_bytes += net_bytes
        if self._draw is not None and self._draw(self.options.ratio):
            return
        self.sampled_us += took_us
        self.sampled_bytes += net_bytes
        for weights, weight in ((self.time, took_us), (self.bytes, net_bytes)):
            if weights is not None:
                for key in keys:
                    weights.add(key, weight // len(keys))


def _cpu_ms() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int(usage.ru_utime * 1000), int(usage.ru_stime * 1000)


class HotKeys(Capability):
    """The session that runs, or the last one. Commands are counted only while one runs."""

    info = {
        "hotkeys": (
            Fields(
                "hotkeys-tracking-active hotkeys-cmd-cpu-time",  # the latter as Redis 8.6 has it, whatever commands take
                lambda self: (self.session.is_active, 0) if self.session is not None else None,
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.session: Session | None = None
        self._dispatcher = host.dispatcher
        self._loop = host.loop
        self._never = self.slow_us
        self._end: asyncio.TimerHandle | None = None
        self.own_slots: Callable[[], Sequence[SlotRange]] | None = None
        """The slots of this node, or None outside a cluster."""

    def begin(self, options: SessionOptions, now_ms: int) -> None:
        """Start a session; the counts of the previous one are dropped."""
        self.session = Session(options, now_ms)
        if options.seconds:
            self._end = self._loop.call_later(options.seconds, self.end)
        self.slow_us = 0
        self._dispatcher.follow_capabilities()

    def end(self) -> None:
        """Stop counting; the results stay."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if self.session is not None:
            self.session.stop()
        self.slow_us = self._never
        self._dispatcher.follow_capabilities()

    def forget(self) -> None:
        self.session = None

    def command_took(self, client: Client, route: Route, args: list[bytes], took_us: int) -> int:
        """Count a command that has been run, and did not have to wait.

        One of a transaction is charged with what EXEC and its reply so far took.
        """
        if self.session is None or self._dispatcher.executing is not client:
            return 0
        keys = [args[use.position] for use in keys_of(route.command, args)]
        if keys:
            is_of_exec = self._dispatcher.context.in_transaction
            request_bytes = request_size((b"EXEC",)) if is_of_exec else request_size(args)
            self.session.note(keys, took_us, request_bytes + self._dispatcher.reply_size)
        return 0


def request_size(args: Sequence[bytes]) -> int:
    """Bytes of a request as clients send it."""
    return len(b"*%d\r\n" % len(args)) + sum(len(b"$%d\r\n\r\n" % len(arg)) + len(arg) for arg in args)
