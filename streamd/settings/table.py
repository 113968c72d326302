"""The settings: one row each, with default, bounds, unit, meaning, and what is called when it changes.

A row is all there is to know about a setting. The configuration file, the command line, CONFIG GET, SET and REWRITE, the
commented conf/streamd.conf and the manual's table are read from the rows (see config.py, which holds the values).

    integer("stream-node-max-entries", 100, lo=0, doc="...")

How text becomes a value and a value text is the business of the row's `Kind`. A kind raises `Refused` with Redis's reason
when the text will not do; it changes nothing and knows no other setting.

Three sorts of rows: those that this server acts on; `planned` ones, whose value is kept and shown and which is warned about,
since nothing happens yet; and `foreign` ones, which tune what this server does not have (other data types, the cluster,
Redis's own allocator) and which are there so that a redis.conf can be read.

Names, defaults, bounds and error texts: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

__all__ = ["RETIRED", "SETTINGS", "BufferLimit", "Kind", "Refused", "SavePoint", "Setting", "by_name", "quote"]

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1


NO_TLS = "this server makes no connections of its own over TLS"


class Refused(ValueError):
    """A text that a setting cannot take; str() is the reason, in Redis's words."""


def quote(text: str) -> str:
    """`text` in double quotes, as a configuration file has it and `split_line` reads it back."""
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}
    shown = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        shown.append(named.get(char) or (char if 32 <= byte < 127 else f"\\x{byte:02x}"))
    return f'"{"".join(shown)}"'


# --- Kinds: from text to value and back ----------------------------------------------------------------------------


class Kind:
    """How the values of a setting are read and shown.

    is_multi           takes several arguments; otherwise exactly one
    adds_up            in a file, a second directive adds to the first instead of replacing it
    is_always_written  CONFIG REWRITE writes the value even when it is the default
    """

    is_multi: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    is_always_written: ClassVar[bool] = False

    def parse(self, args: Sequence[str], old: Any) -> Any:
        """The value that `args` stand for; raises Refused. `old` is the value so far, for kinds that change a part."""
        raise NotImplementedError

    def format(self, value: Any) -> str:
        """The value as CONFIG GET shows it, and as `parse` reads it back."""
        raise NotImplementedError

    def directives(self, value: Any) -> list[str]:
        """What follows the name in a configuration file: a line for each element."""
        return [self.format(value)]

    def domain(self) -> str:
        """Which values there are, for the manual."""
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
    """int; what is outside narrower bounds is moved to the nearer one"""

    def __init__(self, lo: int, hi: int) -> None:
        super().__init__(0, INT_MAX)
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
    """Bytes: digits, then one of UNITS in any case; None when it is something else.

    Without digits it is 0. Too many of them are taken as the greatest number there is, times the unit, in 64 bits.
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
    """str: `yes` is another word for `relative`, and the one that is shown"""

    def parse(self, args: Sequence[str], old: Any) -> str:
        word = super().parse(args, old)
        return "yes" if word == "relative" else word


class Flags(Kind):
    """tuple of str: some of a few words, in the order of `words`; the first word stands for none of them"""

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
        """`old` is what the file has said before, to which this is added; `""` takes it all away."""
        if list(args) in ([], [""]):
            return ()
        points = []
        for arg in args:
            if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}", arg, re.ASCII):
                raise Refused("Invalid save parameters")
            points.append(int(arg))
        seconds, changes = points[::2], points[1::2]
        if len(points) % 2 or min(seconds) < 1 or max(points) > INT_MAX or min(changes) < 0:
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
    """dict of class (normal, replica, pubsub) to BufferLimit; what is not named stays as it was"""

    is_multi = True
    adds_up = True

    # Wire and files keep the old word for replicas in different places.
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
            if hard is None or soft is None or not is_number or int(args[at + 3]) > INT_MAX:
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
    SUBKEYS = "STIV"  # of Redis 8.8: fields of hashes, which are not here; taken, and nothing follows
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
    """tuple: () for none. A server that were told to follow another one and did not would be worse than one that stops."""

    is_multi = True

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        if len(args) != 2:
            raise Refused("wrong number of arguments")
        if [arg.lower() for arg in args] == ["no", "one"]:
            return ()
        if not re.fullmatch(r"[0-9]{1,5}", args[1], re.ASCII) or int(args[1]) > 65535:
            raise Refused("Invalid master port")
        raise Refused("this server cannot be a replica")

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def directives(self, value: tuple[str, ...]) -> list[str]:
        return []

    def domain(self) -> str:
        return "no one"


class NeverYes(Boolean):
    """bool; `yes` is refused for a reason"""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def parse(self, args: Sequence[str], old: Any) -> bool:
        if super().parse(args, old):
            raise Refused(self.reason)
        return False

    def domain(self) -> str:
        return "no"


class SlotStats(Flags):
    """As Flags, with a word for all of them"""

    def parse(self, args: Sequence[str], old: Any) -> tuple[str, ...]:
        value = super().parse(args, old)
        if "yes" in value or len(value) == len(self.words) - 2:
            return ("yes",)
        return value or ("no",)


def within(value: int, lo: int, hi: int) -> int:
    """`value`; raises Refused when it is outside the bounds."""
    if not lo <= value <= hi:
        raise Refused(f"argument must be between {lo} and {hi} inclusive")
    return value


def shown_bound(value: int) -> str:
    return {INT_MAX: "2^31-1", INT_MIN: "-2^31", INT64_MAX: "2^63-1", UINT64_MAX: "2^64-1"}.get(value, str(value))


def only_a_filename(name: str) -> Callable[[str], str | None]:
    return lambda text: f"{name} can't be a path, just a filename" if "/" in text else None


def only_a_preload(text: str) -> str | None:
    return "preload-file must be aof:<manifest> or rdb:<file>" if text and text[:4] not in ("aof:", "rdb:") else None


def title_template(text: str) -> str | None:
    """The reason why `text` is no template of process titles."""
    known = {"title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"}
    names = re.findall(r"\{([^{}]*)\}", text)
    if not text or not known.issuperset(names) or set("{}").intersection(re.sub(r"\{[^{}]*\}", "", text)):
        return "template format is invalid or contains unknown variables"
    return None


def host_name(text: str) -> str | None:
    return (
        None
        if re.fullmatch(r"[A-Za-z0-9.-]*", text)
        else "Hostnames may only contain alphanumeric characters, hyphens or dots"
    )


def node_name(text: str) -> str | None:
    return None if re.fullmatch(r"[A-Za-z0-9./_`-]*", text) else "Announced human node name contained invalid character"


def ip_address(text: str) -> str | None:
    try:
        ipaddress.ip_address(text or "::")
    except ValueError:
        return "Cluster announce IP must be a valid IPv4 or IPv6 address"
    return None


# --- Rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setting:
    """One row.

    name          as files and clients write it; the attribute of Config has `_` for `-`
    default       the value without any configuration
    doc           what it is for, in whole sentences
    unit          of a number: ms, seconds, bytes ...
    aliases       older names, which work in every place
    is_immutable  decided at start, CONFIG SET refuses it
    is_protected  CONFIG SET needs enable-protected-configs
    is_hidden     patterns of CONFIG GET do not find it, its own name does
    is_secret     never logged
    is_planned    kept and shown, but nothing acts on it yet
    is_foreign    tunes what this server does not have
    apply         name of the function to call after CONFIG SET; empty: the value is read where it is used
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    aliases: tuple[str, ...] = ()
    is_immutable: bool = False
    is_protected: bool = False
    is_hidden: bool = False
    is_secret: bool = False
    is_planned: bool = False
    is_foreign: bool = False
    apply: str = ""

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_effective(self) -> bool:
        return not (self.is_planned or self.is_foreign)


_FLAGS = frozenset({"immutable", "protected", "hidden", "secret", "planned", "foreign"})


def setting(
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    *,
    flags: str = "",
    unit: str = "",
    aliases: str = "",
    apply: str = "",
) -> Setting:
    words = flags.split()
    if unknown := set(words) - _FLAGS:
        raise ValueError(f"setting {name}: unknown flags {unknown}")
    is_what = {f"is_{word}": True for word in words}
    return Setting(name, kind, default, doc, unit, tuple(aliases.split()), apply=apply, **is_what)


def integer(name: str, default: int, *, lo: int = 0, hi: int = INT64_MAX, doc: str, **more: str) -> Setting:
    return setting(name, Integer(lo, hi), default, doc, **more)


def memory(name: str, default: int, *, lo: int = 0, hi: int = INT64_MAX, doc: str, **more: str) -> Setting:
    return setting(name, Memory(lo, hi), default, doc, **more)


def boolean(name: str, default: bool, *, doc: str, **more: str) -> Setting:
    return setting(name, Boolean(), default, doc, **more)


def choice(name: str, default: str, words: Sequence[str], *, doc: str, **more: str) -> Setting:
    return setting(name, Choice(words), default, doc, **more)


def text(
    name: str, default: str = "", *, check: Callable[[str], str | None] | None = None, doc: str, **more: str
) -> Setting:
    return setting(name, Text(check), default, doc, **more)


MB = 1 << 20
NO_YES_LOCAL = ("no", "yes", "local")
SHUTDOWN_WORDS = ("default", "save", "nosave", "now", "force")

NETWORK = (
    setting(
        "bind", Words(16), ("*", "-::*"), apply="listen",
        doc="Addresses to listen on. `*` is all of IPv4, `::*` all of IPv6; with a leading `-` an address may be missing.",
    ),
    integer("port", 6379, hi=65535, apply="listen", doc="TCP port; 0 listens on none."),
    boolean(
        "protected-mode", True,
        doc="While there is no password, take connections from this machine only.",
    ),
    text("unixsocket", flags="immutable", doc="Path of a Unix socket to listen on as well; empty for none."),
    setting(
        "unixsocketperm", Octal(0, 0o777), 0, flags="immutable",
        doc="Permissions of the Unix socket; 0 leaves them to the umask.",
    ),
    integer(
        "tcp-backlog", 511, hi=INT_MAX, flags="immutable",
        doc="Connections that may wait to be accepted; the system's own limit stands above it.",
    ),
    integer(
        "tcp-keepalive", 300, hi=INT_MAX, unit="seconds",
        doc="Probe connections that have been silent for this long, so that dead peers are noticed; 0 never does.",
    ),
    integer("timeout", 0, hi=INT_MAX, unit="seconds", doc="Close clients that have been idle for this long; 0 never does."),
    text("bind-source-addr", flags="planned", doc="Address from which outgoing connections are made."),
)  # fmt: skip

PROCESS = (
    boolean("daemonize", False, flags="immutable", doc="Go on in the background."),
    text("pidfile", flags="immutable", doc="File for the process ID; written when it is set, or when daemonized."),
    setting(
        "dir", Directory(), "", flags="protected", apply="directory",
        doc="Directory to work in; relative paths start here.",
    ),
    choice(
        "loglevel", "notice", ("debug", "verbose", "notice", "warning", "nothing"), apply="log",
        doc="The least important messages that are logged.",
    ),
    text("logfile", flags="immutable", doc="File that log lines are appended to; empty for the standard output."),
    integer("databases", 16, lo=1, hi=INT_MAX, flags="immutable", doc="Databases that SELECT can choose from."),
    setting("hz", Clamped(1, 500), 10, "How often background work is done.", unit="times a second"),
    setting(
        "shutdown-on-sigterm", ShutdownFlags(SHUTDOWN_WORDS), (),
        doc="How SIGTERM shuts the server down: options of SHUTDOWN.",
    ),
    setting(
        "shutdown-on-sigint", ShutdownFlags(SHUTDOWN_WORDS), (),
        doc="How SIGINT shuts the server down: options of SHUTDOWN.",
    ),
    integer(
        "shutdown-timeout", 10, hi=INT_MAX, unit="seconds", flags="planned",
        doc="How long a shutdown waits for replicas to catch up.",
    ),
    boolean("crash-log-enabled", True, apply="crash-log", doc="Write a report to the log when the process dies of a signal."),
    integer(
        "watchdog-period", 0, hi=INT_MAX, unit="ms", flags="hidden", apply="watchdog",
        doc="Write the stacks to the log when the event loop has not come round for so long. 0: never.",
    ),
    setting(
        "oom-score-adj", OomMode(("no", "yes", "relative", "absolute")), "no", apply="oom-score",
        doc="Have the system end this process sooner, or later, than others when memory runs out; `yes` is `relative`.",
    ),
    setting(
        "oom-score-adj-values", OomScores(), (0, 200, 800), apply="oom-score",
        doc="Scores of the server, of a replica and of children that write files; `relative`: added to what it starts with.",
    ),
    boolean("syslog-enabled", False, flags="immutable planned", doc="Log to the system's log as well."),
    text("syslog-ident", "redis", flags="immutable planned", doc="Name in the system's log."),
    choice(
        "syslog-facility", "local0", ("user", *(f"local{n}" for n in range(8))), flags="immutable planned",
        doc="Facility of the system's log.",
    ),
    choice(
        "supervised", "no", ("upstart", "systemd", "auto", "no"), flags="immutable planned",
        doc="Tell a supervisor when the server is ready.",
    ),
    boolean("hide-user-data-from-log", False, flags="planned", doc="Keep keys and values out of the log."),
)  # fmt: skip

CLIENTS = (
    integer(
        "maxclients", 10000, lo=1, hi=2**32 - 1, apply="open-files",
        doc="Clients that may be connected at a time; lowered at start when the system allows fewer open files.",
    ),
    setting(
        "client-output-buffer-limit", BufferLimits(), BufferLimits.DEFAULT, apply="refresh",
        doc="Close a client that does not read its replies: hard limit, soft limit, and for how many seconds the soft one"
        " may be passed. The classes are normal, replica and pubsub.",
    ),
    memory(
        "client-query-buffer-limit", 1 << 30, lo=MB, apply="refresh",
        doc="Close a client whose unfinished request takes more than this.",
    ),
    memory("proto-max-bulk-len", 512 * MB, lo=MB, apply="refresh", doc="The longest single argument of a request."),
    setting(
        "maxmemory-clients", MemoryOrPercent(), 0, apply="refresh",
        doc="Close clients when all of their buffers take more than this; 0 never does.",
    ),
    integer(
        "tracking-table-max-keys", 1000000, apply="refresh", doc="Keys that client-side caching remembers; 0: no limit."
    ),
)  # fmt: skip

SECURITY = (
    text(
        "requirepass", flags="secret", apply="password",
        doc="Password of the default user, which clients have to give; empty for none.",
    ),
    choice(
        "enable-debug-command", "no", NO_YES_LOCAL, flags="immutable",
        doc="Whether DEBUG may be used: by nobody, everybody, or clients of this machine.",
    ),
    choice(
        "enable-protected-configs", "no", NO_YES_LOCAL, flags="immutable",
        doc="Whether CONFIG SET may change `dir` and `dbfilename`.",
    ),
    text(
        "aclfile", flags="immutable",
        doc="File with the users, a line for each; without it they are `user` lines of the configuration.",
    ),
    choice(
        "acl-pubsub-default", "resetchannels", ("allchannels", "resetchannels"),
        doc="Channels that a new user may use, until rules say more.",
    ),
    integer("acllog-max-len", 128, doc="Entries that ACL LOG keeps."),
)  # fmt: skip

STREAMS = (
    memory(
        "stream-node-max-bytes", 4096, unit="bytes", apply="refresh",
        doc="A node of a stream is closed when it takes more than this; 0 for no limit by size.",
    ),
    integer(
        "stream-node-max-entries", 100, apply="refresh",
        doc="Entries in a node of a stream, deleted ones included; 0 for no limit by count.",
    ),
    integer(
        "stream-idmp-duration", 100, lo=1, hi=86400, unit="seconds", apply="refresh",
        doc="How long a new stream remembers what idempotent producers have sent.",
    ),
    integer(
        "stream-idmp-maxsize", 100, lo=1, hi=10000, apply="refresh",
        doc="How many messages of each idempotent producer a new stream remembers.",
    ),
)  # fmt: skip

MEMORY = (
    memory("maxmemory", 0, hi=UINT64_MAX, apply="refresh", doc="Memory for data, clients and buffers, beside the interpreter; above it keys are evicted or writes refused. 0: no limit."),
    choice(
        "maxmemory-policy", "noeviction",
        (
            "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm",
            "allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm", "noeviction",
        ),
        apply="refresh", doc="Which keys make room above maxmemory.",
    ),
    integer("maxmemory-samples", 5, lo=1, hi=64, apply="refresh", doc="Keys looked at to find one to evict."),
    integer(
        "maxmemory-eviction-tenacity", 10, hi=100, apply="refresh", doc="How much time eviction may take, 0 to 100."
    ),
    integer("lfu-log-factor", 10, hi=INT_MAX, apply="refresh", doc="How fast access counts of keys saturate."),
    integer("lfu-decay-time", 1, hi=INT_MAX, unit="minutes", apply="refresh", doc="Minutes without use in which the count of uses of a key falls by one; 0: never."),
    integer("active-expire-effort", 1, lo=1, hi=10, flags="planned", doc="How much effort goes into finding expired keys."),
    boolean("dynamic-hz", True, flags="planned", doc="Work in the background more often while there are many clients."),
)  # fmt: skip

EVENTS = (
    setting(
        "notify-keyspace-events", Events(), "", apply="refresh",
        doc="Which changes of keys are published: K, E or both, and letters for the kinds of events.",
    ),
    integer(
        "slowlog-log-slower-than", 10000, lo=-1, unit="us", apply="refresh",
        doc="Log requests that take longer; -1 logs none.",
    ),
    integer("slowlog-max-len", 128, apply="refresh", doc="Requests that the slow log keeps."),
    integer("slowlog-entry-max-argc", 32, lo=2, hi=INT_MAX, apply="refresh", doc="Arguments of a request that the slow log keeps."),
    integer("slowlog-entry-max-string-len", 128, lo=1, hi=INT_MAX, apply="refresh", doc="Bytes of each argument that it keeps."),
    integer("latency-monitor-threshold", 0, unit="ms", apply="refresh", doc="Record events that take longer; 0 for none."),
    boolean("latency-tracking", True, apply="refresh", doc="Keep a histogram of the time that each command takes."),
    setting(
        "latency-tracking-info-percentiles", Percentiles(), (50.0, 99.0, 99.9),
        doc="Percentiles of those histograms that INFO shows.",
    ),
)  # fmt: skip

PERSISTENCE = (
    setting(
        "save", SavePoints(), (SavePoint(3600, 1), SavePoint(300, 100), SavePoint(60, 10000)), apply="save-points",
        doc="Take a snapshot after so many seconds with so many changes. Repeated lines add up.",
    ),
    text(
        "dbfilename", "dump.rdb", flags="protected", apply="refresh", check=only_a_filename("dbfilename"),
        doc="Name of the snapshot.",
    ),
    boolean("rdbcompression", True, doc="Compress strings in snapshots."),
    boolean("rdbchecksum", True, flags="immutable", doc="Write and verify checksums of snapshots."),
    choice(
        "rdb-form", "8.6", ("8.10", "8.8", "8.6", "7.2", "7.0"), apply="refresh",
        doc="The oldest Redis that shall read snapshots. What its form has no room for is left out, and named in the log."
        " The append-only file and DUMP keep to it from 8.6 on.",
    ),
    boolean(
        "rdb-skip-unsupported", False,
        doc="Leave out, and log, keys of types that this server does not have, instead of refusing a snapshot.",
    ),
    boolean("rdb-del-sync-files", False, flags="planned", doc="Remove snapshots that were only made for a replica."),
    boolean("rdb-save-incremental-fsync", True, doc="Flush a snapshot to disk while it is written."),
    integer(
        "rdb-key-save-delay", 0, lo=INT_MIN, hi=INT_MAX, flags="hidden",
        doc="For tests: children write slowly, so many us for a key; below 0, so many keys in a us.",
    ),
    integer(
        "key-load-delay", 0, lo=INT_MIN, hi=INT_MAX, flags="hidden",
        doc="For tests: files are loaded slowly, so many us for a key; below 0, so many keys in a us.",
    ),
    boolean("stop-writes-on-bgsave-error", True, apply="refresh", doc="Refuse writes while snapshots fail."),
    choice(
        "sanitize-dump-payload", "no", ("no", "yes", "clients"),
        doc="Accepted; data from snapshots and RESTORE is always verified thoroughly.",
    ),
    boolean("appendonly", False, apply="append-only", doc="Write every change to a log that survives a crash."),
    choice(
        "appendfsync", "everysec", ("everysec", "always", "no"), apply="refresh",
        doc="When that log is flushed to disk.",
    ),
    text(
        "appendfilename", "appendonly.aof", flags="immutable", check=only_a_filename("appendfilename"),
        doc="What the names of the log's files begin with.",
    ),
    text(
        "appenddirname", "appendonlydir", flags="immutable", check=only_a_filename("appenddirname"),
        doc="Directory of the log's files.",
    ),
    text(
        "backupdirname", "backupdir", flags="immutable", check=only_a_filename("backupdirname"),
        doc="Directory of the files of BACKUP.",
    ),
    integer(
        "backup-sealed-ttl", 0, hi=INT_MAX, unit="seconds",
        doc="Delete a sealed backup after this time; 0 keeps it.",
    ),
    text(
        "preload-file", flags="immutable", check=only_a_preload,
        doc="Load `aof:<manifest>` or `rdb:<file>` at the start instead of the server's own files.",
    ),
    boolean("no-appendfsync-on-rewrite", False, apply="refresh", doc="Do not flush while a snapshot or rewrite runs."),
    integer(
        "auto-aof-rewrite-percentage", 100, hi=INT_MAX, unit="%", apply="refresh",
        doc="Rewrite the log when it has grown by this much; 0 never does.",
    ),
    memory("auto-aof-rewrite-min-size", 64 * MB, apply="refresh", doc="Do not rewrite a log smaller than this."),
    boolean("aof-use-rdb-preamble", True, apply="refresh", doc="Begin a rewritten log with a snapshot."),
    boolean("aof-load-truncated", True, doc="Load a log whose end is missing."),
    integer(
        "aof-load-corrupt-tail-max-size", 0, unit="bytes",
        doc="Load a log with a damaged end of at most this size.",
    ),
    boolean(
        "aof-disable-auto-gc", False, flags="hidden", apply="refresh",
        doc="Leave files behind that a rewritten log no longer needs.",
    ),
    boolean("aof-timestamp-enabled", False, apply="refresh", doc="Note the time in the log."),
    boolean("aof-rewrite-incremental-fsync", True, doc="Flush a rewritten log to disk while it is written."),
)  # fmt: skip

REPLICATION = (
    setting(
        "replicaof", PrimaryAddress(), (), flags="immutable planned", aliases="slaveof",
        doc="Host and port of the primary to follow.",
    ),
    text("masteruser", flags="planned", doc="User to be at the primary."),
    text("masterauth", flags="secret planned", doc="Password to give the primary."),
    boolean(
        "replica-serve-stale-data", True, flags="planned", aliases="slave-serve-stale-data",
        doc="Answer while the link to the primary is down.",
    ),
    boolean("replica-read-only", True, flags="planned", aliases="slave-read-only", doc="Refuse writes on a replica."),
    boolean(
        "replica-lazy-flush", False, flags="planned", aliases="slave-lazy-flush",
        doc="Free old data in the background before a full resync.",
    ),
    boolean(
        "replica-ignore-maxmemory", True, apply="refresh", aliases="slave-ignore-maxmemory",
        doc="Leave eviction to the primary.",
    ),
    boolean(
        "replica-ignore-disk-write-errors", False, flags="planned",
        doc="Go on when a replica cannot write its files.",
    ),
    integer(
        "replica-priority", 100, hi=INT_MAX, flags="planned", aliases="slave-priority",
        doc="Smaller numbers are promoted first; 0 is never promoted.",
    ),
    boolean("replica-announced", True, flags="planned", doc="Let Sentinel report this replica."),
    text("replica-announce-ip", flags="planned", aliases="slave-announce-ip", doc="Address to give to the primary."),
    integer(
        "replica-announce-port", 0, hi=65535, flags="planned", aliases="slave-announce-port",
        doc="Port to give to the primary.",
    ),
    memory("replica-full-sync-buffer-limit", 0, flags="planned", doc="Memory for changes during a full resync."),
    integer("repl-timeout", 60, lo=1, hi=INT_MAX, unit="seconds", flags="planned", doc="When a silent link is given up."),
    integer(
        "repl-ping-replica-period", 10, lo=1, hi=INT_MAX, unit="seconds", flags="planned",
        aliases="repl-ping-slave-period", doc="How often replicas are pinged.",
    ),
    memory("repl-backlog-size", MB, lo=1, flags="planned", doc="Changes that are kept for replicas that come back."),
    integer("repl-backlog-ttl", 3600, unit="seconds", flags="planned", doc="When the backlog is freed without replicas."),
    boolean("repl-disable-tcp-nodelay", False, flags="planned", doc="Send to replicas in fewer, larger packets."),
    boolean("repl-diskless-sync", True, flags="planned", doc="Send snapshots without writing a file."),
    integer(
        "repl-diskless-sync-delay", 5, hi=INT_MAX, unit="seconds", flags="planned",
        doc="Wait for more replicas before a snapshot is sent.",
    ),
    integer(
        "repl-diskless-sync-max-replicas", 0, hi=INT_MAX, flags="planned",
        doc="Do not wait when there are this many; 0 waits.",
    ),
    choice(
        "repl-diskless-load", "disabled", ("disabled", "on-empty-db", "swapdb", "flushdb"), flags="planned",
        doc="Load snapshots of the primary without writing a file.",
    ),
    boolean(
        "repl-rdb-channel", True, flags="hidden planned", doc="Send a snapshot on a connection of its own."
    ),
    integer(
        "min-replicas-to-write", 0, hi=INT_MAX, flags="planned", aliases="min-slaves-to-write",
        doc="Refuse writes while fewer replicas follow.",
    ),
    integer(
        "min-replicas-max-lag", 10, hi=INT_MAX, unit="seconds", flags="planned", aliases="min-slaves-max-lag",
        doc="A replica that was silent for longer does not count as following.",
    ),
    choice(
        "propagation-error-behavior", "ignore", ("ignore", "panic", "panic-on-replicas"), flags="planned",
        doc="What to do when a change cannot be passed on.",
    ),
)  # fmt: skip

TLS = (
    integer("tls-port", 0, hi=65535, apply="listen-tls", doc="Port for TLS; 0 for none."),
    *(
        text(name, apply="tls", doc=doc)
        for name, doc in (
            ("tls-cert-file", "Certificate of this server."),
            ("tls-key-file", "Its private key."),
            ("tls-dh-params-file", "Parameters for Diffie-Hellman."),
            ("tls-ca-cert-file", "Certificates of authorities that are trusted."),
            ("tls-ca-cert-dir", "Directory of such certificates."),
            ("tls-protocols", "Versions of TLS that are spoken, such as `TLSv1.2 TLSv1.3`; empty: these two."),
            ("tls-ciphers", "Ciphers up to TLS 1.2; empty: those of OpenSSL."),
            ("tls-ciphersuites", "Ciphers of TLS 1.3; empty: those of OpenSSL."),
        )
    ),
    text("tls-key-file-pass", flags="secret", apply="tls", doc="Password of the private key."),
    text("tls-client-cert-file", flags="planned", doc="Certificate for outgoing connections."),
    text("tls-client-key-file", flags="planned", doc="Its private key."),
    text("tls-client-key-file-pass", flags="secret planned", doc="Password of the private key for outgoing connections."),
    choice(
        "tls-auth-clients", "yes", ("no", "yes", "optional"), apply="tls",
        doc="Ask clients for certificates: turn those away that have none, do not ask, or take both.",
    ),
    choice(
        "tls-auth-clients-user", "off", ("CN", "off"),
        doc="Log clients in as the user that the common name (CN) of their certificate names.",
    ),
    setting("tls-replication", NeverYes(NO_TLS), False, "Use TLS to the primary.", flags="planned"),
    boolean("tls-prefer-server-ciphers", False, apply="tls", doc="This server's order of ciphers counts."),
    boolean("tls-session-caching", True, apply="tls", doc="Let clients resume sessions."),
    integer("tls-session-cache-size", 20480, hi=INT_MAX, apply="tls", doc="Sessions that are kept; 0: no limit."),
    integer("tls-session-cache-timeout", 300, hi=INT_MAX, unit="seconds", apply="tls", doc="For how long."),
    integer("max-new-tls-connections-per-cycle", 1, lo=1, hi=1000, flags="planned", doc="TLS connections accepted at once."),
)  # fmt: skip


def _foreign() -> tuple[Setting, ...]:
    """What tunes other data types, scripts, the cluster, or Redis's own process."""
    f = "foreign"
    i = "foreign immutable"
    types = (
        *(integer(f"{name}-max-listpack-entries", default, flags=f, aliases=f"{name}-max-ziplist-entries", doc="")
          for name, default in (("hash", 512), ("zset", 128))),
        *(memory(f"{name}-max-listpack-value", 64, flags=f, aliases=f"{name}-max-ziplist-value", doc="")
          for name in ("hash", "zset")),
        integer("list-max-listpack-size", -2, lo=INT_MIN, hi=INT_MAX, flags=f, aliases="list-max-ziplist-size", doc=""),
        integer("list-compress-depth", 0, hi=INT_MAX, flags=f, doc=""),
        integer("set-max-intset-entries", 512, flags=f, doc=""),
        integer("set-max-listpack-entries", 128, flags=f, doc=""),
        integer("set-max-listpack-value", 64, flags=f, doc=""),
        memory("hll-sparse-max-bytes", 3000, flags=f, doc=""),
        boolean("vset-force-single-threaded-execution", False, flags=f, doc=""),
        integer("busy-reply-threshold", 5000, flags=f, aliases="lua-time-limit", doc=""),
    )  # fmt: skip
    # Memory of streams is always freed in the background when it is much; these choose when Redis does so.
    lazyfree = tuple(
        boolean(f"lazyfree-lazy-{what}", False, flags=f, doc="")
        for what in ("eviction", "expire", "server-del", "user-del", "user-flush")
    )
    cluster = (
        setting("cluster-enabled", NeverYes("this server has no cluster mode"), False, "", flags=i),
        text("cluster-config-file", "nodes.conf", flags=i, doc=""),
        integer("cluster-port", 0, hi=65535, flags=i, doc=""),
        integer("cluster-node-timeout", 15000, flags=f, doc=""),
        *(integer(f"cluster-announce-{what}", 0, hi=65535, flags=f, doc="") for what in ("port", "bus-port", "tls-port")),
        text("cluster-announce-ip", check=ip_address, flags=f, doc=""),
        text("cluster-announce-hostname", check=host_name, flags=f, doc=""),
        text("cluster-announce-human-nodename", check=node_name, flags=f, doc=""),
        choice("cluster-preferred-endpoint-type", "ip", ("ip", "hostname", "unknown-endpoint"), flags=f, doc=""),
        integer("cluster-migration-barrier", 1, hi=INT_MAX, flags=f, doc=""),
        integer("cluster-replica-validity-factor", 10, hi=INT_MAX, flags=f, aliases="cluster-slave-validity-factor", doc=""),
        boolean("cluster-replica-no-failover", False, flags=f, aliases="cluster-slave-no-failover", doc=""),
        boolean("cluster-allow-replica-migration", True, flags=f, doc=""),
        boolean("cluster-allow-reads-when-down", False, flags=f, doc=""),
        boolean("cluster-allow-pubsubshard-when-down", True, flags=f, doc=""),
        boolean("cluster-require-full-coverage", True, flags=f, doc=""),
        memory("cluster-link-sendbuf-limit", 0, hi=UINT64_MAX, flags=f, doc=""),
        integer("cluster-compatibility-sample-ratio", 0, hi=100, flags=f, doc=""),
        memory("cluster-slot-migration-handoff-max-lag-bytes", MB, flags=f, doc=""),
        integer("cluster-slot-migration-write-pause-timeout", 10000, flags=f, doc=""),
        setting("cluster-slot-stats-enabled", SlotStats(("no", "yes", "cpu", "net", "mem")), ("no",), "", flags=f),
        setting("tls-cluster", NeverYes(NO_TLS), False, "", flags=f),
    )  # fmt: skip
    process = (
        setting("activedefrag", NeverYes(
            "Active defragmentation cannot be enabled: it requires a Redis server compiled with a modified Jemalloc like the"
            " one shipped by default with the Redis source distribution"), False, "", flags=f),
        memory("active-defrag-ignore-bytes", 100 * MB, lo=1, flags=f, doc=""),
        integer("active-defrag-threshold-lower", 10, hi=1000, flags=f, doc=""),
        integer("active-defrag-threshold-upper", 100, hi=1000, flags=f, doc=""),
        integer("active-defrag-cycle-min", 1, lo=1, hi=99, flags=f, doc=""),
        integer("active-defrag-cycle-max", 25, lo=1, hi=99, flags=f, doc=""),
        integer("active-defrag-max-scan-fields", 1000, lo=1, flags=f, doc=""),
        boolean("activerehashing", True, flags=f, doc=""),
        boolean("always-show-logo", False, flags=i, doc=""),
        boolean("crash-memcheck-enabled", True, flags=f, doc=""),
        boolean("use-exit-on-panic", False, flags="foreign hidden", doc=""),
        boolean("disable-thp", True, flags=i, doc=""),
        boolean("jemalloc-bg-thread", True, flags=f, doc=""),
        integer("io-threads", 1, lo=1, hi=128, flags=i, doc=""),
        boolean("key-memory-histograms", False, flags=f, doc=""),
        integer("lookahead", 16, lo=1, hi=INT_MAX, flags=f, doc=""),
        integer("max-new-connections-per-cycle", 10, lo=1, hi=1000, flags=f, doc=""),
        text("ignore-warnings", flags=f, doc=""),
        text("locale-collate", flags=f, doc=""),
        choice("enable-module-command", "no", NO_YES_LOCAL, flags=i, doc=""),
        boolean("set-proc-title", True, flags=i, doc=""),
        text("proc-title-template", "{title} {listen-addr} {server-mode}", check=title_template, flags=f, doc=""),
        integer("socket-mark-id", 0, hi=2**32 - 1, flags=i, doc=""),
        *(text(f"{what}-cpulist", flags=i, aliases=f"{what.replace('-', '_')}_cpulist", doc="")
          for what in ("server", "bio", "aof-rewrite", "bgsave")),
        integer("loading-process-events-interval-bytes", 512 << 10, lo=1024, hi=INT_MAX, flags="foreign hidden", doc=""),
    )  # fmt: skip
    return (*types, *lazyfree, *cluster, *process)


GROUPS: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    ("Network", NETWORK),
    ("Process", PROCESS),
    ("Clients", CLIENTS),
    ("Security", SECURITY),
    ("Streams", STREAMS),
    ("Memory", MEMORY),
    ("Events and slow requests", EVENTS),
    ("Persistence", PERSISTENCE),
    ("Replication", REPLICATION),
    ("TLS", TLS),
    ("Of other servers", _foreign()),
)
"""All rows under headings, in the order of the manual."""

SETTINGS: tuple[Setting, ...] = tuple(row for _, rows in GROUPS for row in rows)
"""All rows."""


def _index() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for row in SETTINGS:
        for name in (row.name, *row.aliases):
            if name in found:
                raise ValueError(f"setting {name} is declared twice")
            found[name] = row
    return found


by_name = _index()
"""Rows by their names and aliases."""

RETIRED = frozenset(
    {"list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands", "io-threads-do-reads"}
)
"""Names that mean nothing any more; with one value they are passed over in a file, as by Redis, and CONFIG knows none of them."""
