"""MOVED and ASK: by which a node of a cluster names the one that serves a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamd.client.client_errors import ServerError

__all__ = ["Redirection", "find_redirection"]


@dataclass(frozen=True)
class Redirection:
    """Where a request has to be sent.

    host    empty: the host that was asked
    is_ask  for this request only, after ASKING
    """

    slot: int
    host: str
    port: int
    is_ask: bool


def find_redirection(reply: Any) -> Redirection | None:
    """What an error reply says about another node; None for any other reply."""
    if not isinstance(reply, ServerError) or reply.code not in ("MOVED", "ASK"):
        return None
    _, slot, address = reply.text.split(" ")[:3]
    host, _, port = address.rpartition(":")
    return Redirection(int(slot), host, int(port), reply.code == "ASK")
