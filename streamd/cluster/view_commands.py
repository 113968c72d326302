"""The CLUSTER subcommands that show nodes and slots. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from collections.abc import Callable

from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.migrations import SlotMigrations
from streamd.core.dispatch import ServerContext
from streamd.core.help import write_help
from streamd.core.spec import Arg, Handler, command, string

__all__: list[str] = []

NODE = (string("node-id"),)
UNSTEADY = ("nondeterministic_output",)


def declare(
    name: str, arity: int, flags: str, summary: str, *args: Arg, since: str = "3.0.0", tips: tuple[str, ...] = UNSTEADY,
    deprecated_since: str | None = None, replaced_by: str | None = None,
) -> Callable[[Handler], Handler]:  # fmt: skip
    return command(
        f"CLUSTER {name}", arity=arity, group="cluster", flags=flags, since=since, summary=summary, args=args, tips=tips,
        complexity="O(N) with N being the number of nodes", deprecated_since=deprecated_since, replaced_by=replaced_by,
    )  # fmt: skip


@declare("INFO", 2, "stale", "Returns the state of the cluster.")
def info(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    with cluster.command() as core:
        fields = [*core.describe_state(), ("total_cluster_links_buffer_limit_exceeded", cluster.links.over_limit)]
    fields += ctx.get(SlotMigrations).describe()
    ctx.reply.verbatim("txt", "".join(f"{name}:{value}\r\n" for name, value in fields).encode())


@declare("NODES", 2, "stale", "Returns the state of all nodes as this node sees it.")
def nodes(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        ctx.reply.verbatim("txt", core.describe_nodes().encode())


@declare("MYID", 2, "stale", "Returns the ID of this node.", tips=())
def my_id(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        ctx.reply.bulk(core.state.myself.id)


@declare("MYSHARDID", 2, "stale", "Returns the ID of the shard of this node.", since="7.2.0")
def my_shard_id(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        ctx.reply.bulk(core.state.myself.shard_id)


@declare(
    "SLOTS", 2, "loading stale", "Returns the slots and their nodes.", deprecated_since="7.0.0", replaced_by="`CLUSTER SHARDS`",
)  # fmt: skip
def slots(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    with cluster.command():
        ctx.reply.value(cluster.topology.describe_slots(ctx.client))


@declare("SHARDS", 2, "loading stale", "Returns the shards, their slots and nodes.", since="7.0.0")
def shards(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    with cluster.command():
        ctx.reply.value(cluster.topology.describe_shards())


@declare("LINKS", 2, "stale", "Returns the connections to other nodes.", since="7.0.0")
def links(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    with cluster.command():
        ctx.reply.value(cluster.topology.describe_links(cluster.links.unsent))


@declare("REPLICAS", 3, "admin stale", "Returns the replicas of a node.", *NODE, since="5.0.0")
def replicas(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        lines = core.describe_replicas(args[2])
    ctx.reply.value([line.encode() for line in lines])


declare(
    "SLAVES", 3, "admin stale", "Returns the replicas of a node.", *NODE, deprecated_since="5.0.0",
    replaced_by="`CLUSTER REPLICAS`",
)(replicas)  # fmt: skip


@declare("COUNT-FAILURE-REPORTS", 3, "admin stale", "Returns how many nodes report a failure.", *NODE)
def count_failure_reports(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        ctx.reply.integer(core.count_failure_reports(args[2]))


HELP = (
    "ADDSLOTS <slot> [<slot> ...]",
    "    Give slots to this node.",
    "ADDSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Give ranges of slots to this node.",
    "BUMPEPOCH",
    "    Raise the configuration epoch of this node above all others.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    How many nodes report that a node fails.",
    "COUNTKEYSINSLOT <slot>",
    "    The number of keys in a slot.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Forget the owners of slots.",
    "DELSLOTSRANGE <first> <last> [<first> <last> ...]",
    "    Forget the owners of ranges of slots.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Let this replica take over: by agreement with its primary, with the votes of others, or on its own.",
    "FLUSHSLOTS",
    "    Forget the slots of this node.",
    "FORGET <node-id>",
    "    Remove a node.",
    "GETKEYSINSLOT <slot> <count>",
    "    Keys in a slot.",
    "INFO",
    "    The state of the cluster.",
    "KEYSLOT <key>",
    "    The slot of a key.",
    "LINKS",
    "    The connections to other nodes.",
    "MEET <ip> <port> [<bus-port>]",
    "    Add another node.",
    "MIGRATION IMPORT <first> <last> [<first> <last> ...] | STATUS [ID <task-id> | ALL] | CANCEL [ID <task-id> | ALL]",
    "    Move slots to this node, and show or cancel that.",
    "MYID",
    "    The ID of this node.",
    "MYSHARDID",
    "    The ID of its shard.",
    "NODES",
    "    All nodes as this one sees them, a line for each.",
    "REPLICAS <node-id>",
    "    The replicas of a node, in the same form.",
    "REPLICATE <node-id>",
    "    Make this node a replica of another one.",
    "RESET [HARD|SOFT]",
    "    Take this node out of the cluster. Default: SOFT, which keeps its ID.",
    "SAVECONFIG",
    "    Write the configuration to the disk.",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set the configuration epoch of a new node.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
    "    Set which node a slot belongs to, or moves to.",
    "SHARDS",
    "    The shards, their slots and nodes.",
    "SLOT-STATS SLOTSRANGE <first> <last> | ORDERBY <metric> [LIMIT <limit>] [ASC|DESC]",
    "    Statistics of slots.",
    "SLOTS",
    "    The slots and their nodes.",
)


@command(
    "CLUSTER HELP", arity=2, group="cluster", flags="loading stale", since="5.0.0", summary="Lists the subcommands of CLUSTER.",
)  # fmt: skip
def show_help(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    write_help(ctx.reply, args, HELP)
