"""DEBUG of a node of a cluster: packets, links, and atomic slot migration. Behaviour: Redis 8.6, as seen on running servers."""

from __future__ import annotations

import binascii

from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.migrations import SlotMigrations
from streamd.cluster.migration.tasks import CHANNELS, STATES
from streamd.core.args import integer as read_integer
from streamd.core.args import is_option
from streamd.core.dispatch import ServerContext
from streamd.debug.debug_commands import subcommand, unknown
from streamd.errors import CommandError
from streamd.integers import find_count

__all__: list[str] = []


@subcommand(b"CLUSTERLINK", 5)
def cluster_link(ctx: ServerContext, args: list[bytes]) -> None:
    if not is_option(args[2], b"KILL"):
        raise unknown(args)
    cluster = ctx.get(Cluster)
    if not cluster.is_on:
        raise CommandError("ERR Debug option only available for cluster mode enabled setup!")
    with cluster.input as core:
        core.kill_links(args[4], args[3].decode("latin-1"))
    ctx.reply.ok()


@subcommand(b"DROP-CLUSTER-PACKET-FILTER", 3)
def drop_packets(ctx: ServerContext, args: list[bytes]) -> None:
    number = read_integer(args[2])
    cluster = ctx.get(Cluster)
    if cluster.is_on:
        cluster.core.dropped_type = number
    ctx.reply.ok()


@subcommand(b"INTERNAL_SECRET", 2)
def internal_secret(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    if not cluster.is_on:
        raise CommandError("ERR Internal secret is missing")
    ctx.reply.integer(binascii.crc_hqx(cluster.core.state.internal_secret, 0))


@subcommand(b"MARK-INTERNAL-CLIENT", 2, 3)
def mark_internal_client(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) == 3 and not is_option(args[2], b"UNMARK"):
        raise unknown(args)
    ctx.get(SlotMigrations).mark_internal(ctx.client, len(args) == 2)
    ctx.reply.ok()


@subcommand(b"ASM-FAILPOINT", 4)
def fail_point(ctx: ServerContext, args: list[bytes]) -> None:
    """Both empty: no fail point any more."""
    channel, state = (word.decode("latin-1").lower() for word in args[2:])
    is_none = not channel and not state
    if not ctx.get(Cluster).is_on or not (is_none or (channel in CHANNELS and state in STATES)):
        raise CommandError("ERR Failed to set ASM fail point")
    ctx.get(SlotMigrations).fail_point = None if is_none else (channel, state)
    ctx.reply.ok()


@subcommand(b"ASM-TRIM-METHOD", 3, 1 << 20)
def trim_method(ctx: ServerContext, args: list[bytes]) -> None:
    """The delay is in microseconds; what is no number is 0."""
    method = args[2].lower()
    if not ctx.get(Cluster).is_on or method not in (b"default", b"none", b"active", b"bg"):
        raise CommandError("ERR Failed to set ASM trim method")
    trimming = ctx.get(SlotMigrations).trimming
    trimming.is_off = method == b"none"
    delay = args[3].decode("latin-1") if len(args) > 3 and method == b"active" else ""
    trimming.delay_s = -1.0 if delay.startswith("-") else (find_count(delay) or 0) / 1e6
    trimming.resume()
    ctx.reply.ok()
