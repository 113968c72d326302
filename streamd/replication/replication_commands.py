"""ROLE and WAIT, of a primary without replicas. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from streamd.core.args import integer as read_integer
from streamd.core.args import parse_timeout
from streamd.core.context import BlockRequest
from streamd.core.dispatch import ServerContext
from streamd.core.spec import command, integer
from streamd.replication.replication import Replication

__all__: list[str] = []


@command(
    "ROLE", arity=1, group="server", flags="noscript loading stale fast", categories="admin dangerous", since="2.8.12",
    summary="Returns the server's part in replication.",
)  # fmt: skip
def role(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.value([b"master", ctx.get(Replication).offset, []])


@command(
    "WAIT", arity=3, group="generic", flags="blocking", categories="connection -keyspace", since="3.0.0",
    tips=("request_policy:all_shards", "response_policy:agg_min"),
    summary="Waits until replicas have what this connection has written; returns how many have.",
    args=(integer("numreplicas"), integer("timeout")),
)  # fmt: skip
def wait(ctx: ServerContext, args: list[bytes]) -> None:
    wanted = read_integer(args[1])
    timeout_ms = parse_timeout(args[2], ctx.now_ms)
    if wanted <= 0 or ctx.in_transaction:
        ctx.reply.integer(0)
    else:
        ctx.block_on(BlockRequest([], args, timeout_ms, timeout_reply=b":0\r\n"))
