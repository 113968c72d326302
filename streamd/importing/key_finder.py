"""Which keys the commands of a stream of replication change, by the source's own table of commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import text_map
from streamd.importing.cluster_target import TEMPORARY_CODES
from streamd.importing.peers import ImportFailedError, Peer, PeerLostError

__all__ = ["KeyFinder"]

KEYS, SUBCOMMANDS = 8, 9
"""Where an entry of COMMAND has its keys, in all forms, and its subcommands, since Redis 7.0."""

Words = Sequence[bytes]


class KeyFinder:
    """Finds the keys of commands, usually without asking the source."""

    def __init__(self, source: Peer) -> None:
        self._source = source
        self._rules: dict[bytes, list[Rule] | None] = {}  # None: the source is asked
        try:
            for entry in source.call("COMMAND"):
                self._add(entry)
        except ServerError as error:
            raise ImportFailedError(f"{source} refuses COMMAND: {error}") from None

    def _add(self, entry: Sequence[Any]) -> None:
        name, flags, (first, last, step) = entry[0].lower(), entry[2], entry[3:6]  # those of modules are in capitals
        if b"movablekeys" in flags:
            self._rules[name] = rules_of(entry[KEYS]) if len(entry) > KEYS else None
        elif first:
            self._rules[name] = [Rule(first, last, step)]
        for each in entry[SUBCOMMANDS] if len(entry) > SUBCOMMANDS else ():
            self._add(each)

    def find(self, words: Words) -> list[bytes]:
        """The keys of a command, each once; none of one that has none. Raises PeerLostError, ImportFailedError."""
        name = words[0].lower()
        if name not in self._rules and len(words) > 1:
            name += b"|" + words[1].lower()
        rules = self._rules.get(name, [])
        if rules is not None:
            return list(dict.fromkeys(key for rule in rules for key in rule.keys_of(words)))
        try:
            return list(dict.fromkeys(self._source.call("COMMAND", "GETKEYS", *words)))
        except ServerError as error:
            if error.code == "ERR":  # "no key arguments", or what older releases say of a count of 0
                return []
            if error.code in TEMPORARY_CODES:
                raise PeerLostError(f"{self._source}: {error}") from None
            raise ImportFailedError(f"{self._source} refuses COMMAND GETKEYS: {error}") from None


class Rule:
    """Places of keys: from the first to the last; or, `last` being None, as many as the word at `first` says, behind it."""

    def __init__(self, first: int, last: int | None, step: int, behind: int = 0) -> None:
        self._first = first
        self._last = last
        self._step = step
        self._behind = behind

    def keys_of(self, words: Words) -> Sequence[bytes]:
        first, step = self._first, self._step
        if self._last is None:
            start = first + self._behind
            return words[start : start + int(words[first]) * step : step]
        last = self._last if self._last >= 0 else len(words) + self._last
        return words[first : last + 1 : step]


def rules_of(specs: Sequence[Any]) -> list[Rule] | None:
    """The rules that key specifications of a command are; None: one of them depends on more than a count."""
    found = []
    for spec in map(text_map, specs):
        begin, find = text_map(spec["begin_search"]), text_map(spec["find_keys"])
        if begin["type"] != b"index" or find["type"] not in (b"range", b"keynum"):
            return None
        at, how = text_map(begin["spec"])["index"], text_map(find["spec"])
        if find["type"] == b"keynum":
            found.append(Rule(at + how["keynumidx"], None, how["keystep"], how["firstkey"] - how["keynumidx"]))
        elif how["limit"]:
            return None
        else:
            last = how["lastkey"]
            found.append(Rule(at, last if last < 0 else at + last, how["keystep"]))
    return found
