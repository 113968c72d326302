"""Standing: which server with min-replicas-durable may be the primary, and which of two servers is ahead.

A *view* is a period in which one server is the primary. It begins when a server starts as a primary or is promoted, and
its number is greater than those of all views that this server knows. Before a primary serves anything, it has
to be *established*: as many replicas as are needed have joined its view, and none of them is ahead of it.

    begin ─▶ replicas greet ─┬─▶ one is ahead: follow it until its data is here, then begin again
                             ├─▶ one has joined a later view: begin again, above that one
                             └─▶ enough have joined ─▶ established: the view's beginning goes into the stream

A replica that joins a view first records this on its disk, and joins no earlier one afterwards. The start of a view is an
entry of the stream, so all data shows in which view its last entry was written: `data`. Of two servers, the one
with the later `data` is ahead; if that is the same, the one with the greater offset, for in one view there is one stream.

So nothing acknowledged is lost, whichever server is promoted and whenever: what a primary acknowledged is on its own disk
and on those of N replicas. The primary of a later view starts with what N others and itself had when they joined. With
2N + 1 servers or fewer, one of these had confirmed it. No server that has joined confirms anything to an earlier primary.

A primary that is not established is silent: nothing goes into its stream, and no data changes. Data of which no view is
known (NONE) is never ahead: that of servers that never had min-replicas-durable.

`Standing` does no input or output; `Views` (views.py) connects it with files, the stream and links.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Self

__all__ = ["NONE", "Greeting", "Position", "Standing", "Verdict", "View"]


class View(NamedTuple):
    """A time in which one server is the primary. Views are ordered; `name` is random, so no two are the same."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.number}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        number, _, name = text.partition(":")
        return cls(int(number), name)


NONE = View(0, "")
"""Before all views."""


class Position(NamedTuple):
    """How far data goes: the view of its last entry, and the bytes of the stream. The greater one is ahead."""

    view: View
    offset: int


class Greeting(NamedTuple):
    """What a replica says before it asks for the stream: the latest view that it has joined, and its position."""

    promised: View
    position: Position

    def __str__(self) -> str:
        return f"{self.promised} {self.position.view} {self.position.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        promised, view, offset = text.split()
        return cls(View.parse(promised), Position(View.parse(view), int(offset)))


class Verdict(Enum):
    """What a primary does about a greeting."""

    JOIN = auto()
    """It may join."""
    FOLLOW = auto()
    """It is ahead: first take over what it has."""
    BEGIN = auto()
    """It has joined a later view: begin one above that, and judge again."""


class Standing:
    """Where a server stands.

    promised  the latest view that it has begun or joined; on disk before anybody hears of it
    data      the view whose beginning is the last one in its data
    own       as a primary: its view; None: it is a replica, or views are not in use
    is_established  its own view's beginning is in the stream
    begun_at  the offset at which its own view began
    """

    def __init__(self) -> None:
        self.promised = NONE
        self.data = NONE
        self.own: View | None = None
        self.is_established = False
        self.begun_at = 0

    def begin(self, offset: int, name: str, above: View = NONE) -> View:
        """Begin a view, as a primary with data up to `offset`."""
        self.own = self.promised = View(max(self.promised, self.data, above).number + 1, name)
        self.is_established = False
        self.begun_at = offset
        return self.own

    def end(self) -> None:
        """It is no primary any more."""
        self.own = None
        self.is_established = False

    def join(self, view: View) -> None:
        """Join a primary's view: confirm nothing in earlier ones."""
        self.promised = max(self.promised, view)

    def position(self, offset: int) -> Position:
        """How far its data goes; `offset`: of its stream."""
        is_silent = self.own is not None and not self.is_established
        return Position(self.data, self.begun_at if is_silent else offset)

    def judge(self, greeting: Greeting, offset: int) -> Verdict:
        """What to do about a replica that greets; `offset`: of the own stream."""
        assert self.own is not None  # noqa: S101
        if greeting.promised > self.own:
            return Verdict.BEGIN
        is_silent = not self.is_established
        return Verdict.FOLLOW if is_silent and self.is_behind(greeting, offset) else Verdict.JOIN

    def is_behind(self, greeting: Greeting, offset: int) -> bool:
        """Whether a server that greets has data that is missing here; `offset`: of the own stream."""
        return greeting.position.view != NONE and greeting.position > self.position(offset)

    def establish(self) -> None:
        """Enough replicas have joined: the next entry is the beginning of the view."""
        assert self.own is not None  # noqa: S101
        self.data = self.own
        self.is_established = True
