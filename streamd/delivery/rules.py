"""Rules for groups, and where they lie: in one string for each stream that has any, under a key of the stream's own slot.

    streamd:rules:{6s}:jobs      GROUP workers MAXDELIVERIES 5 DEADLETTER jobs:dead
                                 GROUP audit MAXDELIVERIES 3 DEADLETTER "jobs:dead letters" ACKWAIT 60000

A line for each group, in words as in a configuration file. Rules are plain data, so they are in files, payloads and on replicas of
any kind, and move with their slot; a Redis keeps them and does not act. There is no copy of them in the server: who needs a rule
looks the string up, which costs nothing while a database has no such key (`Database.reserved`). So it does not matter how the
string came or went: SET, a file, a primary, RESTORE, RENAME, FLUSHALL.

The text between the braces has the slot of the stream (`tag_of`), because `{jobs}` would not for keys that contain `}`. Text that does not
parse is kept, shown and not obeyed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from streamd.core.args import integer as integer_of
from streamd.errors import CommandError, NotIntegerError, printable
from streamd.integers import INT64_MAX
from streamd.keyspace.database import RESERVED, Database
from streamd.keyspace.hash_slot import slot_of, tag_of
from streamd.protocol.inline import split_line

__all__ = [
    "GroupRule", "describe", "find_rule", "format_rules", "key_of_rules", "parse_changes", "parse_names", "parse_rules",
    "read_rules", "rules_with", "rules_without", "stream_of_rules",
]  # fmt: skip

MOST_DELIVERIES = 1_000_000
LONGEST_MS = 2**53


@dataclass(frozen=True)
class GroupRule:
    """What applies to the pending entries of a group.

    max_deliveries  deliveries after which an entry is not delivered again; 0: any number, only XNACK FATAL ends them
    dead_letter     the key of the stream that such an entry is moved to
    ack_wait_ms     for how long an entry of that many deliveries may be pending before it is moved without a claim; 0: for ever
    """

    max_deliveries: int = 0
    dead_letter: bytes = b""
    ack_wait_ms: int = 0

    @property
    def limit(self) -> int:
        """The delivery count from which on an entry is not delivered again. XNACK FATAL sets the greatest count."""
        return self.max_deliveries or INT64_MAX

    def check(self) -> GroupRule:
        """The rule; CommandError if its options contradict each other."""
        if not self.dead_letter:
            raise CommandError("ERR DEADLETTER is missing: the key of the stream that entries are moved to")
        if self.ack_wait_ms and not self.max_deliveries:
            raise CommandError("ERR ACKWAIT needs MAXDELIVERIES")
        return self


NO_RULE = GroupRule()


# --- Options ---------------------------------------------------------------------------------------------------------


def _number(option: str, most: int) -> Callable[[bytes], int]:
    def parse(text: bytes) -> int:
        try:
            number = integer_of(text)
        except NotIntegerError:
            number = 0
        if not 1 <= number <= most:
            raise CommandError(f"ERR {option} must be an integer between 1 and {most}")
        return number

    return parse


def _key(text: bytes) -> bytes:
    if not text:
        raise CommandError("ERR DEADLETTER must be the key of a stream, and not empty")
    return text


OPTIONS: Mapping[bytes, tuple[str, Callable[[bytes], Any]]] = {
    b"MAXDELIVERIES": ("max_deliveries", _number("MAXDELIVERIES", MOST_DELIVERIES)),
    b"DEADLETTER": ("dead_letter", _key),
    b"ACKWAIT": ("ack_wait_ms", _number("ACKWAIT", LONGEST_MS)),
}
"""The field of each option, and how its value is read. The order is that of the string."""


def parse_names(words: Sequence[bytes]) -> list[str]:
    """The fields of options that are named without a value."""
    return [_option(word)[0] for word in words]


def parse_changes(words: Sequence[bytes]) -> dict[str, Any]:
    """The fields that `option value ...` sets. CommandError if an option is unknown, given twice or has a bad value."""
    changes: dict[str, Any] = {}
    for at in range(0, len(words), 2):
        name, parse = _option(words[at])
        if at + 1 == len(words):
            raise CommandError(f"ERR {printable(words[at])} has no value")
        if name in changes:
            raise CommandError(f"ERR {printable(words[at])} is given twice")
        changes[name] = parse(words[at + 1])
    return changes


def _option(word: bytes) -> tuple[str, Callable[[bytes], Any]]:
    found = OPTIONS.get(word.upper())
    if found is None:
        raise CommandError(f"ERR unknown option '{printable(word)}'")
    return found


# --- As text ---------------------------------------------------------------------------------------------------------


def format_rules(rules: Mapping[bytes, GroupRule]) -> bytes:
    """The string that holds the rules of a stream; the same rules are the same text."""
    lines = []
    for group in sorted(rules):
        words = [b"GROUP", _quoted(group)]
        for option, (name, _) in OPTIONS.items():
            value = getattr(rules[group], name)
            if value != getattr(NO_RULE, name):
                words += [option, _quoted(value if isinstance(value, bytes) else b"%d" % value)]
        lines.append(b" ".join(words))
    return b"\n".join(lines)


def _quoted(word: bytes) -> bytes:
    """A word as split_line reads it: in quotes unless all of it is harmless."""
    if word and all(0x21 <= byte < 0x7F and byte not in b"\"'\\" for byte in word):
        return word
    return (
        b'"'
        + b"".join(b"%c" % byte if 0x20 <= byte < 0x7F and byte not in b'"\\' else b"\\x%02x" % byte for byte in word)
        + b'"'
    )


def parse_rules(text: bytes) -> dict[bytes, GroupRule]:
    """The rules in a string, by group; ValueError, with the reason, if any of it does not parse."""
    try:
        return dict(_parsed(text))
    except CommandError as error:
        raise ValueError(str(error).removeprefix("ERR ")) from None


@lru_cache(maxsize=1024)
def _parsed(text: bytes) -> Mapping[bytes, GroupRule]:
    rules: dict[bytes, GroupRule] = {}
    for line in text.split(b"\n"):
        words = split_line(line)
        if len(words) < 2 or words[0] != b"GROUP":
            raise ValueError("a line does not begin with GROUP and its name")
        if words[1] in rules:
            raise ValueError(f"the group '{printable(words[1])}' has two lines")
        rules[words[1]] = GroupRule(**parse_changes(words[2:])).check()
    return rules


# --- In a database -----------------------------------------------------------------------------------------------------


def key_of_rules(stream: bytes) -> bytes:
    """The key of the string with the rules of a stream."""
    return RESERVED + b"{" + _tag(slot_of(stream)) + b"}:" + stream


_tag = lru_cache(maxsize=16384)(tag_of)


def stream_of_rules(key: bytes) -> bytes | None:
    """The key of the stream that such a string is about, or None if the string has no stream's key."""
    stream = key.removeprefix(RESERVED).partition(b"}:")[2]
    return stream if key == key_of_rules(stream) else None


def read_rules(db: Database, stream: bytes) -> dict[bytes, GroupRule]:
    """The rules of a stream by group; empty without rules. Raises ValueError if the stored text does not parse."""
    if not db.reserved:
        return {}
    value = db.peek(key_of_rules(stream))
    if value is None:
        return {}
    if type(value) is not bytes:
        raise ValueError("no string")
    return parse_rules(bytes(memoryview(value)))  # a copy to keep: APPEND changes a string in place


def find_rule(db: Database, stream: bytes, group: bytes) -> GroupRule | None:
    """The rule of a group, or None if it has none, or none that parses."""
    try:
        return read_rules(db, stream).get(group)
    except ValueError:
        return None


def rules_with(db: Database, stream: bytes, group: bytes, changes: Mapping[str, Any]) -> dict[bytes, GroupRule]:
    """The rules of a stream after a change of fields of a group's rule. CommandError if it is refused."""
    rules = _rules_to_change(db, stream)
    rules[group] = rule = replace(rules.get(group, NO_RULE), **changes).check()
    if has_circle(db, stream, rules):
        raise CommandError(f"ERR DEADLETTER '{printable(rule.dead_letter)}' leads back to '{printable(stream)}'")
    return rules


def rules_without(db: Database, stream: bytes, group: bytes, names: Sequence[str]) -> dict[bytes, GroupRule]:
    """The rules of a stream without these fields of a group's rule, or without all of it. CommandError if that is refused."""
    rules = _rules_to_change(db, stream)
    rule = rules.pop(group, None)
    if rule is not None and names:
        rules[group] = replace(rule, **{name: getattr(NO_RULE, name) for name in names}).check()
    return rules


def _rules_to_change(db: Database, stream: bytes) -> dict[bytes, GroupRule]:
    try:
        return read_rules(db, stream)
    except ValueError as error:
        where = printable(key_of_rules(stream))
        raise CommandError(
            f"ERR the rules at '{where}' do not parse: {error}. Delete that key, or mend it, first"
        ) from None


def has_circle(db: Database, stream: bytes, rules: Mapping[bytes, GroupRule]) -> bool:
    """Whether dead letters of a stream with these rules could come back to it. O(streams that have rules)."""
    seen: set[bytes] = set()
    left = [rule.dead_letter for rule in rules.values()]
    while left:
        key = left.pop()
        if key == stream:
            return True
        if key not in seen:
            seen.add(key)
            try:
                left += [rule.dead_letter for rule in read_rules(db, key).values()]
            except ValueError:
                continue
    return False


def describe(rule: GroupRule) -> list[tuple[bytes, bytes | int]]:
    """The options of a rule that are set, as STREAMD.GROUP GET shows them."""
    shown: dict[str, bytes] = {name: option.lower() for option, (name, _) in OPTIONS.items()}
    return [
        (shown[each.name], getattr(rule, each.name))
        for each in fields(rule)
        if getattr(rule, each.name) != getattr(NO_RULE, each.name)
    ]
