"""FAILOVER. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from dataclasses import dataclass

from streamd.core.args import integer as read_integer
from streamd.core.args import is_option
from streamd.core.dispatch import ServerContext
from streamd.core.spec import block, command, integer, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.replication.failover import Failover
from streamd.replication.following import Following
from streamd.replication.replication import Replication

__all__: list[str] = []


@dataclass
class FailoverOptions:
    """
    target      address and port
    timeout_ms  0: none
    """

    target: tuple[str, int] | None = None
    timeout_ms: int = 0
    is_forced: bool = False
    is_abort: bool = False


def read_options(args: list[bytes]) -> FailoverOptions:
    """The words behind FAILOVER. Raises CommandError."""
    found = FailoverOptions()
    has_timeout = False
    at = 1
    while at < len(args):
        left = len(args) - at - 1
        if is_option(args[at], b"TIMEOUT") and left >= 1 and not has_timeout:
            found.timeout_ms = read_integer(args[at + 1])
            if found.timeout_ms <= 0:
                raise CommandError("ERR FAILOVER timeout must be greater than 0")
            has_timeout = True
            at += 2
        elif is_option(args[at], b"ABORT") and len(args) == 2:
            found.is_abort = True
            at += 1
        elif is_option(args[at], b"TO") and left >= 2 and found.target is None:
            found.target = args[at + 1].decode("utf-8", "surrogateescape"), read_integer(args[at + 2])
            at += 3
        elif is_option(args[at], b"FORCE") and not found.is_forced:
            found.is_forced = True
            at += 1
        else:
            raise OptionSyntaxError
    return found


@command(
    "FAILOVER", arity=-1, group="server", flags="admin noscript stale", since="6.2.0",
    summary="Hands the role of the primary over to a replica.",
    args=(
        optional(block("target", string("host"), integer("port"), optional(token("FORCE")), token="TO")),
        optional(token("ABORT")),
        optional(integer("milliseconds", token="TIMEOUT")),
    ),
)  # fmt: skip
def failover(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.config.cluster_enabled:
        raise CommandError("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.")
    options = read_options(args)
    failing_over = ctx.get(Failover)
    if options.is_abort:
        if not failing_over.is_on:
            raise CommandError("ERR No failover in progress.")
        failing_over.abort()
        ctx.reply.ok()
        return
    if failing_over.is_on:
        raise CommandError("ERR FAILOVER already in progress.")
    if ctx.get(Following).is_replica:
        raise CommandError("ERR FAILOVER is not valid when server is a replica.")
    if not ctx.get(Replication).replicas:
        raise CommandError("ERR FAILOVER requires connected replicas.")
    if options.is_forced and (not options.timeout_ms or options.target is None):
        raise CommandError("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
    if options.target is not None:
        replica = failing_over.find(options.target)
        if replica is None:
            raise CommandError("ERR FAILOVER target HOST and PORT is not a replica.")
        if not replica.is_online:
            raise CommandError("ERR FAILOVER target replica is not online.")
    failing_over.begin(options.target, is_forced=options.is_forced, timeout_ms=options.timeout_ms)
    ctx.reply.ok()
