"""CLUSTER and related commands, answered like a server that is not part of a cluster.

Clients and tools send them to find that out. Behaviour: Redis 8.6 without cluster support, as seen on a running server.
"""

from __future__ import annotations

from streamd.core.context import Context
from streamd.core.spec import Arg, block, command, container, integer, multiple, oneof, optional, string, token
from streamd.errors import CommandError

__all__: list[str] = []


def disabled(ctx: Context, args: list[bytes]) -> None:
    raise CommandError("ERR This instance has cluster support disabled")


container("CLUSTER", group="cluster", since="3.0.0", summary="Groups the commands about the cluster.")

ADMIN = "admin stale no_async_loading"
UNSTEADY = ("nondeterministic_output",)
SLOT_RANGES = (multiple(block("range", integer("start-slot"), integer("end-slot"))),)
NODE = (string("node-id"),)


def _declare(
    name: str, arity: int, flags: str, summary: str, *args: Arg, since: str = "3.0.0", tips: tuple[str, ...] = (),
    complexity: str = "O(1)", replaced_by: str | None = None, deprecated_since: str | None = None,
) -> None:  # fmt: skip
    command(
        f"CLUSTER {name}", arity=arity, group="cluster", flags=flags, since=since, summary=summary, args=args, tips=tips,
        complexity=complexity, replaced_by=replaced_by, deprecated_since=deprecated_since,
    )(disabled)  # fmt: skip


_declare("ADDSLOTS", -3, ADMIN, "Gives slots to this node.", multiple(integer("slot")))
_declare("ADDSLOTSRANGE", -4, ADMIN, "Gives ranges of slots to this node.", *SLOT_RANGES, since="7.0.0")
_declare("BUMPEPOCH", 2, ADMIN, "Raises the configuration epoch.", tips=UNSTEADY)
_declare("COUNT-FAILURE-REPORTS", 3, "admin stale", "Returns how many nodes report a failure.", *NODE, tips=UNSTEADY)
_declare("COUNTKEYSINSLOT", 3, "stale", "Returns the number of keys in a slot.", integer("slot"))
_declare("DELSLOTS", -3, ADMIN, "Takes slots from their node.", multiple(integer("slot")))
_declare("DELSLOTSRANGE", -4, ADMIN, "Takes ranges of slots from their nodes.", *SLOT_RANGES, since="7.0.0")
_declare(
    "FAILOVER", -2, ADMIN, "Lets a replica take over.", optional(oneof("options", token("FORCE"), token("TAKEOVER")))
)
_declare("FLUSHSLOTS", 2, ADMIN, "Forgets all slots of this node.")
_declare("FORGET", 3, ADMIN, "Removes a node.", *NODE)
_declare("GETKEYSINSLOT", 4, "stale", "Returns keys of a slot.", integer("slot"), integer("count"), tips=UNSTEADY)
_declare("HELP", 2, "loading stale", "Lists the subcommands of CLUSTER.", since="5.0.0")
_declare("INFO", 2, "stale", "Returns the state of the cluster.", tips=UNSTEADY)
_declare("KEYSLOT", 3, "stale", "Returns the slot of a key.", string("key"))
_declare("LINKS", 2, "stale", "Returns the connections to other nodes.", since="7.0.0", tips=UNSTEADY)
_declare(
    "MEET", -4, ADMIN, "Adds another node.",
    string("ip"), integer("port"), optional(integer("cluster-bus-port", since="4.0.0")),
)  # fmt: skip
_declare(
    "MIGRATION", -4, ADMIN, "Moves slots to this node, and shows or cancels that.",
    oneof(
        "subcommand",
        multiple(block("import", integer("start-slot"), integer("end-slot"), token="IMPORT")),
        oneof("cancel", string("task-id", "ID"), token("ALL"), token="CANCEL"),
        oneof("status", optional(string("task-id", "ID")), optional(token("ALL")), token="STATUS"),
    ),
    since="8.4.0",
)  # fmt: skip
_declare("MYID", 2, "stale", "Returns the ID of this node.")
_declare("MYSHARDID", 2, "stale", "Returns the ID of the shard of this node.", since="7.2.0", tips=UNSTEADY)
_declare("NODES", 2, "stale", "Returns the state of all nodes as this node sees it.", tips=UNSTEADY)
_declare("REPLICAS", 3, "admin stale", "Returns the replicas of a node.", *NODE, since="5.0.0", tips=UNSTEADY)
_declare("REPLICATE", 3, ADMIN, "Makes this node a replica of another one.", *NODE)
_declare(
    "RESET", -2, "admin noscript stale", "Takes this node out of the cluster.",
    optional(oneof("reset-type", token("HARD"), token("SOFT"))),
)  # fmt: skip
_declare("SAVECONFIG", 2, ADMIN, "Writes the configuration of the cluster to the disk.")
_declare("SET-CONFIG-EPOCH", 3, ADMIN, "Sets the configuration epoch of a new node.", integer("config-epoch"))
_declare(
    "SETSLOT", -4, ADMIN, "Sets which node a slot belongs to, or moves to.",
    integer("slot"),
    oneof(
        "subcommand", string("importing", "IMPORTING", display="node-id"), string("migrating", "MIGRATING", display="node-id"),
        string("node", "NODE", display="node-id"), token("STABLE"),
    ),
)  # fmt: skip
_declare("SHARDS", 2, "loading stale", "Returns the shards, their slots and nodes.", since="7.0.0", tips=UNSTEADY)
_declare(
    "SLAVES", 3, "admin stale", "Returns the replicas of a node.", *NODE, tips=UNSTEADY, deprecated_since="5.0.0",
    replaced_by="`CLUSTER REPLICAS`",
)  # fmt: skip
_declare(
    "SLOT-STATS", -4, "loading stale", "Returns statistics about the slots of this node.",
    oneof(
        "filter",
        block("slotsrange", integer("start-slot"), integer("end-slot"), token="SLOTSRANGE"),
        block(
            "orderby", string("metric"), optional(integer("limit", "LIMIT")),
            optional(oneof("order", token("ASC"), token("DESC"))), token="ORDERBY",
        ),
    ),
    since="8.2.0", tips=(*UNSTEADY, "request_policy:all_shards"),
)  # fmt: skip
_declare(
    "SLOTS", 2, "loading stale", "Returns the slots and their nodes.", tips=UNSTEADY, deprecated_since="7.0.0",
    replaced_by="`CLUSTER SHARDS`",
)  # fmt: skip
_declare(
    "SYNCSLOTS", -3, ADMIN, "Used between nodes while slots move.",
    oneof(
        "subcommand",
        block(
            "sync", string("task-id"), multiple(block("slot-range", integer("start-slot"), integer("end-slot"))),
            token="SYNC",
        ),
        string("task-id", "RDBCHANNEL"), token("SNAPSHOT-EOF"), token("STREAM-EOF"),
        block("ack", string("state"), integer("offset"), token="ACK"), string("error", "FAIL"),
        block("conf", multiple(string("option")), multiple(string("value")), token="CONF"),
    ),
    since="8.4.0", tips=UNSTEADY,
)  # fmt: skip


for _name, _flags, _summary in (
    ("READONLY", "loading stale fast", "Lets a connection read from a replica in a cluster."),
    ("READWRITE", "loading stale fast", "Undoes READONLY."),
    ("ASKING", "fast", "Announces that the next request follows a redirection."),
):
    command(
        _name, arity=1, group="cluster", flags=_flags, categories="connection", since="3.0.0", summary=_summary
    )(disabled)  # fmt: skip
