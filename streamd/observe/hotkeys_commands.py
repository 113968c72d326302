"""HOTKEYS: which keys take most time, and most bytes on the network.

The server's HotKeys counts; this module maps commands to it. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import block, command, container, integer, multiple, optional, token
from streamd.errors import CommandError
from streamd.observe.hotkeys import HotKeys, SessionOptions, Weights
from streamd.protocol.reply import ReplyWriter

__all__: list[str] = []

LAST_SLOT = 16383


# --- The commands -----------------------------------------------------------------------------------------------------

container(
    "HOTKEYS", group="server", since="8.6.0", summary="Groups the commands that find the keys with the most load."
)


def _is_active(ctx: ServerContext) -> bool:
    session = ctx.get(HotKeys).session
    return session is not None and session.is_active


@command(
    "HOTKEYS START", arity=-2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Starts counting the time and the bytes that keys use.",
    args=(
        block("metrics", integer("count"), optional(token("CPU")), optional(token("NET")), token="METRICS"),
        optional(integer("k", "COUNT")),
        optional(integer("seconds", "DURATION")),
        optional(integer("ratio", "SAMPLE")),
        optional(block("slots", integer("count"), multiple(integer("slot")), token="SLOTS")),
    ),
)  # fmt: skip
def hotkeys_start(ctx: ServerContext, args: list[bytes]) -> None:
    if _is_active(ctx):
        raise CommandError("ERR hotkey tracking session already in progress")
    ctx.get(HotKeys).begin(SessionOptions.parse(args[2:]), ctx.now_ms)
    ctx.reply.simple("OK")


@command(
    "HOTKEYS STOP", arity=2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Stops counting; the results remain available.",
)  # fmt: skip
def hotkeys_stop(ctx: ServerContext, args: list[bytes]) -> None:
    if not _is_active(ctx):
        ctx.reply.null()
        return
    ctx.get(HotKeys).end()
    ctx.reply.ok()


@command(
    "HOTKEYS RESET", arity=2, group="server", flags="admin noscript", since="8.6.0", tips=("request_policy:special",),
    summary="Clears the counts.",
)  # fmt: skip
def hotkeys_reset(ctx: ServerContext, args: list[bytes]) -> None:
    if _is_active(ctx):
        raise CommandError("ERR hotkey tracking session in progress, stop tracking first")
    ctx.get(HotKeys).forget()
    ctx.reply.ok()


@command(
    "HOTKEYS GET", arity=2, group="server", flags="admin noscript", since="8.6.0",
    complexity="O(K log K) with K being the number of keys that are remembered",
    tips=("nondeterministic_output", "request_policy:special", "response_policy:special"),
    summary="Returns the keys that used the most time and the most bytes.",
)  # fmt: skip
def hotkeys_get(ctx: ServerContext, args: list[bytes]) -> None:
    session = ctx.get(HotKeys).session
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


declare_help(
    "HOTKEYS", "server", "8.6.1",
    "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
    "    Start counting which keys take most time (CPU), most bytes (NET), or both.",
    "    COUNT: how many keys are returned, 10 when not given.",
    "    DURATION: stop after this number of seconds.",
    "    SAMPLE: count one in <ratio> commands for its keys.",
    "STOP",
    "    Stop counting. The results stay.",
    "GET",
    "    Show the counts.",
    "RESET",
    "    Clear the counts.",
)  # fmt: skip
