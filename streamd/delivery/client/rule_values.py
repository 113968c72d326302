"""How the options of rules are called in Python, and their values: seconds there, milliseconds in requests and replies."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

__all__ = [
    "Seconds",
    "Text",
    "as_mapping",
    "figures_in",
    "is_ok",
    "milliseconds",
    "names_of",
    "options_in",
    "then",
    "words_for",
]

Text = str | bytes

Seconds = float | timedelta
"""A time; it is rounded to milliseconds."""


def milliseconds(time: Seconds) -> int:
    return round((time.total_seconds() if isinstance(time, timedelta) else time) * 1000)


def seconds(ms: Any) -> float:
    return int(ms) / 1000


Write = Callable[[Any], Any]
Options = Mapping[str, tuple[str, Write, Callable[[Any], Any]]]
"""By their names in Python: the names in requests, how a value is written there, and how it is read from a reply."""

TIME = (milliseconds, seconds)
NUMBER = (int, int)
DECIMAL = (str, float)
TEXT = (lambda value: value, lambda value: value)
FLAG = (bool, bool)


def words_for(options: Options, values: Mapping[str, Any]) -> list[Any]:
    """The words of a request that set these values; None: not given. A flag is only its name."""
    words: list[Any] = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        word, write, _ = options[name]
        words.append(word)
        if write is not bool:
            words.append(write(value))
    return words


def names_of(options: Options, names: Iterable[str]) -> list[str]:
    """The names in requests. Raises ValueError for one that is no option."""
    unknown = sorted(set(names) - set(options))
    if unknown:
        raise ValueError(f"There is no option {unknown[0]!r}; the options are {', '.join(options)}")
    return [options[name][0] for name in names]


def as_mapping(reply: Any) -> dict[str, Any]:
    """A map as it is in RESP3, or a flat array, as in RESP2; its keys as text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {text_of(name): value for name, value in pairs}


def text_of(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def options_in(options: Options, found: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of a reply: by their names in Python, with values as `set` accepts them."""
    return {
        name: read(found.pop(word.lower())) for name, (word, _, read) in options.items() if word.lower() in found
    }  # fmt: skip


def figures_in(found: Mapping[str, Any]) -> dict[str, Any]:
    """What else is in a reply. `lag-ms` becomes `lag_s`, in seconds."""
    figures = {}
    for name, value in found.items():
        if name.endswith("-ms"):
            name, value = f"{name.removesuffix('-ms')}-s", seconds(value)
        figures[name.replace("-", "_")] = value
    return figures


def is_ok(reply: Any) -> bool:
    return reply in ("OK", b"OK", True)


def then(reply: Any, read: Callable[[Any], Any]) -> Any:
    """What a reply means: now, or, from a client for asyncio, when it is awaited."""
    if inspect.isawaitable(reply):
        return _later(reply, read)
    return read(reply)


async def _later(reply: Awaitable[Any], read: Callable[[Any], Any]) -> Any:
    return read(await reply)
