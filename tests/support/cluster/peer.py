"""A node without data over real sockets: a core, a thread that drives it, and a record of every packet. For tests beside real nodes.

with Peer() as peer:
    peer.do(lambda core: core.meet("127.0.0.1", port, bus_port))
    eventually(lambda: peer.state.is_ok)
    peer.received                 packets of others, in the order in which they came: (link, bytes)
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from streamd.cluster.bus import actions
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.nodes import State
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.packets import Reader

from ..servers import free_port

__all__ = ["Peer"]

Result = TypeVar("Result")

TICK_S = 0.1


class Peer:
    """See the head of the module."""

    def __init__(
        self,
        *,
        seed: int = 1,
        saved: bytes | None = None,
        core_type: type[ClusterCore] = ClusterCore,
        **settings: object,
    ) -> None:
        self.port, bus_port = free_port(), free_port()
        self.listener = socket.create_server(("127.0.0.1", bus_port))
        self.listener.setblocking(False)
        self.saved: list[actions.Save] = []
        self.actions: list[actions.Action] = []  # all but packets
        self.sent: list[tuple[int, bytes]] = []
        self.received: list[tuple[int, bytes]] = []
        self._start = time.time() - time.monotonic()
        options = Options(port=self.port, bus_port=bus_port, node_timeout_ms=2000, **settings)  # type: ignore[arg-type]
        self.core = core_type(options, Random(seed), self._now_ms(), saved)
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._sockets: dict[int, socket.socket] = {}
        self._readers: dict[int, Reader] = {}
        self._unsent: dict[int, bytearray] = {}
        self._connecting: set[int] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()
        for each in (*self._sockets.values(), self.listener):
            each.close()
        self._selector.close()

    @property
    def state(self) -> State:
        return self.core.state

    def do(self, use: Callable[[ClusterCore], Result]) -> Result:
        """Give an input to the core, or look at it while nothing else happens."""
        with self._lock:
            result = use(self.core)
            self._drain()
            return result

    def packets(self, type_: int, *, sent: bool = False) -> list[bytes]:
        """The packets of a type so far."""
        return [packet for _, packet in (self.sent if sent else self.received) if packet[12:14] == bytes((0, type_))]

    # --- The thread --------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int((self._start + time.monotonic()) * 1000)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ends.is_set():
            events = self._selector.select(max(0, min(due - time.monotonic(), TICK_S)))
            with self._lock:
                for key, _ in events:
                    self._serve(key.data)
                if time.monotonic() >= due:
                    due = time.monotonic() + TICK_S
                    self.core.tick(self._now_ms())
                self._drain()

    def _serve(self, link: int | None) -> None:
        if link is None:
            accepted, address = self.listener.accept()
            number = self.core.link_accepted(address[0], accepted.getsockname()[0], self._now_ms())
            self._hold(number, accepted)
        elif link in self._connecting:
            self._connecting.discard(link)
            if self._sockets[link].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._lose(link)
            else:
                self.core.link_opened(link, self._sockets[link].getsockname()[0], self._now_ms())
                self._write(link)
        elif link in self._sockets:
            self._write(link)
            if link in self._sockets:
                self._read(link)

    def _hold(self, link: int, opened: socket.socket) -> None:
        opened.setblocking(False)
        self._sockets[link] = opened
        self._readers[link] = Reader()
        self._unsent[link] = bytearray()
        self._selector.register(opened, selectors.EVENT_READ, link)

    def _read(self, link: int) -> None:
        try:
            data = self._sockets[link].recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(link)
            return
        self._readers[link].feed(data)
        while (packet := self._readers[link].next_packet()) is not None:
            self.received.append((link, packet))
        self.core.receive(link, data, self._now_ms())

    def _write(self, link: int) -> None:
        if link not in self._sockets or link in self._connecting:
            return
        unsent = self._unsent[link]
        try:
            del unsent[: self._sockets[link].send(unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(link)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
        self._selector.modify(self._sockets[link], events, link)

    def _lose(self, link: int) -> None:
        self._drop(link)
        self.core.link_closed(link, self._now_ms())

    def _drop(self, link: int) -> None:
        self._connecting.discard(link)
        if (held := self._sockets.pop(link, None)) is not None:
            self._selector.unregister(held)
            held.close()

    def _drain(self) -> None:
        while pending := self.core.take_actions():
            for action in pending:
                self._act(action)

    def _act(self, action: actions.Action) -> None:
        match action:
            case actions.Send(link, packet):
                if link in self._sockets:
                    self.sent.append((link, packet))
                    self._unsent[link] += packet
                    self._write(link)
                return
            case actions.Connect(link, ip, port):
                opened = socket.socket()
                self._hold(link, opened)
                self._connecting.add(link)
                self._selector.modify(opened, selectors.EVENT_WRITE, link)
                opened.connect_ex((ip, port))
            case actions.Close(link):
                self._drop(link)
            case actions.Save():
                self.saved.append(action)
            case _:
                pass
        self.actions.append(action)
