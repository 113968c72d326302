"""Rules, and where they lie: in one string for each stream that has any, under a key of the stream's own slot.

    streamd:rules:{6s}:jobs      STREAM RETAIN LENGTH 100000 ACKED
                                 GROUP workers MAXDELIVERIES 5 DEADLETTER jobs:dead
                                 GROUP audit MAXDELIVERIES 3 DEADLETTER "jobs:dead letters" ACKWAIT 60000

A line for the stream, if it has a rule of its own, and one for each group, in words as in a configuration file. Rules are plain data, so
they are in files, payloads and on replicas of any kind, and move with their slot; a Redis keeps them and does not act. There is no copy of
them in the server: who needs a rule looks the string up, which costs nothing while a database has no such key (`Database.reserved`). So it
does not matter how the string came or went: SET, a file, a primary, RESTORE, RENAME, FLUSHALL. (What follows streams without being asked,
values/streams/rule_timer.pyx, compares the string with the one that it knows.)

The text between the braces has the slot of the stream (`tag_of`), because `{jobs}` would not for keys that contain `}`. Text that does not
parse is kept, shown and not obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from streamd.delivery.rule_options import (
    DISTANT_MS,
    Block,
    Decimal,
    Flag,
    Integer,
    Key,
    Word,
    check_needs,
    option,
    parse_changes,
    quoted,
    split_words,
    words_of,
)  # fmt: skip
from streamd.errors import CommandError, printable
from streamd.keyspace.database import RESERVED, Database
from streamd.keyspace.hash_slot import slot_of, tag_of

__all__ = [
    "NO_STREAM_RULE", "GroupRule", "Rules", "StreamRule", "feeds_itself", "format_rules", "key_of_rules", "parse_rules", "read_all_rules",
    "read_rules", "rules_with", "rules_without", "stream_of_rules", "stream_rules_with",
]  # fmt: skip


@dataclass(frozen=True)
class GroupRule:
    """What applies to the pending entries of a group."""

    dead_letter: bytes = option(
        "DEADLETTER",
        b"",
        Key("key", spec=1),
        "the stream that entries are moved to; created when needed; in a cluster it must have the slot of the stream",
    )
    max_deliveries: int = option(
        "MAXDELIVERIES",
        0,
        Integer("n", 1, 1_000_000),
        "an entry is delivered at most `n` times; without it, only XNACK FATAL ends an entry",
        needs="DEADLETTER",
    )
    ack_wait_ms: int = option(
        "ACKWAIT",
        0,
        Integer("ms", 1, DISTANT_MS),
        "an entry that has been delivered `n` times is also moved when it has been idle for longer than this, even if nobody claims it",
        needs="MAXDELIVERIES",
    )
    back_off_ms: int = option(
        "BACKOFF",
        0,
        Integer("ms", 1, DISTANT_MS),
        "an entry cannot be claimed for that time after its first delivery, or after the XNACK FAIL of it",
    )
    factor: int = option(
        "FACTOR",
        1000,
        Decimal("f", 1, 100),
        "the time grows by this factor with each delivery, up to three decimal places; default: 1",
        needs="BACKOFF",
    )
    max_back_off_ms: int = option(
        "MAX",
        DISTANT_MS,
        Integer("ms", 1, DISTANT_MS),
        "the time grows no further; default: no limit",
        needs="BACKOFF",
    )
    jitter: int = option(
        "JITTER",
        0,
        Integer("percent", 1, 100),
        "the time varies by up to that part of it, by the ID of the entry, so that entries that failed together are not retried together",
        needs="BACKOFF",
    )
    isolate: int = option(
        "ISOLATE",
        0,
        Integer("k", 1, 1_000_000),
        "an entry that has been delivered `k` times is delivered alone: no other entry is in the reply",
    )
    max_pending: int = option(
        "MAXPENDING",
        0,
        Integer("n", 1, 1_000_000_000),
        "consumers get no new entries while `n` are in their hands; with 1, entries are processed one after another",
    )
    consumer_pending: int = option(
        "CONSUMERPENDING",
        0,
        Integer("n", 1, 1_000_000_000),
        "a consumer gets no new entries while it has `n` in its hands",
    )
    consumer_ttl_ms: int = option(
        "CONSUMERTTL",
        0,
        Integer("ms", 1000, DISTANT_MS),
        "a consumer that was not seen for longer gives back what it has, and is removed; at least 1000",
    )

    keyed: bytes = option(
        "KEYED",
        b"",
        Word("field"),
        "entries with the same value of this field are delivered one after another: each when those before it are done with",
    )
    held: int = option(
        "HELD",
        10_000,
        Integer("n", 1, 1_000_000),
        "at most `n` entries are passed over because of their key, then no new entries are delivered; default: 10000",
        needs="KEYED",
    )

    def check(self) -> GroupRule:
        """The rule; CommandError if its options contradict each other."""
        check_needs(self)
        if self.max_back_off_ms < self.back_off_ms:
            raise CommandError("ERR MAX must not be less than BACKOFF")
        return self


@dataclass(frozen=True)
class StreamRule:
    """What applies to all entries of a stream."""

    feeds: bytes = option(
        "FEEDS",
        b"",
        Key("key", spec=1),
        "an entry moves to this stream when it is due; created when needed; in a cluster it must have the slot of the stream",
        needs="DUE",
    )
    due: bytes = option(
        "DUE",
        b"",
        Word("field"),
        "the field with the time, in Unix milliseconds, which is left out of what is moved; an entry without it is due at once",
        needs="FEEDS",
    )
    unique: bytes = option(
        "UNIQUE",
        b"",
        Word("field"),
        "an entry replaces the waiting one that has the same value of this field",
        needs="FEEDS",
    )
    expires: bytes = option(
        "EXPIRES",
        b"",
        Word("field"),
        "an entry is deleted at the time in this field, in Unix milliseconds, and is not pending in any group then",
    )
    retain: bool = option("RETAIN", False, Block(), "begins the limits below; entries beyond them are trimmed")
    length: int = option(
        "LENGTH", 0, Integer("n", 1, 2**63 - 1), "entries beyond the newest `n` are trimmed", block="RETAIN"
    )
    max_bytes: int = option(
        "BYTES",
        0,
        Integer("n", 1, 2**63 - 1),
        "the oldest nodes are trimmed while the nodes of the stream use more than `n` bytes of memory; the newest node stays",
        block="RETAIN",
    )
    age_ms: int = option(
        "AGE",
        0,
        Integer("ms", 1, DISTANT_MS),
        "entries are trimmed that are older than this, by the milliseconds of their ID",
        block="RETAIN",
    )
    acked: bool = option(
        "ACKED",
        False,
        Flag(),
        "no entry is trimmed that a group has still to read or to acknowledge, nor any after it;"
        " without LENGTH, BYTES and AGE, all before it are",
        block="RETAIN",
    )
    groups: int = option(
        "GROUPS",
        1,
        Integer("n", 1, 1_000_000),
        "nothing is trimmed while the stream has fewer groups than this; default: 1",
        needs="ACKED",
        block="RETAIN",
    )
    at_most_ms: int = option(
        "ATMOST",
        0,
        Integer("ms", 1, DISTANT_MS),
        "entries older than this are trimmed in any case: a group that nobody reads does not hold the stream for ever",
        needs="ACKED",
        block="RETAIN",
    )
    keep_references: bool = option(
        "KEEPREF",
        False,
        Flag(),
        "trimmed entries stay pending in groups that have not acknowledged them; the default",
        block="RETAIN",
    )
    delete_references: bool = option(
        "DELREF",
        False,
        Flag(),
        "trimmed entries are also removed from the pending entries of all groups",
        block="RETAIN",
    )

    def check(self) -> StreamRule:
        """The rule; CommandError if its options contradict each other."""
        check_needs(self)
        if self.unique and self.unique == self.due:
            raise CommandError("ERR UNIQUE must not be the field of DUE")
        if self.retain and not (self.length or self.max_bytes or self.age_ms or self.acked):
            raise CommandError("ERR RETAIN needs LENGTH, BYTES, AGE or ACKED")
        if self.keep_references and self.delete_references:
            raise CommandError("ERR KEEPREF and DELREF exclude each other")
        if self.at_most_ms and self.at_most_ms < self.age_ms:
            raise CommandError("ERR ATMOST must not be less than AGE")
        return self


NO_RULE = GroupRule()
NO_STREAM_RULE = StreamRule()


@dataclass(frozen=True)
class Rules:
    """All rules of a stream: its own, and those of its groups by name."""

    stream: StreamRule = NO_STREAM_RULE
    groups: Mapping[bytes, GroupRule] = field(default_factory=dict)


NO_RULES = Rules()


# --- As text ---------------------------------------------------------------------------------------------------------


def format_rules(rules: Rules) -> bytes:
    """The string that holds the rules of a stream; the same rules are the same text, none are an empty one."""
    lines = [] if rules.stream == NO_STREAM_RULE else [b"STREAM %s" % words_of(rules.stream)]
    lines += [b"GROUP %s %s" % (quoted(group), words_of(rules.groups[group])) for group in sorted(rules.groups)]
    return b"\n".join(lines)


def parse_rules(text: bytes) -> Rules:
    """The rules in a string; ValueError, with the reason, if any of it does not parse."""
    try:
        return _parsed(text)
    except CommandError as error:
        raise ValueError(str(error).removeprefix("ERR ")) from None


@lru_cache(maxsize=1024)
def _parsed(text: bytes) -> Rules:
    stream = NO_STREAM_RULE
    groups: dict[bytes, GroupRule] = {}
    for line in text.split(b"\n"):
        words = split_words(line)
        if len(words) > 1 and words[0] == b"STREAM":
            if stream != NO_STREAM_RULE:
                raise ValueError("the stream has two lines")
            stream = StreamRule(**parse_changes(StreamRule, words[1:])).check()
        elif len(words) > 1 and words[0] == b"GROUP":
            if words[1] in groups:
                raise ValueError(f"the group '{printable(words[1])}' has two lines")
            groups[words[1]] = GroupRule(**parse_changes(GroupRule, words[2:])).check()
        else:
            raise ValueError("a line begins neither with STREAM and an option nor with GROUP and its name")
    return Rules(stream, groups)


# --- In a database -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16384)
def key_of_rules(stream: bytes) -> bytes:
    """The key of the string with the rules of a stream."""
    return RESERVED + b"{" + _tag(slot_of(stream)) + b"}:" + stream


_tag = lru_cache(maxsize=16384)(tag_of)


def stream_of_rules(key: bytes) -> bytes | None:
    """The key of the stream that such a string is about, or None if the string has no stream's key."""
    stream = key.removeprefix(RESERVED).partition(b"}:")[2]
    return stream if key == key_of_rules(stream) else None


def read_all_rules(db: Database, stream: bytes) -> Rules:
    """The rules of a stream. Raises ValueError if the stored text does not parse."""
    if not db.reserved:
        return NO_RULES
    value = db.peek(key_of_rules(stream))
    if value is None:
        return NO_RULES
    if type(value) is not bytes:
        raise ValueError("no string")
    return parse_rules(bytes(memoryview(value)))  # a copy to keep: APPEND changes a string in place


def read_rules(db: Database, stream: bytes) -> Mapping[bytes, GroupRule]:
    """The rules of the groups of a stream. Raises ValueError if the stored text does not parse."""
    return read_all_rules(db, stream).groups


def rules_with(db: Database, stream: bytes, group: bytes, changes: Mapping[str, Any]) -> Rules:
    """The rules of a stream after a change of fields of a group's rule. CommandError if it is refused."""
    rules = _rules_to_change(db, stream)
    groups = dict(rules.groups)
    rule = replace(groups.pop(group, NO_RULE), **changes).check()
    if rule == NO_RULE:
        return replace(rules, groups=groups)
    groups[group] = rule
    if has_circle(db, stream, groups):
        raise CommandError(f"ERR DEADLETTER '{printable(rule.dead_letter)}' leads back to '{printable(stream)}'")
    return replace(rules, groups=groups)


def rules_without(db: Database, stream: bytes, group: bytes) -> Rules:
    """The rules of a stream but for those of a group. CommandError if they do not parse."""
    rules = _rules_to_change(db, stream)
    return replace(rules, groups={name: rule for name, rule in rules.groups.items() if name != group})


def stream_rules_with(db: Database, stream: bytes, changes: Mapping[str, Any] | None) -> Rules:
    """The rules of a stream after a change of fields of its own rule, or, with None, without that. CommandError if it is refused."""
    rules = _rules_to_change(db, stream)
    rule = NO_STREAM_RULE if changes is None else replace(rules.stream, **changes).check()
    if feeds_itself(db, stream, rule):
        raise CommandError(f"ERR FEEDS '{printable(rule.feeds)}' leads back to '{printable(stream)}'")
    return replace(rules, stream=rule)


def feeds_itself(db: Database, stream: bytes, rule: StreamRule) -> bool:
    """Whether entries that leave a stream with this rule could come back to it. O(streams on the way)."""
    seen: set[bytes] = set()
    key = rule.feeds
    while key and key not in seen:
        if key == stream:
            return True
        seen.add(key)
        try:
            key = read_all_rules(db, key).stream.feeds
        except ValueError:
            break
    return False


def _rules_to_change(db: Database, stream: bytes) -> Rules:
    try:
        return read_all_rules(db, stream)
    except ValueError as error:
        where = printable(key_of_rules(stream))
        raise CommandError(
            f"ERR the rules at '{where}' do not parse: {error}. Delete that key, or mend it, first"
        ) from None


def has_circle(db: Database, stream: bytes, rules: Mapping[bytes, GroupRule]) -> bool:
    """Whether dead letters of a stream with these rules could come back to it. O(streams that have rules)."""
    seen: set[bytes] = set()
    left = [rule.dead_letter for rule in rules.values() if rule.dead_letter]
    while left:
        key = left.pop()
        if key == stream:
            return True
        if key not in seen:
            seen.add(key)
            try:
                left += [rule.dead_letter for rule in read_rules(db, key).values() if rule.dead_letter]
            except ValueError:
                continue
    return False
