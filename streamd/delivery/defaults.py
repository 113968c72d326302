"""Rules in the configuration, which need no key: `stream-rule` and `group-rule`.

    stream-rule audit:*                 RETAIN AGE 604800000
    group-rule  jobs:*       *          MAXDELIVERIES 5 DEADLETTER {%s}:dead
    group-rule  jobs:urgent  *          MAXDELIVERIES 20 DEADLETTER jobs:urgent:dead
    group-rule  jobs:*       audit

The last line that matches is the rule of a stream, or of a group, that has no rule by command: lines are not combined, and one
without options means no rule. `%s` in a key stands for the name of the stream.

A line does not apply to a stream that its own entries, or dead letters, move to, nor to one that they would come back to by other lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from streamd.core.context import Context
from streamd.delivery.per_server import part_of
from streamd.delivery.rule_options import Key, Option, parse_changes, quoted, words_of
from streamd.delivery.rules import NO_RULE, NO_STREAM_RULE, GroupRule, StreamRule, read_all_rules
from streamd.engine.glob import Glob
from streamd.errors import CommandError
from streamd.keyspace.database import Database
from streamd.settings.declarations import declare, setting
from streamd.settings.kinds import Kind, Refused

__all__ = ["Defaults", "Line", "defaults_of", "group_rule_in_force", "stream_rule_in_force"]

CODEC = ("utf-8", "surrogateescape")
NAME = b"%s"
MOST_LOOKED_AT = 100
"""Streams on the way of an entry, when it is followed through the lines."""

R = TypeVar("R", GroupRule, StreamRule)


@dataclass(frozen=True)
class Line(Generic[R]):
    """One line: patterns of the stream, and maybe of the group, and the rule."""

    patterns: tuple[bytes, ...]
    rule: R


class Lines(Kind):
    """tuple of Line"""

    is_multi = True
    adds_up = True
    is_lines = True

    def __init__(self, rule: type[GroupRule | StreamRule], *patterns: str) -> None:
        self.rule = rule
        self.patterns = patterns

    def parse(self, args: Sequence[str], old: Any) -> tuple[Line[Any], ...]:
        """`old` is what the lines before have set; `""` removes all."""
        if list(args) in ([], [""]):
            return ()
        words = [arg.encode(*CODEC) for arg in args]
        count = len(self.patterns)
        if len(words) < count or not all(words[:count]):
            raise Refused(f"a line begins with {' and '.join(self.patterns)}")
        try:
            rule = self.rule(**parse_changes(self.rule, words[count:])).check()
        except CommandError as error:
            raise Refused(str(error).removeprefix("ERR ")) from None
        for name, key in keys_of(rule):
            if key == NAME:
                raise Refused(f"{name} must not be the stream itself")
        return (*old, Line(tuple(words[:count]), rule))

    def format(self, value: tuple[Line[Any], ...]) -> str:
        return "\n".join(self.directives(value))

    def directives(self, value: tuple[Line[Any], ...]) -> list[str]:
        return [
            b" ".join(filter(None, (*map(quoted, line.patterns), words_of(line.rule)))).decode(*CODEC) for line in value
        ]

    def domain(self) -> str:
        return f"{', '.join(self.patterns)}, then options and values; several lines"


declare(
    "Rules of delivery",
    setting(
        "stream-rule", Lines(StreamRule, "the pattern of a stream"), (), apply="refresh",
        doc="The rule of streams that have none by STREAMD.STREAM SET, with the options of that command. The last line that matches"
        " applies; without options: no rule. In FEEDS, %s stands for the name of the stream.",
    ),
    setting(
        "group-rule", Lines(GroupRule, "the pattern of a stream", "the pattern of a group"), (), apply="refresh",
        doc="The rule of groups that have none by STREAMD.GROUP SET, with the options of that command. The last line that matches"
        " applies; without options: no rule. In DEADLETTER, %s stands for the name of the stream.",
    ),
)  # fmt: skip


# --- Which line applies --------------------------------------------------------------------------------------------------


class Defaults:
    """The lines of a configuration."""

    def __init__(self, streams: Iterable[Line[StreamRule]] = (), groups: Iterable[Line[GroupRule]] = ()) -> None:
        self._streams = [([Glob(each) for each in line.patterns], line.rule) for line in streams]
        self._groups = [([Glob(each) for each in line.patterns], line.rule) for line in groups]
        self.stream_rule = lru_cache(10_000)(self._stream_rule)
        self.group_rule = lru_cache(10_000)(self._group_rule)
        self.concerns = lru_cache(10_000)(self._concerns)

    def __bool__(self) -> bool:
        return bool(self._streams or self._groups)

    def _concerns(self, stream: bytes) -> bool:
        """Whether a line matches a stream of that name, or groups of it."""
        return any(patterns[0].match(stream) for patterns, _ in (*self._streams, *self._groups))

    def _stream_rule(self, stream: bytes) -> StreamRule:
        """The rule of a stream of that name; NO_STREAM_RULE: none."""
        rule = last_match(self._streams, stream)
        if rule is None or comes_back(stream, rule.feeds, self._fed_by):
            return NO_STREAM_RULE
        return rule

    def _fed_by(self, stream: bytes) -> list[bytes]:
        """Where entries of a stream go."""
        rule = last_match(self._streams, stream)
        return [] if rule is None else [rule.feeds]

    def _group_rule(self, stream: bytes, group: bytes) -> GroupRule | None:
        """The rule of a group of a stream of that name; None: none."""
        rule = last_match(self._groups, stream, group)
        if rule is None or rule == NO_RULE or comes_back(stream, rule.dead_letter, self._dead_letters):
            return None
        return rule

    def _dead_letters(self, stream: bytes) -> list[bytes]:
        """Where dead letters of any group of a stream go."""
        return [
            key
            for patterns, rule in self._groups
            if patterns[0].match(stream) and not is_target(rule, stream)
            for _, key in keys_of(named(rule, stream))
        ]


def last_match(lines: list[tuple[list[Glob], R]], *names: bytes) -> R | None:
    """The rule of the last line that matches, with the name of the stream in its keys; None: no line matches."""
    for patterns, rule in reversed(lines):
        is_match = all(pattern.match(name) for pattern, name in zip(patterns, names, strict=True))
        if is_match and not is_target(rule, names[0]):
            return named(rule, names[0])
    return None


def keys_of(rule: GroupRule | StreamRule) -> list[tuple[str, bytes]]:
    """The options of a rule that are keys, by name."""
    found = []
    for each in fields(rule):
        declared: Option = each.metadata[Option]
        if isinstance(declared.kind, Key) and getattr(rule, each.name):
            found.append((declared.name, getattr(rule, each.name)))
    return found


def named(rule: R, stream: bytes) -> R:
    """The rule with the name of the stream in its keys."""
    keys: dict[str, Any] = {
        each.name: getattr(rule, each.name).replace(NAME, stream)
        for each in fields(rule)
        if isinstance(each.metadata[Option].kind, Key)
    }
    return replace(rule, **keys)


def is_target(rule: GroupRule | StreamRule, stream: bytes) -> bool:
    """Whether entries of another stream could move to this one by the rule."""
    for _, key in keys_of(rule):
        before, name, after = key.partition(NAME)
        if stream == key or (
            name and len(stream) > len(before) + len(after) and stream.startswith(before) and stream.endswith(after)
        ):
            return True
    return False


def comes_back(stream: bytes, first: bytes, following: Callable[[bytes], list[bytes]]) -> bool:
    """Whether what leaves a stream for `first` could come back to it."""
    seen: set[bytes] = set()
    left = [first]
    while left and len(seen) < MOST_LOOKED_AT:
        key = left.pop()
        if key == stream:
            return True
        if key and key not in seen:
            seen.add(key)
            left += following(key)
    return False


# --- Which rule applies --------------------------------------------------------------------------------------------------


def defaults_of(context: Context) -> Defaults:
    """Those of the server that commands run in."""
    return part_of(context, Defaults)


def group_rule_in_force(ctx: Context, db: Database, stream: bytes, group: bytes) -> GroupRule | None:
    """The rule of a group: by command, or by the configuration. None if it has none, or if the rules by command do not parse."""
    try:
        rule = read_all_rules(db, stream).groups.get(group)
    except ValueError:
        return None
    return rule or (defaults_of(ctx).group_rule(stream, group) if ctx.has_default_rules else None)


def stream_rule_in_force(ctx: Context, db: Database, stream: bytes) -> StreamRule:
    """The same for a stream; NO_STREAM_RULE for none."""
    try:
        rule = read_all_rules(db, stream).stream
    except ValueError:
        return NO_STREAM_RULE
    return defaults_of(ctx).stream_rule(stream) if rule == NO_STREAM_RULE and ctx.has_default_rules else rule
