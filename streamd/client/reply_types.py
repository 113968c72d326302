"""The types of replies beyond Python's own: see reply_reader.pyx."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["UNREAD", "Push", "SetReply", "Status", "Verbatim"]

UNREAD: Final = object()
"""In place of a reply: more bytes are needed."""


class Status(bytes):
    """A simple string, such as OK."""

    __slots__ = ()


class Verbatim(bytes):
    """Text that is meant to be shown as it is."""

    __slots__ = ()


class SetReply(list[Any]):
    """A set; a list, since elements need not be hashable."""

    __slots__ = ()


class Push(list[Any]):
    """A message that is not a reply to a request."""

    __slots__ = ()
