"""Redaction: requests as they may be shown to others, without passwords.

MONITOR and the slow log show requests. Which arguments are secret depends on the command, and is defined only here;
the dispatcher asks only when a request is about to be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamd.settings.declarations import by_name

__all__ = ["REDACTED", "redacted"]

REDACTED = b"(redacted)"


def _auth(args: list[bytes]) -> Iterable[int]:
    return range(1, len(args))


def _hello(args: list[bytes]) -> Iterable[int]:
    """The user and password of AUTH, wherever HELLO would interpret that word as the option."""
    at = 2
    while at < len(args):
        word = args[at].upper()
        if word == b"AUTH" and at + 2 < len(args):
            yield from (at + 1, at + 2)
            at += 3
        elif word == b"SETNAME":
            at += 2
        else:
            return


def _config_set(args: list[bytes]) -> Iterable[int]:
    return (at + 1 for at in range(2, len(args) - 1, 2) if _is_secret(args[at]))


def _is_secret(name: bytes) -> bool:
    """Whether the value of a setting is hidden: a password, or the user that goes with one."""
    row = by_name.get(name.decode("latin-1").lower())
    return row is not None and (row.is_secret or row.name == "masteruser")


def _all_of_acl(args: list[bytes]) -> Iterable[int]:
    return range(2, len(args))


def _migrate(args: list[bytes]) -> Iterable[int]:
    """The user and password of AUTH and AUTH2, up to KEYS."""
    at = 6
    while at < len(args) and (word := args[at].upper()) != b"KEYS":
        operands = {b"AUTH": 1, b"AUTH2": 2}.get(word, 0)
        yield from range(at + 1, at + 1 + operands)
        at += 1 + operands


SECRETS: Mapping[str, Callable[[list[bytes]], Iterable[int]]] = {
    "auth": _auth,
    "hello": _hello,
    "config|set": _config_set,
    "migrate": _migrate,
    "acl|setuser": _all_of_acl,
    "acl|getuser": _all_of_acl,
    "acl|deluser": _all_of_acl,
}
"""By full name of the command: which arguments of a request are secret."""


def redacted(command: str, args: list[bytes]) -> list[bytes]:
    """A request that may be shown to others; `args` itself if it has no secrets."""
    secrets = SECRETS.get(command)
    if secrets is None:
        return args
    hidden = frozenset(secrets(args))
    return [REDACTED if at in hidden else arg for at, arg in enumerate(args)]
