"""ASKING, READONLY, READWRITE: how a client announces its next requests. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from streamd.cluster.cluster import Cluster
from streamd.cluster.routing import Routing
from streamd.core.dispatch import ServerContext
from streamd.core.spec import command

__all__: list[str] = []


@command(
    "ASKING", arity=1, group="cluster", flags="fast", categories="connection", since="3.0.0",
    summary="Announces that the next request follows a redirection.",
)  # fmt: skip
def asking(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    ctx.get(Routing).ask(ctx.client)
    ctx.reply.ok()


@command(
    "READONLY", arity=1, group="cluster", flags="loading stale fast", categories="connection", since="3.0.0",
    summary="Lets a connection read from a replica in a cluster.",
)  # fmt: skip
def readonly(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    ctx.get(Routing).read_copies(ctx.client, True)
    ctx.reply.ok()


@command(
    "READWRITE", arity=1, group="cluster", flags="loading stale fast", categories="connection", since="3.0.0",
    summary="Undoes READONLY.",
)  # fmt: skip
def readwrite(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    ctx.get(Routing).read_copies(ctx.client, False)
    ctx.reply.ok()
