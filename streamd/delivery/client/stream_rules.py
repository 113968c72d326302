"""The rules of a stream, and how many entries it has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamd.delivery.client.rule_values import (
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Options,
    Seconds,
    Text,
    as_mapping,
    figures_in,
    is_ok,
    names_of,
    options_in,
    then,
    words_for,
)

__all__ = ["RETAIN_OPTIONS", "STREAM_OPTIONS", "Retain", "StreamRules", "stream"]

STREAM_OPTIONS: Options = {
    "feeds": ("FEEDS", *TEXT),
    "due": ("DUE", *TEXT),
    "unique": ("UNIQUE", *TEXT),
    "expires": ("EXPIRES", *TEXT),
    "retain": ("RETAIN", *FLAG),
}

RETAIN_OPTIONS: Options = {
    "length": ("LENGTH", *NUMBER),
    "max_bytes": ("BYTES", *NUMBER),
    "age": ("AGE", *TIME),
    "acked": ("ACKED", *FLAG),
    "groups": ("GROUPS", *NUMBER),
    "at_most": ("ATMOST", *TIME),
    "keep_references": ("KEEPREF", *FLAG),
    "delete_references": ("DELREF", *FLAG),
}


@dataclass(frozen=True, kw_only=True)
class Retain:
    """What a stream keeps. The limits are set together: a new `Retain` replaces all of the old one.

    length             entries
    max_bytes          of memory that the nodes of the stream use
    age                seconds
    acked              keep what a group has still to read or to acknowledge
    groups             trim nothing while there are fewer groups; default: 1
    at_most            seconds after which an entry is trimmed whatever groups need
    keep_references    trimmed entries stay pending; the default
    delete_references  they do not
    """

    length: int | None = None
    max_bytes: int | None = None
    age: Seconds | None = None
    acked: bool = False
    groups: int | None = None
    at_most: Seconds | None = None
    keep_references: bool = False
    delete_references: bool = False


def stream(client: Any, key: Text) -> StreamRules:
    """The rules of a stream.

    client  of redis-py: Redis or RedisCluster, for threads or for asyncio; not a pipeline
    key     of the stream; it need not exist
    """
    return StreamRules(client, key)


class StreamRules:
    """The rules of a stream; see docs/delivery.md for what they mean. Made by `stream`.

    With a client for asyncio every method returns an awaitable of what is described here. Errors and texts are as in `GroupRules`.
    """

    def __init__(self, client: Any, key: Text) -> None:
        self._client = client
        self._key = key

    def set(
        self, *,
        feeds: Text | None = None, due: Text | None = None, unique: Text | None = None, expires: Text | None = None,
        retain: Retain | None = None,
    ) -> Any:  # fmt: skip
        """Set these options, and leave the others as they are. One that is refused refuses all. Returns True.

        feeds    key of the stream that entries move to when they are due
        due      field with the time of that, in Unix milliseconds
        unique   field by whose value an entry replaces the one that waits
        expires  field with the time at which an entry is deleted, in Unix milliseconds
        retain   what is kept
        """
        words = words_for(STREAM_OPTIONS, {"feeds": feeds, "due": due, "unique": unique, "expires": expires})
        if retain is not None:
            words += ["RETAIN", *words_for(RETAIN_OPTIONS, asdict(retain))]
        return then(self._client.execute_command("STREAMD.STREAM", "SET", self._key, *words), is_ok)

    def unset(self, *options: str) -> Any:
        """Remove options, by their names in `set`, or without names all of them; the rules of groups stay. Returns True. Raises
        ValueError for an unknown name."""
        words = names_of(STREAM_OPTIONS, options)
        return then(self._client.execute_command("STREAMD.STREAM", "UNSET", self._key, *words), is_ok)

    def get(self) -> Any:
        """What is set, as a dict with the names and units of `set`, and what the server has done since it started: see docs/delivery.md
        for the names of these figures, in which `_` stands for `-`."""
        return then(self._client.execute_command("STREAMD.STREAM", "GET", self._key), _options)

    def count(self, start: Text = "-", end: Text = "+") -> Any:
        """How many entries there are between two IDs, as XRANGE has them."""
        return then(self._client.execute_command("STREAMD.COUNT", self._key, start, end), int)


def _options(reply: Any) -> dict[str, Any]:
    found = as_mapping(reply)
    kept = options_in(RETAIN_OPTIONS, found)
    options = options_in(STREAM_OPTIONS, found)
    if options.pop("retain", False):
        options["retain"] = Retain(**kept)
    return options | figures_in(found)
