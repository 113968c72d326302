"""What an HTTP port refuses before it reads further, and which connections are closed when there are too many.

Connecting requires no password, so nothing here depends on one. A browser on this machine can be made to request a port of it under a
foreign name that resolves to this machine (DNS rebinding); the Host header shows such a name.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from streamd.errors import StreamdError

__all__ = ["REQUEST_BYTES", "RefusedError", "check_body", "find_crowding", "host_name", "is_known_host", "network_of"]

REQUEST_BYTES = 64 * 1024
"""Of a request, with its head; no more is kept."""

T = TypeVar("T")


class RefusedError(StreamdError):
    """A request that is not answered; str() says why.

    status  of the answer
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def host_name(host: str) -> str:
    """The name in a Host header, without its port; empty without a header."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_known_host(name: str, names: str) -> bool:
    """Whether a name is an address, `localhost`, or among the names of a setting, where `*` stands for any."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        known = names.lower().split()
        return bool(name) and (name == "localhost" or name in known or "*" in known)
    return True


def check_body(headers: Mapping[str, str]) -> None:
    """Refuse a body that is too long, or packed; raises RefusedError."""
    if headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise RefusedError(415, "Compressed requests are not accepted.")
    length = headers.get("Content-Length", "0")
    if not length.isdecimal() or int(length) > REQUEST_BYTES:
        raise RefusedError(413, f"A request has at most {REQUEST_BYTES} bytes.")


def network_of(address: str) -> Hashable:
    """Whom an address counts for: itself, or in IPv6 its network of 64 bits, within which a machine may choose."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return found if found.version == 4 else ipaddress.ip_network((found, 64), strict=False)


def find_crowding(items: Collection[T], owner: Callable[[T], Hashable], rank: Callable[[T], Any]) -> T:
    """The item that gives way where there are too many: of the owner with the most, the one with the lowest rank."""
    counts = Counter(map(owner, items))
    most = max(counts.values())
    return min((each for each in items if counts[owner(each)] == most), key=rank)
