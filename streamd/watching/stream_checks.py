"""What may ail streams, their groups and consumers. Each check takes a `Case` and yields findings."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.entry_id import format_id
from streamd.stream_state import GroupState, StreamState, age_s
from streamd.watching.case import Case
from streamd.watching.changes import change_of_group, change_of_stream
from streamd.watching.findings import Finding, counted, duration, number, per_second, size, word
from streamd.watching.rule_checks import names, without_limit

__all__ = ["STREAM_CHECKS"]

HOUR_S = 3600.0
DAY_S = 86400.0
PENDING_LOOKED_AT = 100
"""Pending entries of a group whose deliveries are looked at: those with the smallest IDs, where poison collects."""
SLACK = 200
"""Entries that an approximate bound may exceed, about twice a node: one that grows by more without a trim has no bound."""


def group_of(stream: StreamState, group: GroupState) -> str:
    return f"stream {word(stream.key)}, group {word(group.name)}"


def waiting(seconds: float | None) -> str:
    return "" if seconds is None else f", the oldest for {duration(seconds)}"


# --- Groups ----------------------------------------------------------------------------------------------------------


def lag_grows(case: Case) -> Iterator[Finding]:
    """Groups whose lag was greater at each look."""
    for stream, group in case.look.groups():
        change = change_of_group(case.looks, stream.key, group.name)
        arrived = change_of_stream(case.looks, stream.key)
        if change is None or not change.only_grows or group.lag is None or group.lag < case.thresholds.lag:
            continue
        lag_s = group.lag_s(case.look.now_ms)
        in_per_s = arrived.in_per_s if arrived else 0.0
        out_per_s = change.out_per_s or 0.0
        is_critical = not change.has_moved or (lag_s or 0.0) > HOUR_S
        yield Finding(
            "critical" if is_critical else "warning",
            "group-lag-grows",
            group_of(stream, group),
            f"{counted(group.lag, 'entry waits', 'entries wait')}{waiting(lag_s)}; {per_second(in_per_s)} arrive each second,"
            f" {per_second(out_per_s)} are read.",
            "Nobody reads: the delay grows steadily, and entries that are trimmed in the meantime are lost to the group."
            if not change.has_moved
            else "Consumers are slower than producers: the delay grows until entries are trimmed unread.",
            (
                f"XINFO CONSUMERS {names(stream, group)}",
                "# start more consumers of the group, or read more with each XREADGROUP: COUNT 100",
            ),
            group.lag,
            {"lag": group.lag, "lag_s": lag_s, "in_per_s": in_per_s, "out_per_s": out_per_s},
        )


def group_abandoned(case: Case) -> Iterator[Finding]:
    """Groups with entries to read that no consumer asks for."""
    for stream, group in case.look.groups():
        change = change_of_group(case.looks, stream.key, group.name)
        idle_s = min((each.idle_ms / 1000 for each in group.consumers), default=None)
        if (
            not group.lag
            or group.lag < case.thresholds.lag
            or (change is not None and (change.has_moved or change.only_grows))
            or (idle_s is not None and idle_s < case.thresholds.gone_s)
            or len(group.consumers) < group.consumer_count
        ):
            continue
        lag_s = group.lag_s(case.look.now_ms)
        last_read = "it has no consumer" if idle_s is None else f"its last consumer was seen {duration(idle_s)} ago"
        yield Finding(
            "warning",
            "group-abandoned",
            group_of(stream, group),
            f"{counted(group.lag, 'entry waits', 'entries wait')}{waiting(lag_s)}; {last_read}.",
            "Either its readers are down, or nobody needs the group: then it only prevents entries from being trimmed.",
            (f"XGROUP DESTROY {names(stream, group)}", "# if nobody needs it; else start its consumers"),
            group.lag,
            {"lag": group.lag, "lag_s": lag_s, "idle_s": idle_s},
        )


def consumer_gone(case: Case) -> Iterator[Finding]:
    """Consumers that hold entries and have not been seen for long."""
    gone_ms = case.thresholds.gone_s * 1000
    for stream, group in case.look.groups():
        gone = [each for each in group.consumers if each.pending and each.idle_ms >= gone_ms]
        alive = [each for each in group.consumers if each.idle_ms < gone_ms]
        for consumer in gone:
            heir = max(alive, key=lambda each: -each.idle_ms).name if alive else b"another-consumer"
            idle_s = consumer.idle_ms / 1000
            yield Finding(
                "warning" if alive else "critical",
                "consumer-gone",
                f"{group_of(stream, group)}, consumer {word(consumer.name)}",
                f"{counted(consumer.pending, 'pending entry', 'pending entries')}; last seen {duration(idle_s)} ago.",
                "Entries that were delivered to it and not acknowledged stay with it until another consumer claims them"
                + ("." if alive else ", and no other consumer of the group is alive."),
                (
                    f"XAUTOCLAIM {names(stream, group)} {word(heir)} {gone_ms:.0f} 0-0 COUNT 100",
                    "# repeat it from the ID that it returns until that is 0-0; then, only if this returns nothing:",
                    f"XPENDING {names(stream, group)} - + 1 {word(consumer.name)}",
                    f"# XGROUP DELCONSUMER {names(stream, group)} {word(consumer.name)}   drops what it still holds",
                ),
                consumer.pending,
                {"pending": consumer.pending, "idle_s": idle_s},
            )


def poison_entries(case: Case) -> Iterator[Finding]:
    """Entries that were delivered again and again."""
    for (stream, group), pending in case.pending(PENDING_LOOKED_AT):
        bad = [each for each in pending if each.deliveries > case.thresholds.deliveries]
        if not bad:
            continue
        worst = max(bad, key=lambda each: each.deliveries)
        at_least = "at least " if group.pending > len(pending) else ""
        count = counted(len(bad), "entry", "entries")
        limit = without_limit(case, stream, group)
        yield Finding(
            "warning",
            "poison-entry",
            group_of(stream, group),
            f"{at_least}{count} delivered more than {case.thresholds.deliveries} times; {worst.entry_id}"
            f" {number(worst.deliveries)} times, last to {word(worst.consumer)}.",
            "An entry that no consumer can process is delivered again and again, and may crash each consumer that receives it."
            + (" The group has no limit of deliveries." if limit else ""),
            (
                *limit,
                f"XRANGE {word(stream.key)} {worst.entry_id} {worst.entry_id}",
                f"XACK {names(stream, group)} {worst.entry_id}",
                "# after copying it elsewhere, if it must not be lost",
            ),
            worst.deliveries,
            {"has_no_limit": bool(limit), "entries": len(bad), "id": worst.entry_id, "deliveries": worst.deliveries},
        )


# --- Streams ---------------------------------------------------------------------------------------------------------


def unbounded(case: Case) -> Iterator[Finding]:
    """Streams that grow without ever being trimmed, and when they will have filled the memory."""
    limit, used = case.memory_limit, case.look.number("used_memory")
    for stream in case.look.streams.values():
        change = change_of_stream(case.looks, stream.key)
        in_per_s = growth_per_s(case, stream)
        is_seen = change is not None and change.added > 0
        is_watched = change is not None and change.added > SLACK and change.removed == 0
        if (
            stream.ttl_ms is not None
            or stream.length < case.thresholds.length
            or not in_per_s
            or (change is not None and change.removed)
            or not (stream.is_untouched or is_watched)
        ):
            continue
        rate = in_per_s * (stream.bytes or 0) / stream.length
        left_s = max(0.0, limit - used) / rate if rate and limit else None
        is_near = left_s is not None and left_s < case.thresholds.memory_days * DAY_S
        severity = "notice" if not is_near or left_s is None else "critical" if left_s < DAY_S else "warning"
        end = "" if left_s is None else f"; at this rate memory ({size(limit)}) is used up in {duration(left_s)}"
        yield Finding(
            severity,
            "stream-unbounded",
            f"stream {word(stream.key)}",
            f"{number(stream.length)} entries, {size(stream.bytes or 0)}, none ever trimmed; {per_second(in_per_s)} more each"
            f" second{' on average since its first entry' if not is_seen else ''}{end}."
            if stream.is_untouched
            else f"{number(stream.length)} entries, {size(stream.bytes or 0)}, not trimmed while {per_second(in_per_s)} arrive"
            f" each second{end}.",
            "Nothing removes old entries: in the end writes fail, keys are evicted, or the system kills the server.",
            (
                f"XTRIM {word(stream.key)} MAXLEN ~ {stream.length}",
                f"# and permanently, in the producer: XADD {word(stream.key)} MAXLEN ~ {stream.length} * ...",
            ),
            rate,
            {"length": stream.length, "bytes": stream.bytes, "in_per_s": in_per_s, "memory_ends_in_s": left_s},
        )


def growth_per_s(case: Case, stream: StreamState) -> float:
    """Entries added each second, while watched or, when none came then, since its first entry; 0: it does not grow."""
    change = change_of_stream(case.looks, stream.key)
    if change is not None and change.added:
        return change.in_per_s
    first_s, last_s = age_s(stream.first_id, case.look.now_ms), age_s(stream.last_id, case.look.now_ms)
    if first_s is None or last_s is None or last_s > DAY_S or first_s <= last_s:
        return 0.0
    return stream.length / first_s


def done_and_kept(case: Case) -> Iterator[Finding]:
    """Entries that all groups have acknowledged, and that nobody trims."""
    for stream in case.look.streams.values():
        change = change_of_stream(case.looks, stream.key)
        done, before = stream.done_entries, stream.done_before
        if before is None or done is None or done < case.thresholds.done or (change is not None and change.removed):
            continue
        share = done / stream.length
        used = (stream.bytes or 0) * share
        yield Finding(
            "warning" if share > 0.5 else "notice",
            "done-and-kept",
            f"stream {word(stream.key)}",
            f"{number(done)} of {number(stream.length)} entries ({100 * share:.0f} %, about {size(used)}) are acknowledged by"
            f" {'its group' if len(stream.groups) == 1 else f'all {len(stream.groups)} groups'}.",
            "They use memory, and time at each start and snapshot; no group will read them again.",
            (
                f"XTRIM {word(stream.key)} MINID ~ {format_id(*before).decode()}",
                "# unless they are kept on purpose, as a history",
            ),
            used,
            {"done": done, "length": stream.length, "bytes": round(used)},
        )


STREAM_CHECKS = (lag_grows, group_abandoned, consumer_gone, poison_entries, unbounded, done_and_kept)
