"""What may ail the rules of streams and groups. Each check takes a `Case` and yields findings; none where the server has no rules."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.client.replies import as_text
from streamd.stream_state import GroupState, StreamState, age_s
from streamd.watching.case import Case
from streamd.watching.changes import change_of_stream
from streamd.watching.findings import Finding, counted, duration, number, word

__all__ = ["RULE_CHECKS", "dead_letters_for", "names", "without_limit"]

DAY_S = 86400.0
TRIES = 5
"""The limit of deliveries that is suggested."""


def names(stream: StreamState, group: GroupState) -> str:
    return f"{word(stream.key)} {word(group.name)}"


def dead_letters_for(stream: bytes) -> str:
    """A name for a dead-letter stream, in the slot of the stream."""
    return word(stream + b":dead" if b"{" in stream else b"{%s}:dead" % stream)


def without_limit(case: Case, stream: StreamState, group: GroupState) -> tuple[str, ...]:
    """The command that limits the deliveries of a group which has no limit; nothing if it has one, or if the server knows none."""
    rule = case.rules.groups.get((stream.key, group.name))
    if rule is None or "maxdeliveries" in rule or "parse-error" in rule:
        return ()
    target = "" if "deadletter" in rule else f" DEADLETTER {dead_letters_for(stream.key)}"
    return (f"STREAMD.GROUP SET {names(stream, group)} MAXDELIVERIES {TRIES}{target}",)


def pattern_of_rules(stream: bytes) -> bytes:
    """A pattern of the key with the rules of a stream."""
    return b"streamd:rules:{*}:" + stream.translate(bytes.maketrans(b"*[]\\", b"????"))


def rules_unread(case: Case) -> Iterator[Finding]:
    """Streams whose rules do not parse."""
    for key, rule in case.rules.streams.items():
        reason = rule.get("parse-error")
        if reason is not None:
            yield Finding(
                "critical",
                "rules-do-not-parse",
                f"stream {word(key)}",
                f"Its rules are not obeyed: {as_text(reason)}.",
                "Nothing is moved, held back or trimmed by them, nor by rules in the configuration; somebody wrote them by hand.",
                (
                    f"SCAN 0 COUNT 100000 TYPE string MATCH {word(pattern_of_rules(key))}",
                    "# delete the key that it returns, and set the rules with STREAMD.GROUP SET and STREAMD.STREAM SET",
                ),
            )


def rule_fails(case: Case) -> Iterator[Finding]:
    """Rules whose entries cannot be moved."""
    failing = [(f"stream {word(key)}", key, "feeds", rule) for key, rule in case.rules.streams.items()]
    failing += [
        (f"stream {word(key)}, group {word(group)}", key, "deadletter", rule)
        for (key, group), rule in case.rules.groups.items()
    ]
    for subject, key, option, rule in failing:
        error = rule.get("last-error")
        if error is None:
            continue
        target = rule.get(option, key)
        count = rule.get("not-moved")
        what = "Entries that are due" if count is None else counted(count, "entry", "entries")
        yield Finding(
            "critical",
            "rule-fails",
            subject,
            f"{what} could not be moved to {word(target)}: {as_text(error)}.",
            "They wait, and are delivered to nobody; the server tries again each second.",
            (f"TYPE {word(target)}", "INFO memory", "# mend the reason, or set another target"),
            count or 0,
            {"not_moved": count, "error": as_text(error), "target": as_text(target)},
        )


def keyed_without_limit(case: Case) -> Iterator[Finding]:
    """Groups that are ordered by key, and have no limit of deliveries."""
    for stream, group in case.look.groups():
        if "keyed" in case.rules.groups.get((stream.key, group.name), {}) and without_limit(case, stream, group):
            yield Finding(
                "warning",
                "keyed-without-limit",
                f"stream {word(stream.key)}, group {word(group.name)}",
                "The group is ordered by key (KEYED), and has no MAXDELIVERIES.",
                "An entry that no consumer can process keeps all later ones of its key waiting for ever.",
                without_limit(case, stream, group),
            )


def dead_letters_unread(case: Case) -> Iterator[Finding]:
    """Dead-letter streams that nobody reads."""
    sources: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for place, rule in case.rules.groups.items():
        if "deadletter" in rule:
            sources.setdefault(rule["deadletter"], []).append(place)
    for key, places in sources.items():
        dead = case.look.streams.get(key)
        if dead is None or not dead.length or dead.groups:
            continue
        last_s = age_s(dead.last_id, case.look.now_ms)
        change = change_of_stream(case.looks, key)
        is_growing = (last_s is not None and last_s < DAY_S) or (change is not None and change.added > 0)
        source, group = places[0]
        yield Finding(
            "warning" if is_growing else "notice",
            "dead-letters-unread",
            f"stream {word(key)}",
            f"{counted(dead.length, 'dead letter')}{'' if last_s is None else f', the newest {duration(last_s)} old'}; no group reads them.",
            "They are entries that were given up. Nobody is told, and nothing trims them.",
            (
                f"XREVRANGE {word(key)} + - COUNT 10",
                f"XGROUP CREATE {word(key)} inspectors 0",
                f"# and when the reason is mended: STREAMD.REDRIVE {word(source)} {word(group)} {word(key)}",
            ),
            dead.length,
            {"length": dead.length, "newest_s": last_s},
        )


def retention_held(case: Case) -> Iterator[Finding]:
    """Groups that hold back the trimming of a stream that keeps what they need."""
    for stream in case.look.streams.values():
        rule = case.rules.streams.get(stream.key, {})
        if "acked" not in rule or "atmost" in rule:
            continue
        needed = [
            (min(each for each in (group.next_id, group.oldest_pending) if each is not None), group)
            for group in stream.groups
            if group.next_id is not None or group.oldest_pending is not None
        ]
        if not needed:
            continue
        first, group = min(needed, key=lambda each: each[0])
        held_s = age_s(first, case.look.now_ms)
        if held_s is None or held_s < case.thresholds.held_s:
            continue
        limits = " ".join(
            f"{name.upper()} {rule[name]}" for name in ("length", "bytes", "age", "groups") if name in rule
        )
        bound_ms = max(rule.get("age", 0), round(held_s * 1000))
        yield Finding(
            "warning",
            "retention-held",
            f"stream {word(stream.key)}, group {word(group.name)}",
            f"The group needs an entry that is {duration(held_s)} old; {number(stream.length)} entries are kept.",
            "The stream is trimmed only up to there (RETAIN ACKED), and grows for as long as the group does not go on.",
            (
                f"XINFO CONSUMERS {names(stream, group)}",
                f"XPENDING {names(stream, group)}",
                "# start its consumers; if nobody needs it:",
                f"# XGROUP DESTROY {names(stream, group)}",
                f"# or give it a time: STREAMD.STREAM SET {word(stream.key)} RETAIN {limits}{' ' if limits else ''}ACKED ATMOST {bound_ms}",
            ),
            held_s,
            {"held_s": held_s, "length": stream.length},
        )


RULE_CHECKS = (rules_unread, rule_fails, keyed_without_limit, dead_letters_unread, retention_held)
