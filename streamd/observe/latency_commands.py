"""LATENCY: what blocked the server, and how long its commands take.

The events are kept by the server's latency monitor, the histograms by its command table. Behaviour: Redis 8.6, as seen on a
running server; the wording of DOCTOR is streamd's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from streamd.core.dispatch import Dispatcher, ServerContext
from streamd.core.help import declare_help
from streamd.core.histogram import Histogram
from streamd.core.route import Route
from streamd.core.spec import command, container, multiple, optional, string
from streamd.errors import CommandError, printable
from streamd.observe.latency import Event, LatencyMonitor
from streamd.observe.sparkline import draw
from streamd.protocol.reply import ReplyWriter
from streamd.settings.config import Config

__all__: list[str] = []

GRAPH_COLUMNS = 80


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


# --- Events ---------------------------------------------------------------------------------------------------------

container("LATENCY", group="server", since="2.8.13", summary="Groups the commands about latency.")

FLAGS = "admin noscript loading stale"
TIPS = ("nondeterministic_output", "request_policy:all_nodes", "response_policy:special")


@command(
    "LATENCY LATEST", arity=2, group="server", flags=FLAGS, since="2.8.13", tips=TIPS,
    summary="Returns the latest sample of every event, and its longest.",
)  # fmt: skip
def latency_latest(ctx: ServerContext, args: list[bytes]) -> None:
    events = ctx.get(LatencyMonitor).events
    reply = ctx.reply
    reply.array(len(events))
    for name, event in events.items():
        at_s, ms = event.samples[-1]
        reply.array(4)
        reply.bulk_str(name)
        reply.integer(at_s)
        reply.integer(ms)
        reply.integer(event.most_ms)


@command(
    "LATENCY HISTORY", arity=3, group="server", flags=FLAGS, since="2.8.13", tips=TIPS, args=(string("event"),),
    summary="Returns the samples of an event, with their times and durations.",
)  # fmt: skip
def latency_history(ctx: ServerContext, args: list[bytes]) -> None:
    event = ctx.get(LatencyMonitor).events.get(_decoded(args[2]))
    samples = () if event is None else event.samples
    ctx.reply.array(len(samples))
    for at_s, ms in samples:
        ctx.reply.array(2)
        ctx.reply.integer(at_s)
        ctx.reply.integer(ms)


@command(
    "LATENCY RESET", arity=-2, group="server", flags=FLAGS, since="2.8.13",
    summary="Clears the samples of some events, or of all.", args=(optional(multiple(string("event"))),),
    tips=("request_policy:all_nodes", "response_policy:agg_sum"),
)  # fmt: skip
def latency_reset(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(ctx.get(LatencyMonitor).reset([_decoded(name) for name in args[2:]] or None))


def age(seconds: int) -> str:
    """An elapsed time, in its greatest whole unit: `12s`, `3m`, `5h`, `2d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@command(
    "LATENCY GRAPH", arity=3, group="server", flags=FLAGS, since="2.8.13", tips=TIPS, args=(string("event"),),
    summary="Draws the samples of an event.",
)  # fmt: skip
def latency_graph(ctx: ServerContext, args: list[bytes]) -> None:
    name = _decoded(args[2])
    event = ctx.get(LatencyMonitor).events.get(name)
    if event is None:
        raise CommandError(f"ERR No samples available for event '{printable(args[2])}'")
    values = [ms for _, ms in event.samples]
    now_s = int(time.time())
    text = (
        f"{name} - high {max(values)} ms, low {min(values)} ms (all time high {event.most_ms} ms)\n"
        f"{'-' * GRAPH_COLUMNS}\n"
        f"{draw(values, [age(now_s - at_s) for at_s, _ in event.samples], columns=GRAPH_COLUMNS)}"
    )
    ctx.reply.verbatim("txt", text.encode("utf-8", "surrogateescape"))


# --- DOCTOR ---------------------------------------------------------------------------------------------------------


def _describe(number: int, name: str, event: Event, now_s: int) -> str:
    values = [ms for _, ms in event.samples]
    mean = sum(values) // len(values)
    deviation = sum(abs(ms - mean) for ms in values) // len(values)
    period_s = max(1, now_s - event.samples[0][0]) / len(values)
    return (
        f"{number}. {name}: {len(values)} slow moment{'s' if len(values) > 1 else ''}, {mean} ms on average (mean deviation {deviation} ms), one every"
        f" {period_s:.2f} s. The longest ever took {event.most_ms} ms.\n"
    )


def _advice(ctx: ServerContext, names: set[str]) -> Iterator[str]:
    """Advice for these events."""
    monitor, config = ctx.get(LatencyMonitor), ctx.get(Config)
    if names & {"command", "fast-command"}:
        limit_us = monitor.threshold_ms * 1000
        if config.slowlog_log_slower_than < 0:
            yield f"The slow log is off. CONFIG SET slowlog-log-slower-than {limit_us} shows which requests take so long."
        elif config.slowlog_log_slower_than > limit_us:
            yield (
                "The slow log misses requests that are counted here. CONFIG SET slowlog-log-slower-than"
                f" {limit_us} includes all of them."
            )
        else:
            yield "SLOWLOG GET shows which requests take so long."
    if "command" in names:
        yield "Request less at a time: a COUNT with XRANGE, XREADGROUP or XAUTOCLAIM, SCAN instead of KEYS."
    if "fast-command" in names:
        yield (
            "Even simple commands take long: check whether this machine lacks processors, or swaps for lack of memory."
        )
    if "fork" in names:
        yield "The time of a fork is proportional to the memory in use: take snapshots and rewrite files less often."
    if any(name.startswith("aof-") for name in names):
        yield "The disk is slow, or shared. With `appendfsync everysec` writes do not wait for it."
    if "expire-cycle" in names:
        yield "Many keys expire at the same time: spread their expiry."
    if any(name.startswith("eviction-") for name in names):
        yield "Memory is at its limit, and keys are evicted for every write: raise maxmemory, or trim streams with MAXLEN."


def diagnose(ctx: ServerContext, now_s: int) -> str:
    """The text of LATENCY DOCTOR."""
    monitor = ctx.get(LatencyMonitor)
    if not monitor.threshold_ms and not monitor.events:
        return (
            "The latency monitor is off. Turn it on with CONFIG SET latency-monitor-threshold <milliseconds>, and ask"
            " again after a while.\n"
        )
    if not monitor.events:
        return f"Nothing has taken {monitor.threshold_ms} ms or longer since the server, or its monitor, was started.\n"
    lines = [_describe(number, *item, now_s) for number, item in enumerate(monitor.events.items(), 1)]
    advice = [f"- {text}\n" for text in _advice(ctx, set(monitor.events))]
    parts = [
        "The server was blocked.\n",
        "".join(lines),
        *(("What may help:\n", "".join(advice)) if advice else ()),
    ]
    return "\n".join(parts)


@command(
    "LATENCY DOCTOR", arity=2, group="server", flags=FLAGS, since="2.8.13", tips=TIPS,
    summary="Reports the causes of latency, and possible remedies.",
)  # fmt: skip
def latency_doctor(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", diagnose(ctx, int(time.time())).encode("utf-8", "surrogateescape"))


# --- HISTOGRAM ------------------------------------------------------------------------------------------------------


def _named(entries: Mapping[str, Route], names: Sequence[str]) -> Iterator[tuple[str, Histogram]]:
    """The histograms of commands; of a container, those of its subcommands too. Unknown names are ignored."""
    by_name: dict[str, list[tuple[str, Histogram]]] = {}
    for full_name, entry in entries.items():
        if entry.histogram is not None:
            for name in {full_name, full_name.partition("|")[0]}:
                by_name.setdefault(name, []).append((full_name, entry.histogram))
    for name in names:
        yield from by_name.get(name, ())


@command(
    "LATENCY HISTOGRAM", arity=-2, group="server", flags=FLAGS, since="7.0.0", tips=TIPS,
    complexity="O(N) with N being the number of commands",
    summary="Returns histograms of the times of commands.", args=(optional(multiple(string("command"))),),
)  # fmt: skip
def latency_histogram(ctx: ServerContext, args: list[bytes]) -> None:
    entries = ctx.get(Dispatcher).routes.by_full_name
    if len(args) > 2:
        found = list(_named(entries, [_decoded(name).lower() for name in args[2:]]))
    else:
        found = [(name, entry.histogram) for name, entry in entries.items() if entry.histogram is not None]
    ctx.reply.map(len(found))
    written = {name: _encoded(name, histogram, ctx.reply.resp) for name, histogram in dict(found).items()}
    for name, _ in found:
        ctx.reply.raw(written[name])


def _encoded(name: str, histogram: Histogram, resp: int) -> bytes:
    """An element of the reply of LATENCY HISTOGRAM: a name and its counts."""
    reply = ReplyWriter(resp)
    bounds = histogram.cumulative()
    reply.bulk_str(name)
    reply.map(2)
    reply.bulk(b"calls")
    reply.integer(histogram.count)
    reply.bulk(b"histogram_usec")
    reply.map(len(bounds))
    for bound, count in bounds:
        reply.integer(bound)
        reply.integer(count)
    return reply.take()


declare_help(
    "LATENCY", "server", "2.8.13",
    "DOCTOR",
    "    Report in words what took long, and what may help.",
    "GRAPH <event>",
    "    Draw the samples of <event>.",
    "HISTORY <event>",
    "    Show the samples of <event>: when, and how long.",
    "LATEST",
    "    Show the latest sample of every event.",
    "RESET [<event> ...]",
    "    Clear the samples of these events, or of all.",
    "HISTOGRAM [COMMAND ...]",
    "    Show how many calls of these commands, or of all, took how long.",
)  # fmt: skip
