"""The rules of a consumer group, how much it has to do, and its dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamd.delivery.client.rule_values import (
    DECIMAL,
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

__all__ = ["GROUP_OPTIONS", "GroupRules", "group"]

GROUP_OPTIONS: Options = {
    "dead_letter": ("DEADLETTER", *TEXT),
    "max_deliveries": ("MAXDELIVERIES", *NUMBER),
    "ack_wait": ("ACKWAIT", *TIME),
    "backoff": ("BACKOFF", *TIME),
    "factor": ("FACTOR", *DECIMAL),
    "max_backoff": ("MAX", *TIME),
    "jitter": ("JITTER", *NUMBER),
    "isolate": ("ISOLATE", *NUMBER),
    "max_pending": ("MAXPENDING", *NUMBER),
    "consumer_pending": ("CONSUMERPENDING", *NUMBER),
    "consumer_ttl": ("CONSUMERTTL", *TIME),
    "keyed": ("KEYED", *TEXT),
    "held": ("HELD", *NUMBER),
}


def group(client: Any, stream: Text, name: Text) -> GroupRules:
    """The rules of a group.

    client  of redis-py: Redis or RedisCluster, for threads or for asyncio; not a pipeline
    stream  the key of the stream; it need not exist
    name    of the group
    """
    return GroupRules(client, stream, name)


class GroupRules:
    """The rules of a group; see docs/delivery.md for what they mean. Made by `group`.

    With a client for asyncio every method returns an awaitable of what is described here. Errors are those of redis-py: ResponseError,
    with the reason, for what the server refuses, and for a server that is no streamd. Texts in results are `str` if the client decodes
    replies, else `bytes`.
    """

    def __init__(self, client: Any, stream: Text, name: Text) -> None:
        self._client = client
        self._stream = stream
        self._name = name

    def set(
        self, *,
        dead_letter: Text | None = None, max_deliveries: int | None = None, ack_wait: Seconds | None = None,
        backoff: Seconds | None = None, factor: float | None = None, max_backoff: Seconds | None = None,
        jitter: int | None = None, isolate: int | None = None, max_pending: int | None = None,
        consumer_pending: int | None = None, consumer_ttl: Seconds | None = None,
        keyed: Text | None = None, held: int | None = None,
    ) -> Any:  # fmt: skip
        """Set these options, and leave the others as they are. One that is refused refuses all. Returns True.

        dead_letter       key of the stream that entries are moved to
        max_deliveries    an entry is delivered at most this often
        ack_wait          seconds after which one that was delivered that often is moved without a claim
        backoff           seconds until an entry that has failed can be claimed
        factor            by which these grow with each delivery
        max_backoff       seconds beyond which they do not grow
        jitter            percent by which they vary
        isolate           an entry that was delivered this often is delivered alone
        max_pending       entries in the hands of all consumers
        consumer_pending  entries in the hands of one consumer
        consumer_ttl      seconds after which an idle consumer is removed
        keyed             field whose entries are delivered in order, one at a time for each value
        held              entries that are passed over for that
        """
        values = {name: value for name, value in locals().items() if name in GROUP_OPTIONS}
        words = words_for(GROUP_OPTIONS, values)
        return then(self._client.execute_command("STREAMD.GROUP", "SET", self._stream, self._name, *words), is_ok)

    def unset(self, *options: str) -> Any:
        """Remove options, by their names in `set`, or without names all of them. Returns True. Raises ValueError for an unknown name."""
        words = names_of(GROUP_OPTIONS, options)
        return then(self._client.execute_command("STREAMD.GROUP", "UNSET", self._stream, self._name, *words), is_ok)

    def get(self) -> Any:
        """What is set, as a dict with the names and units of `set`, and why entries could not be moved: see docs/delivery.md for the names
        of these, in which `_` stands for `-`."""
        return then(self._client.execute_command("STREAMD.GROUP", "GET", self._stream, self._name), _options)

    def lag(self) -> Any:
        """How much the group has to do, as a dict: `undelivered`, `pending`, `held_back`, `dead_lettered`: numbers of entries; `lag_s`,
        `oldest_pending_s`: seconds. Raises ResponseError if the stream or the group does not exist."""
        return then(self._client.execute_command("STREAMD.LAG", self._stream, self._name), _figures)

    def redrive(self, dead: Text, *, to: Text | None = None, count: int | None = None, ids: Iterable[Text] = ()) -> Any:
        """Give dead letters back to the group, with a delivery count of 0. Returns how many were given back.

        dead   key of the dead-letter stream
        to     key of the stream to which the fields of entries are added that no longer exist; None: these stay
        count  how many of the oldest ones; default: 100, at most 1000
        ids    those with these IDs, instead
        """
        words: list[Any] = [] if to is None else ["TO", to]
        words += [] if count is None else ["COUNT", count]
        named = [*ids]
        words += ["ID", *named] if named else []
        return then(self._client.execute_command("STREAMD.REDRIVE", self._stream, self._name, dead, *words), int)


def _options(reply: Any) -> dict[str, Any]:
    found = as_mapping(reply)
    return options_in(GROUP_OPTIONS, found) | figures_in(found)


def _figures(reply: Any) -> dict[str, Any]:
    return figures_in(as_mapping(reply))
