"""MONITOR: shows a connection every request that the server runs. monitor.pyx decides who is shown what."""

from __future__ import annotations

from typing import Any, Protocol

from streamd.core.spec import command
from streamd.errors import CommandError
from streamd.protocol.reply import ReplyWriter

__all__ = ["MonitorContext"]


class Client(Protocol):
    @property
    def is_monitor(self) -> bool: ...


class Monitors(Protocol):
    def add(self, client: Any) -> None: ...


class Server(Protocol):
    @property
    def monitors(self) -> Monitors: ...


class MonitorContext(Protocol):
    """What the command uses of Context."""

    @property
    def client(self) -> Client: ...
    @property
    def server(self) -> Server: ...
    @property
    def reply(self) -> ReplyWriter: ...
    @property
    def in_transaction(self) -> bool: ...


@command(
    "MONITOR", arity=1, group="server", flags="admin noscript loading stale", since="1.0.0",
    summary="Shows this connection every request that is run, until it is closed or reset.",
)  # fmt: skip
def monitor(ctx: MonitorContext, args: list[bytes]) -> None:
    if ctx.in_transaction:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    # A second MONITOR is not answered at all.
    if not ctx.client.is_monitor:
        ctx.server.monitors.add(ctx.client)
        ctx.reply.ok()
