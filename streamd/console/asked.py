"""Asked: a request of the page, with its parameters and who asks; and the table of what can be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from streamd.console.guard import RefusedError
from streamd.console.inner_client import Connection
from streamd.console.json_bytes import read_bytes
from streamd.console.sessions import Session, Sessions
from streamd.core.host import Host
from streamd.entry_id import parse_id
from streamd.integers import INT32_MAX, INT64_MAX
from streamd.observe.last_hour import History

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["ANSWERS", "Asked", "answers", "read_query"]


@dataclass(frozen=True)
class Asked:
    """A request.

    query  the parameters of the address: bytes, since keys are
    body   of what changes something: the JSON object that was sent
    """

    host: Host
    sessions: Sessions
    history: History
    session: Session
    request: web.BaseRequest
    query: Mapping[str, bytes]
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        return self.session.connection

    @property
    def db(self) -> int:
        return self.number("db", 0, most=INT32_MAX)

    def name(self, parameter: str) -> bytes:
        """A key or another name; raises RefusedError."""
        if parameter in self.body:
            return read_bytes(self.body[parameter])
        if parameter in self.query:
            return self.query[parameter]
        raise RefusedError(400, f"{parameter} is missing.")

    def number(self, parameter: str, default: int | None = None, *, least: int = 0, most: int = INT64_MAX) -> int:
        """A number within bounds; raises RefusedError."""
        value: Any = self.body.get(parameter)
        if value is None and parameter in self.query:
            text = self.query[parameter]
            value = int(text) if text.isdigit() and len(text) <= 20 else text
        if value is None and default is not None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise RefusedError(400, f"{parameter} must be a number from {least} to {most}.")
        return value

    def ids(self) -> list[bytes]:
        """The entry IDs that something is done with; raises RefusedError."""
        given = self.body.get("ids")
        if not isinstance(given, list) or not 0 < len(given) <= 1000:
            raise RefusedError(400, "ids must be a list of 1 to 1000 entry IDs.")
        found = [read_bytes(each) for each in given]
        if any(parse_id(each) is None for each in found):
            raise RefusedError(400, "An entry ID looks like 1700000000000-0.")
        return found


Answer = Callable[[Asked], Awaitable[Any]]
"""Its result is sent as JSON, or is a response."""

ANSWERS: dict[tuple[str, str], Answer] = {}
"""What can be asked: by method and by name below /api/."""


def answers(method: str, name: str) -> Callable[[Answer], Answer]:
    """Declare what answers a request."""

    def declare(answer: Answer) -> Answer:
        if (method, name) in ANSWERS:
            raise ValueError(f"{method} {name} is answered twice")
        ANSWERS[method, name] = answer
        return answer

    return declare


def read_query(text: str) -> dict[str, bytes]:
    """The parameters of an address as bytes: percent signs may stand for any."""
    parts = (part.partition("=") for part in text.split("&") if part)
    return {unquote_to_bytes(name).decode("utf-8", "replace"): unquote_to_bytes(value) for name, _, value in parts}
