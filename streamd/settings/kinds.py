"""Kinds of settings: how the text of a value is read, and how a value is shown.

A kind raises `Refused` with Redis's reason when a text will not do; it changes nothing and knows no other setting. Its
docstring begins with the type of its values. Bounds and error texts: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from streamd.integers import INT32_MAX, INT32_MIN, INT64_MAX, UINT64_MAX

__all__ = [
    "Boolean", "BufferLimit", "BufferLimits", "Choice", "Clamped", "Directory",
    "Events", "Flags", "Integer", "Kind", "Memory", "MemoryOrPercent", "Octal", "OomMode", "OomScores",
    "Percentiles", "PrimaryAddress", "Refused", "SavePoint", "SavePoints", "ShutdownFlags", "Text", "Words",
    "only_a_filename", "only_a_preload", "quote",
]  # fmt: skip


class Refused(ValueError):
    """Text that is invalid for a setting; `str()` is the reason, in Redis's words."""


def quote(text: str) -> str:
    """`text` in double quotes, as in a configuration file, for `split_line` to read back."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}
    shown = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        shown.append(named.get(char) or (char if 32 <= byte < 127 else f"\\x{byte:02x}"))
    return f'"{"".join(shown)}"'


class Kind:
    """How the values of a setting are read and shown.

    is_multi           takes several arguments; otherwise exactly one
    adds_up            in a file, a second directive adds to the first instead of replacing it
    is_lines           ... and CONFIG GET and SET have all directives as the lines of one text
    is_always_written  CONFIG REWRITE writes the value even when it is the default
    """

    is_multi: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    is_lines: ClassVar[bool] = False
    is_always_written: ClassVar[bool] = False

    def parse(self, args: Sequence[str], old: Any) -> Any:
        """The value of `args`; raises Refused. `old` is the current value, for kinds that change a part of it."""
        raise NotImplementedError

    def check_change(self, old: Any, new: Any) -> None:
        """Raise Refused when CONFIG SET may not change a value like this; asked after all its values have been read."""

    def format(self, value: Any) -> str:
        """The value as CONFIG GET shows it, and as `parse` reads it back."""
        raise NotImplementedError

    def directives(self, value: Any) -> list[str]:
        """The rest of the lines in a configuration file: one for each element."""
        return [self.format(value)]

    def domain(self) -> str:
        """The possible values, for the manual."""
        raise NotImplementedError


class Integer(Kind):
    """int"""

    def __init__(self, lo: int, hi: int) -> None:
        self.lo = lo
        self.hi = hi

    def parse(self, args: Sequence[str], old: Any) -> int:
        if (
            not re.fullmatch(r"0|-?[1-9][0-9]{0,18}", args[0], re.ASCII)
            or not -INT64_MAX - 1 <= int(args[0]) <= INT64_MAX
        ):
            raise Refused("argument couldn't be parsed into an integer")
        return within(int(args[0]), self.lo, self.hi)

    def format(self, value: int) -> str:
        return str(value)

    def domain(self) -> str:
        return f"{shown_bound(self.lo)} to {shown_bound(self.hi)}"


class Clamped(Integer):
    """int; values outside narrower bounds are moved to the nearer one"""

    def __init__(self, lo: int, hi: int) -> None:
        super().__init__(0, INT32_MAX)
        self.least = lo
        self.most = hi

    def parse(self, args: Sequence[str], old: Any) -> int:
        return min(max(super().parse(args, old), self.least), self.most)

    def domain(self) -> str:
        return f"{self.least} to {self.most}"


class Octal(Integer):
    """int, written in octal digits"""

    def parse(self, args: Sequence[str], old: Any) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-7]{1,20}|", args[0], re.ASCII):
            raise Refused("argument couldn't be parsed as an octal number")
        value = int(args[0] or "0", 8)
        if not self.lo <= value <= self.hi:
            raise Refused(f"argument must be between {self.lo:o} and {self.hi:o} inclusive")
        return value

    def format(self, value: int) -> str:
        return f"{value:o}"

    def domain(self) -> str:
        return f"{self.lo:o} to {self.hi:o}, octal"


UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 10**6, "mb": 1 << 20, "g": 10**9, "gb": 1 << 30}


def parse_memory(text: str) -> int | None:
    """Bytes: digits, then one of UNITS in any case; None for anything else.

    Without digits it is 0. Too many digits count as the greatest number, times the unit, in 64 bits.
    """
    match = re.fullmatch(r"([0-9]{0,127})([a-z]{0,2})", text.lower(), re.ASCII)
    if match is None or match[2] not in UNITS:
        return None
    return min(int(match[1] or "0"), UINT64_MAX) * UNITS[match[2]] & UINT64_MAX


def format_memory(value: int) -> str:
    """Bytes in the largest unit that needs no fraction."""
    for unit in ("gb", "mb", "kb"):
        if value and value % UNITS[unit] == 0:
            return f"{value // UNITS[unit]}{unit}"
    return str(value)


class Memory(Integer):
    """int: bytes"""

    def parse(self, args: Sequence[str], old: Any) -> int:
        value = parse_memory(args[0])
        if value is None:
            raise Refused("argument must be a memory value")
        return within(value, self.lo, self.hi)

    def directives(self, value: int) -> list[str]:
        return [format_memory(value)]

    def domain(self) -> str:
        if (self.lo, self.hi) in ((0, INT64_MAX), (0, UINT64_MAX)):
            return "memory size"
        return f"memory size, {format_memory(self.lo)} to {shown_bound(self.hi)}"


class MemoryOrPercent(Kind):
    """int: bytes; when negative, a percentage of maxmemory"""

    def parse(self, args: Sequence[str], old: Any) -> int:
        text = args[0]
        if text.endswith("%"):
            if not re.fullmatch(r"0|[1-9][0-9]{0,17}", text[:-1], re.ASCII):
                raise Refused("argument must be a memory or percent value")
            if int(text[:-1]) > 100:
                raise Refused("percentage argument must be less or equal to 100")
            return -int(text[:-1])
        value = parse_memory(text)
        if value is None:
            raise Refused("argument must be a memory or percent value")
        return within(value, 0, INT64_MAX)

    def format(self, value: int) -> str:
        return f"{-value}%" if value < 0 else str(value)

    def directives(self, value: int) -> list[str]:
        return [self.format(value) if value < 0 else format_memory(value)]

    def domain(self) -> str:
        return "memory size, or a percentage of maxmemory"


class Boolean(Kind):
    """bool"""

    def parse(self, args: Sequence[str], old: Any) -> bool:
        word = args[0].lower()
        if word not in ("yes", "no"):
            raise Refused("argument must be 'yes' or 'no'")
        return word == "yes"

    def format(self, value: bool) -> str:
        return "yes" if value else "no"

    def domain(self) -> str:
        return "yes, no"


class Choice(Kind):
    """str: one of a few words"""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def parse(self, args: Sequence[str], old: Any) -> str:
        for word in self.words:
            if word.lower() == args[0].lower():
                return word
        raise Refused(f"argument(s) must be one of the following: {', '.join(self.words)}")

    def format(self, value: str) -> str:
        return value

    def domain(self) -> str:
        return ", ".join(self.words)


class OomMode(Choice):
    """str: `yes` is a synonym of `relative`, and the one that is shown"""

    def parse(self, args: Sequence[str], old: Any) -> str:
        word = super().parse(args, old)
        return "yes" if word == "relative" else word


class Flags(Kind):
    """tuple of str: some of a few words, in the order of `words`; the first word means none of them"""

    is_multi = True

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        given = {arg.lower() for arg in args}
        if not args or not given.issubset(self.words):
            raise Refused(f"argument(s) must be one of the following: {', '.join(self.words)}")
        return tuple(word for word in self.words[1:] if word in given)

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value) or self.words[0]

    def domain(self) -> str:
        return f"{self.words[0]}, or any of {', '.join(self.words[1:])}"


class ShutdownFlags(Flags):
    """As Flags; some words exclude each other"""

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        value = super().parse(args, old)
        if {"save", "nosave"}.issubset(value):
            raise Refused("shutdown options SAVE and NOSAVE can't be used simultaneously")
        if {"now", "failover"}.issubset(value):
            raise Refused("shutdown options NOW and FAILOVER can't be used simultaneously")
        return value


class Text(Kind):
    """str; bytes that are not UTF-8 are kept as lone surrogates"""

    def __init__(self, check: Callable[[str], str | None] | None = None) -> None:
        self.check = check

    def parse(self, args: Sequence[str], old: Any) -> str:
        if self.check is not None and (reason := self.check(args[0])):
            raise Refused(reason)
        return args[0]

    def format(self, value: str) -> str:
        return value

    def directives(self, value: str) -> list[str]:
        return [quote(value)]

    def domain(self) -> str:
        return "text"


class Directory(Kind):
    """str: the absolute path of a directory that can be entered; empty: wherever the server was started"""

    is_always_written = True

    def parse(self, args: Sequence[str], old: Any) -> str:
        path = args[0]
        try:
            # Looking up the entry `.` asks for the same permission as changing into the directory does.
            os.stat(f"{path}/." if path else "")
        except OSError as error:
            raise Refused(error.strerror or str(error)) from error
        except ValueError as error:
            raise Refused("Invalid argument") from error
        return os.path.realpath(path)

    def format(self, value: str) -> str:
        return value or os.getcwd()

    def directives(self, value: str) -> list[str]:
        return [quote(self.format(value))]

    def domain(self) -> str:
        return "path of a directory"


class Words(Kind):
    """tuple of str: any number of words without blanks"""

    is_multi = True

    def __init__(self, most: int) -> None:
        self.most = most

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        if len(args) > self.most:
            raise Refused("Too many bind addresses specified.")
        return () if list(args) == [""] else tuple(args)

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def directives(self, value: tuple[str, ...]) -> list[str]:
        return [self.format(value) or '""']

    def domain(self) -> str:
        return "addresses"


class SavePoint(NamedTuple):
    """Save after `seconds` when there were at least `changes` changes."""

    seconds: int
    changes: int


class SavePoints(Kind):
    """tuple of SavePoint"""

    is_multi = True
    adds_up = True
    is_always_written = True

    def parse(self, args: Sequence[str], old: Any) -> tuple[SavePoint, ...]:
        """`old` is what the file has set so far, to which this is added; `""` removes everything."""
        if list(args) in ([], [""]):
            return ()
        points = []
        for arg in args:
            if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}", arg, re.ASCII):
                raise Refused("Invalid save parameters")
            points.append(int(arg))
        seconds, changes = points[::2], points[1::2]
        if len(points) % 2 or min(seconds) < 1 or max(points) > INT32_MAX or min(changes) < 0:
            raise Refused("Invalid save parameters")
        return (*old, *map(SavePoint, seconds, changes))

    def format(self, value: tuple[SavePoint, ...]) -> str:
        return " ".join(f"{point.seconds} {point.changes}" for point in value)

    def directives(self, value: tuple[SavePoint, ...]) -> list[str]:
        return [f"{point.seconds} {point.changes}" for point in value] or ['""']

    def domain(self) -> str:
        return "seconds and changes, repeated; empty: never"


class BufferLimit(NamedTuple):
    """When a client with unsent replies is closed: above `hard_bytes`, or above `soft_bytes` for `soft_seconds`; 0: never."""

    hard_bytes: int
    soft_bytes: int
    soft_seconds: int


class BufferLimits(Kind):
    """dict of class (normal, replica, pubsub) to BufferLimit; classes that are not named keep theirs"""

    is_multi = True
    adds_up = True

    # Wire and files use the old word for replicas in different places.
    CLASSES: ClassVar[dict[str, str]] = {
        "normal": "normal",
        "slave": "replica",
        "replica": "replica",
        "pubsub": "pubsub",
    }
    DEFAULT: ClassVar[dict[str, BufferLimit]] = {
        "normal": BufferLimit(0, 0, 0),
        "replica": BufferLimit(256 << 20, 64 << 20, 60),
        "pubsub": BufferLimit(32 << 20, 8 << 20, 60),
    }

    def parse(self, args: Sequence[str], old: Any) -> dict[str, BufferLimit]:
        if len(args) % 4:
            raise Refused("Wrong number of arguments in buffer limit configuration.")
        limits = dict(old)
        for at in range(0, len(args), 4):
            name = self.CLASSES.get(args[at].lower())
            if name is None:
                raise Refused("Invalid client class specified in buffer limit configuration.")
            hard, soft = parse_memory(args[at + 1]), parse_memory(args[at + 2])
            is_number = re.fullmatch(r"\s*\+?[0-9]{1,10}", args[at + 3], re.ASCII)
            if hard is None or soft is None or not is_number or int(args[at + 3]) > INT32_MAX:
                raise Refused("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
            limits[name] = BufferLimit(hard, soft, int(args[at + 3]))
        return limits

    def format(self, value: dict[str, BufferLimit]) -> str:
        return " ".join(
            f"{'slave' if name == 'replica' else name} {limit.hard_bytes} {limit.soft_bytes} {limit.soft_seconds}"
            for name, limit in value.items()
        )

    def directives(self, value: dict[str, BufferLimit]) -> list[str]:
        return [
            f"{name} {format_memory(limit.hard_bytes)} {format_memory(limit.soft_bytes)} {limit.soft_seconds}"
            for name, limit in value.items()
        ]

    def domain(self) -> str:
        return "class, hard limit, soft limit, seconds; repeated"


class Events(Kind):
    """str: classes of keyspace events, as letters in a fixed order"""

    ALL = "g$lshzxetd"  # what `A` stands for
    APART = "noc"  # letters that are not shown beside A
    SUBKEYS = "STIV"  # of Redis 8.8: fields of hashes, which do not exist here; accepted without effect
    LETTERS = ALL + "KEmnocA" + SUBKEYS

    def parse(self, args: Sequence[str], old: Any) -> str:
        given = set(args[0])
        if not given.issubset(self.LETTERS):
            raise Refused("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
        if "A" in given or given.issuperset(self.ALL):
            return "A" + "".join(letter for letter in "KEm" + self.SUBKEYS if letter in given) + self._hidden(given)
        return "".join(letter for letter in "g$lshzxetdnocKEm" + self.SUBKEYS if letter in given)

    @classmethod
    def _hidden(cls, given: set[str]) -> str:
        return "".join(letter for letter in cls.APART if letter in given)

    def format(self, value: str) -> str:
        return value.rstrip(self.APART) if value.startswith("A") else value

    def directives(self, value: str) -> list[str]:
        return [quote(value)]

    def domain(self) -> str:
        return f"letters of {self.LETTERS}"


class Percentiles(Kind):
    """tuple of float"""

    is_multi = True

    def parse(self, args: Sequence[str], old: Any) -> tuple[float, ...]:
        if list(args) in ([], [""]):
            return ()
        values = []
        for arg in args:
            try:
                values.append(float(arg))
            except ValueError as error:
                raise Refused("Invalid latency-tracking-info-percentiles parameters") from error
            if not 0 <= values[-1] <= 100 or math.isnan(values[-1]):
                raise Refused("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
        return tuple(values)

    def format(self, value: tuple[float, ...]) -> str:
        return " ".join(str(int(number)) if number.is_integer() else repr(number) for number in value)

    def directives(self, value: tuple[float, ...]) -> list[str]:
        return [self.format(value) or '""']

    def domain(self) -> str:
        return "percentages"


class OomScores(Kind):
    """tuple of three int"""

    is_multi = True

    def parse(self, args: Sequence[str], old: Any) -> tuple[int, ...]:
        if len(args) != 3:
            raise Refused("wrong number of arguments")
        if not all(re.fullmatch(r"\s*[+-]?[0-9]{1,9}", arg, re.ASCII) and -2000 <= int(arg) <= 2000 for arg in args):
            raise Refused("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")
        return tuple(map(int, args))

    def format(self, value: tuple[int, ...]) -> str:
        return " ".join(map(str, value))

    def domain(self) -> str:
        return "three numbers, -2000 to 2000"


class PrimaryAddress(Kind):
    """tuple: host and port; () for none"""

    is_multi = True

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        if len(args) != 2:
            raise Refused("wrong number of arguments")
        if [arg.lower() for arg in args] == ["no", "one"]:
            return ()
        if not re.fullmatch(r"[0-9]{1,5}", args[1], re.ASCII) or int(args[1]) > 65535:
            raise Refused("Invalid master port")
        return tuple(args)

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def directives(self, value: tuple[str, ...]) -> list[str]:
        if not value:
            return []
        host, port = value
        return [f"{host if re.fullmatch('[0-9A-Za-z.:_-]+', host) else quote(host)} {port}"]

    def domain(self) -> str:
        return "host and port, no one"


def within(value: int, lo: int, hi: int) -> int:
    """`value`; raises Refused when it is outside the bounds."""
    if not lo <= value <= hi:
        raise Refused(f"argument must be between {lo} and {hi} inclusive")
    return value


def shown_bound(value: int) -> str:
    return {INT32_MAX: "2^31-1", INT32_MIN: "-2^31", INT64_MAX: "2^63-1", UINT64_MAX: "2^64-1"}.get(value, str(value))


# --- Checks of texts: the reason why one will not do, or None ------------------------------------------------------


def only_a_filename(name: str) -> Callable[[str], str | None]:
    return lambda text: f"{name} can't be a path, just a filename" if "/" in text else None


def only_a_preload(text: str) -> str | None:
    return "preload-file must be aof:<manifest> or rdb:<file>" if text and text[:4] not in ("aof:", "rdb:") else None
