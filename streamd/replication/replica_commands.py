"""REPLICAOF and ROLE. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

import logging
import time

from streamd.core.client_line import describe
from streamd.core.dispatch import ServerContext
from streamd.core.spec import block, command, integer, oneof, string, token
from streamd.errors import CommandError
from streamd.replication.failover import Failover
from streamd.replication.following import Following
from streamd.replication.replication import Replication

__all__: list[str] = []

log = logging.getLogger("streamd")

TARGET = oneof(
    "args",
    block("host-port", string("host"), integer("port")),
    block("no-one", token("NO"), token("ONE")),
)


@command(
    "REPLICAOF", arity=3, group="server", flags="admin noscript stale no_async_loading", since="5.0.0",
    summary="Makes the server a replica of another one, or a primary.", args=(TARGET,),
)  # fmt: skip
def replicaof(ctx: ServerContext, args: list[bytes]) -> None:
    following = ctx.get(Following)
    if ctx.config.cluster_enabled:
        raise CommandError("ERR REPLICAOF not allowed in cluster mode.")
    if ctx.get(Failover).is_on:
        raise CommandError("ERR REPLICAOF not allowed while failing over.")
    who = describe(ctx.client, time.clock_gettime(time.CLOCK_MONOTONIC), args).decode("utf-8", "replace")
    if args[1].lower() == b"no" and args[2].lower() == b"one":
        if following.is_replica:
            following.promote()
            log.info("MASTER MODE enabled (user request from '%s')", who)
        ctx.reply.ok()
        return
    if ctx.client.id in ctx.get(Replication).replicas:
        raise CommandError("ERR Command is not valid when client is a replica.")
    host, port = args[1].decode("utf-8", "surrogateescape"), _read_port(args[2])
    if (host.lower(), port) == (following.host.lower(), following.port):
        log.info(
            "REPLICAOF would result into synchronization with the master we are already connected with. No operation"
            " performed."
        )
        ctx.reply.simple("OK Already connected to specified master")
        return
    following.follow(host, port)
    log.info("REPLICAOF %s:%d enabled (user request from '%s')", host, port, who)
    ctx.reply.ok()


command(
    "SLAVEOF", arity=3, group="server", flags="admin noscript stale no_async_loading", since="1.0.0",
    summary="Makes the server a replica of another one, or a primary.", args=(TARGET,),
    deprecated_since="5.0.0", replaced_by="`REPLICAOF`",
)(replicaof)  # fmt: skip


def _read_port(text: bytes) -> int:
    try:
        port = int(text) if text.lstrip(b"-").isdigit() and text == b"%d" % int(text) else -1
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise CommandError("ERR Invalid master port")
    return port


@command(
    "ROLE", arity=1, group="server", flags="noscript loading stale fast", categories="admin dangerous", since="2.8.12",
    summary="Returns the server's role in replication.",
)  # fmt: skip
def role(ctx: ServerContext, args: list[bytes]) -> None:
    following, replication = ctx.get(Following), ctx.get(Replication)
    if following.is_replica:
        offset = replication.offset if following.is_link_up else -1
        host = following.host.encode("utf-8", "surrogateescape")
        ctx.reply.value([b"slave", host, following.port, following.state.encode(), offset])
        return
    replicas = [
        [replica.ip.encode("utf-8", "surrogateescape"), b"%d" % replica.port, b"%d" % replica.ack_offset]
        for replica in replication.replicas.values()
        if replica.is_online
    ]
    ctx.reply.value([b"master", replication.offset, replicas])
