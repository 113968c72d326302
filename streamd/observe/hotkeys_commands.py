"""HOTKEYS: which keys take most time, and most bytes on the network.

The server's HotKeys counts; here is what is asked of it. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamd.core.args import integer as read_integer
from streamd.core.help import write_help
from streamd.core.spec import block, command, container, integer, multiple, optional, token
from streamd.errors import CommandError, NotIntegerError, OptionSyntaxError
from streamd.protocol.reply import ReplyWriter

__all__ = ["HotKeys", "HotKeysContext", "Session", "SessionOptions"]

INT32_MAX = 2**31 - 1
MOST_SECONDS = 1_000_000
MOST_SHOWN = 64
LAST_SLOT = 16383


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What HOTKEYS START asks for.

    has_cpu, has_net  METRICS: by time, by bytes
    shown             COUNT: how many keys are returned
    seconds           DURATION; 0: until it is stopped
    ratio             SAMPLE: one command of so many is counted for its keys
    """

    has_cpu: bool
    has_net: bool
    shown: int = 10
    seconds: int = 0
    ratio: int = 1

    @classmethod
    def parse(cls, words: list[bytes]) -> SessionOptions:
        """Read what stands behind START; CommandError. METRICS comes first, and takes any words among those counted."""
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
                raise CommandError("ERR SLOTS parameter cannot be used in non-cluster mode")
            else:
                raise OptionSyntaxError
        return cls(b"CPU" in metrics, b"NET" in metrics, **numbers)


def _number(text: bytes, least: int, most: int, otherwise: str) -> int:
    try:
        number = int(read_integer(text))
    except NotIntegerError:
        number = least - 1
    if not least <= number <= most:
        raise CommandError(f"ERR {otherwise}")
    return number


# --- What is asked of the server --------------------------------------------------------------------------------------


class Weights(Protocol):
    @property
    def total(self) -> int: ...
    def heaviest(self, count: int) -> Sequence[tuple[bytes, int]]: ...


class Session(Protocol):
    """The capability; see hotkeys.py."""

    @property
    def options(self) -> SessionOptions: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def is_active(self) -> bool: ...
    @property
    def time_us(self) -> int: ...
    @property
    def net_bytes(self) -> int: ...
    @property
    def time(self) -> Weights | None: ...
    @property
    def bytes(self) -> Weights | None: ...
    @property
    def duration_ms(self) -> int: ...
    @property
    def cpu_ms(self) -> tuple[int, int]: ...


class HotKeys(Protocol):
    @property
    def session(self) -> Session | None:
        """The one that runs, or the last one."""

    def begin(self, options: SessionOptions, now_ms: int) -> None: ...
    def end(self) -> None: ...
    def forget(self) -> None: ...


class Server(Protocol):
    @property
    def hotkeys(self) -> HotKeys: ...


class HotKeysContext(Protocol):
    """What these commands use of Context."""

    @property
    def server(self) -> Server: ...
    @property
    def reply(self) -> ReplyWriter: ...
    @property
    def now_ms(self) -> int: ...


# --- The commands -----------------------------------------------------------------------------------------------------

container("HOTKEYS", group="server", since="8.6.0", summary="Holds the commands that find the keys with most load.")


def _is_active(ctx: HotKeysContext) -> bool:
    session = ctx.server.hotkeys.session
    return session is not None and session.is_active


@command(
    "HOTKEYS START", arity=-2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Begins to count which keys take most time or most bytes.",
    args=(
        block("metrics", integer("count"), optional(token("CPU")), optional(token("NET")), token="METRICS"),
        optional(integer("k", "COUNT")),
        optional(integer("seconds", "DURATION")),
        optional(integer("ratio", "SAMPLE")),
        optional(block("slots", integer("count"), multiple(integer("slot")), token="SLOTS")),
    ),
)  # fmt: skip
def hotkeys_start(ctx: HotKeysContext, args: list[bytes]) -> None:
    if _is_active(ctx):
        raise CommandError("ERR hotkey tracking session already in progress")
    ctx.server.hotkeys.begin(SessionOptions.parse(args[2:]), ctx.now_ms)
    ctx.reply.simple("OK")


@command(
    "HOTKEYS STOP", arity=2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Counts no more; the results stay.",
)  # fmt: skip
def hotkeys_stop(ctx: HotKeysContext, args: list[bytes]) -> None:
    if not _is_active(ctx):
        ctx.reply.null()
        return
    ctx.server.hotkeys.end()
    ctx.reply.ok()


@command(
    "HOTKEYS RESET", arity=2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Forgets what has been counted.",
)  # fmt: skip
def hotkeys_reset(ctx: HotKeysContext, args: list[bytes]) -> None:
    if _is_active(ctx):
        raise CommandError("ERR hotkey tracking session in progress, stop tracking first")
    ctx.server.hotkeys.forget()
    ctx.reply.ok()


@command(
    "HOTKEYS GET", arity=2, group="server", flags="admin noscript", since="8.6.0",
    complexity="O(K log K) with K being the number of keys that are remembered",
    tips=("nondeterministic_output", "request_policy:special", "response_policy:special"),
    summary="Returns the keys that took most time, and most bytes.",
)  # fmt: skip
def hotkeys_get(ctx: HotKeysContext, args: list[bytes]) -> None:
    session = ctx.server.hotkeys.session
    if session is None:
        ctx.reply.null()
        return
    options = session.options
    found: dict[str, int | list[list[int]] | Weights] = {
        "tracking-active": int(session.is_active),
        "sample-ratio": options.ratio,
        "selected-slots": [[0, LAST_SLOT]],
        "all-commands-all-slots-us": session.time_us,
        "net-bytes-all-commands-all-slots": session.net_bytes,
        "collection-start-time-unix-ms": session.started_ms,
        "collection-duration-ms": session.duration_ms,
    }
    if session.time is not None:
        found["total-cpu-time-user-ms"], found["total-cpu-time-sys-ms"] = session.cpu_ms
    if session.bytes is not None:
        found["total-net-bytes"] = session.bytes.total
    if session.time is not None:
        found["by-cpu-time-us"] = session.time
    if session.bytes is not None:
        found["by-net-bytes"] = session.bytes
    reply = ctx.reply
    reply.array(1)
    reply.map(len(found))
    for name, value in found.items():
        reply.bulk_str(name)
        if isinstance(value, int | list):
            reply.value(value)
        else:
            _write_weights(reply, value.heaviest(options.shown))


def _write_weights(reply: ReplyWriter, found: Sequence[tuple[bytes, int]]) -> None:
    reply.array(2 * len(found))
    for key, weight in found:
        reply.bulk(key)
        reply.integer(weight)


@command(
    "HOTKEYS HELP", arity=2, group="server", flags="loading stale", since="8.6.1",
    summary="Lists the subcommands of HOTKEYS.",
)  # fmt: skip
def hotkeys_help(ctx: HotKeysContext, args: list[bytes]) -> None:
    write_help(
        ctx.reply,
        args,
        (
            "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
            "    Begin to count which keys take most time (CPU), most bytes (NET), or both.",
            "    COUNT: how many keys are returned, 10 when not given.",
            "    DURATION: stop after so many seconds.",
            "    SAMPLE: count one command of <ratio> for its keys.",
            "STOP",
            "    Count no more. The results stay.",
            "GET",
            "    What has been counted.",
            "RESET",
            "    Forget what has been counted.",
        ),
    )
