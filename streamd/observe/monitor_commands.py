"""MONITOR: shows a connection every request that the server runs. The work is done in monitor.pyx."""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.spec import command
from streamd.errors import CommandError
from streamd.observe.monitor import Monitors

__all__: list[str] = []


@command(
    "MONITOR", arity=1, group="server", flags="admin noscript loading stale", since="1.0.0",
    summary="Shows this connection every request that is run, until it is closed or reset.",
)  # fmt: skip
def monitor(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.in_transaction:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    # A second MONITOR is not answered at all.
    if not ctx.client.is_monitor:
        ctx.get(Monitors).add(ctx.client)
        ctx.reply.ok()
