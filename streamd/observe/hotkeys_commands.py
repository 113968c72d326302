"""HOTKEYS: which keys take most time, and most bytes on the network.

The server's HotKeys counts; this module maps commands to it. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import block, command, container, integer, multiple, optional, token
from streamd.errors import CommandError
from streamd.keyspace.hash_slot import SLOTS
from streamd.observe.hotkeys import HotKeys, Session, SessionOptions, Weights
from streamd.protocol.reply import ReplyWriter

__all__: list[str] = []


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
    hot_keys = ctx.get(HotKeys)
    own_slots = None if hot_keys.own_slots is None else hot_keys.own_slots()
    hot_keys.begin(SessionOptions.parse(args[2:], own_slots), ctx.now_ms)
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
        "selected-slots": _selected_slots(ctx.get(HotKeys), options),
        **_sums(session, "{}-us", (session.sampled_us, session.selected_us, session.time_us)),
        **_sums(session, "net-bytes-{}", (session.sampled_bytes, session.selected_bytes, session.net_bytes)),
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


def _selected_slots(hot_keys: HotKeys, options: SessionOptions) -> list[list[int]]:
    """Runs of slots: their first and last ones; only one number for a slot alone."""
    runs: list[list[int]] = []
    if not options.slots:
        runs = [[0, SLOTS - 1]] if hot_keys.own_slots is None else [list(run) for run in hot_keys.own_slots()]
    for slot in options.slots:
        if runs and runs[-1][1] == slot - 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return [run[: 1 + (run[0] != run[1])] for run in runs]


def _sums(session: Session, name: str, sums: tuple[int, int, int]) -> dict[str, int]:
    """The sums over commands that were sampled, that were selected, and over all, as far as these differ."""
    options = session.options
    shown = ("sampled-commands-selected-slots", "all-commands-selected-slots", "all-commands-all-slots")
    is_shown = (bool(options.slots) and options.ratio > 1, bool(options.slots), True)
    return {name.format(each): number for each, number, wanted in zip(shown, sums, is_shown, strict=True) if wanted}


def _write_weights(reply: ReplyWriter, found: Sequence[tuple[bytes, int]]) -> None:
    reply.array(2 * len(found))
    for key, weight in found:
        reply.bulk(key)
        reply.integer(weight)


declare_help(
    "HOTKEYS", "server", "8.6.1",
    "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>] [SLOTS <count> <slot> ...]",
    "    Start counting which keys take most time (CPU), most bytes (NET), or both.",
    "    COUNT: how many keys are returned, 10 when not given.",
    "    DURATION: stop after this number of seconds.",
    "    SAMPLE: count one in <ratio> commands for its keys.",
    "    SLOTS: count only keys of these slots of this node of a cluster.",
    "STOP",
    "    Stop counting. The results stay.",
    "GET",
    "    Show the counts.",
    "RESET",
    "    Clear the counts.",
)  # fmt: skip
