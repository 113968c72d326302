"""Views: carries out what standing.py decides: promises and positions in files, starts of views in the stream, greetings of replicas."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.disk import replace_file
from streamd.errors import ReplicationError, StreamdError, StreamLostError, one_line, printable
from streamd.persistence.persistence import Persistence
from streamd.replication.replica import Replica
from streamd.replication.replication import Replication
from streamd.replication.standing import NONE, Greeting, Standing, Verdict, View

__all__ = ["Views"]

log = logging.getLogger("streamd")

MARK = b"view:"
"""Begins the argument of GETACK that is the beginning of a view; a Redis answers it like any other."""
FILE = "replication.view"
"""In the directory of the append-only file: the latest view that the server has begun or joined."""


class Views(Capability):
    """
    follow_for_data  takes over what another server has, and becomes the primary again: (host, port, offset)
    is_taking_over   that is being done: to clients, this server is a primary that is not established
    """

    info = {
        "replication": (
            Fields(
                "durable_view durable_view_established durable_data_view",
                lambda self: self.figures() if self._config.min_replicas_durable else None,
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._replication = host.get(Replication)
        self._append_only = host.get(Persistence).append_only
        self._is_ready = self._was_on = False
        self._is_noted = True
        self.is_taking_over = False
        self.observers: list[Callable[[], object]] = []
        """Called when a view has begun, or has been established, and when this server is a primary no more."""
        self.standing = Standing()
        self.follow_for_data: Callable[[str, int, int], object] = lambda host, port, offset: None
        self._replication.role_observers.append(self.follow_role)
        self._replication.more_aux.append(self._aux)
        self._tail = self._append_only.aof.tail
        self._tail.position = self._line
        self._append_only.given_up = self.forget

    def figures(self) -> tuple[object, ...]:
        """For INFO."""
        standing = self.standing
        return str(standing.own or standing.promised), standing.is_established, str(standing.data)

    @property
    def is_on(self) -> bool:
        return bool(self._config.min_replicas_durable)

    # --- Life ---------------------------------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        if self.is_on != self._was_on and self._is_ready:
            self.follow_role()

    def data_loaded(self) -> None:
        """The data is here, and with it the view that it is of."""
        self._is_ready = True
        _, _, view = self._append_only.loaded_position.partition(b" ")
        self._take_view(view.decode("latin-1"))
        self._read_promise()
        self.follow_role()

    def follow_role(self) -> None:
        """Begin a view when this server has become a primary, or was one when views came into use."""
        if not self._is_ready:
            return
        self._was_on = self.is_on
        if self.is_on and not self._replication.is_replica:
            self.begin()
        else:
            self.standing.end()
            self._replication.change_silence(False)
            self._tell()

    def _tell(self) -> None:
        for observer in self.observers:
            observer()

    def begin(self, above: View = NONE) -> None:
        """Begin a view: nobody has joined it yet."""
        self.standing.begin(self._replication.offset, os.urandom(6).hex(), above)
        self._is_noted = False
        self._replication.change_silence(True)
        self._replication.disconnect_replicas()
        self._tell()

    def join(self, view: View) -> None:
        """Join a primary's view. Raises ReplicationError when that cannot be noted."""
        if view != self.standing.promised:
            self.standing.join(view)
            self._is_noted = False
        self._note_promise()

    # --- A primary ----------------------------------------------------------------------------------------------------

    @property
    def needed(self) -> int:
        """How many replicas must have joined before a primary is established."""
        return int(max(self._config.min_replicas_durable, self._config.min_replicas_durable_to_start))

    def greet(self, replica: Replica, text: bytes) -> bytes:
        """A replica says where it stands; returns the answer. Raises ValueError."""
        greeting = Greeting.parse(text.decode("latin-1"))
        replica.knows_views = True
        standing, offset = self.standing, self._replication.offset
        if standing.own is None:
            # A replica that lags would overwrite what another one has confirmed. Data without a view is not promised anything.
            replica.is_ahead = standing.data != NONE and standing.is_behind(greeting, offset)
            return b"OK"
        verdict = standing.judge(greeting, offset)
        if verdict is Verdict.BEGIN:
            log.warning("Replica %s has joined view %s: starting a new one.", replica.name, greeting.promised)
            self.begin(above=greeting.promised)
            verdict = standing.judge(greeting, offset)
        if verdict is Verdict.FOLLOW:
            log.warning(
                "Replica %s has data that is missing here (%s, here %s): copying it first.",
                replica.name, greeting.position, standing.position(offset),
            )  # fmt: skip
            self._host.loop.call_soon(self.follow_for_data, replica.ip, replica.port, greeting.position.offset)
            replica.is_ahead = True
        replica.view = standing.own
        return b"VIEW %s" % str(standing.own).encode()

    def is_outdated(self, replica: Replica) -> bool:
        """Whether a replica has greeted, and this server has begun another view since: it would never join that."""
        return self.standing.own is not None and replica.knows_views and replica.view != self.standing.own

    def has_joined(self, replica: Replica) -> bool:
        """Whether the confirmations of a replica count. Those that know no views are believed."""
        return replica.is_online and (not replica.knows_views or replica.view == self.standing.own)

    def can_establish(self, joined: int) -> bool:
        """Whether the own view can be established, with so many replicas that have joined it."""
        if joined < self.needed:
            return False
        try:
            self._note_promise()
        except ReplicationError as error:
            log.warning("%s", error)
        return self._is_noted

    def establish(self) -> int:
        """Put the beginning of the own view into the stream, and into the file; returns the offset behind it."""
        self.standing.establish()
        self._replication.change_silence(False)
        self._replication.stream.append([b"REPLCONF", b"GETACK", MARK + str(self.standing.own).encode()])
        self._note_position()
        self._tell()
        log.info("View %s is established.", self.standing.own)
        return self._replication.offset

    # --- A replica ----------------------------------------------------------------------------------------------------

    def greeting(self) -> str:
        """What to say to a primary; empty: nothing."""
        if not self.is_on:
            return ""
        return str(Greeting(self.standing.promised, self.standing.position(self._replication.offset)))

    def stream_marked(self, word: bytes) -> None:
        """The stream has the beginning of a view."""
        try:
            self.standing.data = View.parse(word.removeprefix(MARK).decode("latin-1"))
        except ValueError:
            raise StreamLostError(f"The start of a view cannot be read: {printable(word[:64])}") from None
        self._note_position()

    def forget(self) -> None:
        """The data is about to be replaced by other data."""
        self.standing.data = NONE

    def adopted(self, view: str) -> None:
        """A primary's snapshot was loaded; `view`: that of its data, empty if it knows none."""
        self._take_view(view)
        self._note_position()

    def _take_view(self, text: str) -> None:
        """What was loaded says of which view it is, or nothing."""
        self.standing.data = NONE
        with suppress(ValueError):
            self.standing.data = View.parse(text)

    # --- Files --------------------------------------------------------------------------------------------------------

    def _aux(self) -> dict[str, str | int]:
        """What a snapshot says of the view of its data."""
        return {} if self.standing.data == NONE else {"repl-view": str(self.standing.data)}

    def _line(self) -> bytes:
        """What the append-only file says of the data up to there; empty: nothing."""
        if self.standing.data == NONE:
            return b""
        return b"%d %s" % (self._replication.offset, str(self.standing.data).encode())

    def _note_position(self) -> None:
        """Have the position written at the end of this turn, whatever else is."""
        self._tail.is_position_due = True
        self._host.dispatcher.ask_before_replies()

    @property
    def _path(self) -> str:
        return os.path.join(self._append_only.aof.files.directory, FILE)

    def _read_promise(self) -> None:
        try:
            with open(self._path, encoding="ascii") as file:
                self.standing.join(View.parse(file.read().strip()))
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise StreamdError(
                f"{self._path} does not contain the view that this server joined last: {one_line(str(error).encode())}. Restore it, or"
                " empty the data directory and let the server follow another one."
            ) from error

    def _note_promise(self) -> None:
        """Write down which view was joined last, if that has not been done. Raises ReplicationError."""
        if self._is_noted:
            return
        try:
            replace_file(self._path, f"{self.standing.promised}\n".encode("ascii"))
        except OSError as error:
            raise ReplicationError(
                f"The view of this server cannot be written to {self._path}: {error.strerror}. Check the disk."
            ) from error
        self._is_noted = True
