"""Steps as requests of redis-py, and which of its errors mean that there is no reply."""

from __future__ import annotations

from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterError,
    ConnectionError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
)

from streamd.partitions.reading import Call, WaitForEntry

__all__ = ["TEMPORARY", "is_temporary", "script_by_sha", "script_by_text", "wait_options"]

TEMPORARY = (
    AskError, BusyLoadingError, ClusterError, ConnectionError, ReadOnlyError, RedisClusterException, TimeoutError, TryAgainError, OSError,
)  # fmt: skip
"""What a fail-over, a slot that moves or a node that starts lead to; the next attempt may succeed."""


def is_temporary(error: BaseException) -> bool:
    return isinstance(error, TEMPORARY) and not isinstance(error, AuthenticationError)


def script_by_sha(call: Call) -> tuple[Any, ...]:
    return "EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.arguments


def script_by_text(call: Call) -> tuple[Any, ...]:
    return "EVAL", call.script.text, len(call.keys), *call.keys, *call.arguments


def wait_options(step: WaitForEntry) -> dict[str, Any]:
    """The arguments of `xread`. The entry is read again under the lease."""
    return {"streams": {step.stream: step.after}, "count": 1, "block": max(round(step.seconds * 1000), 1)}
