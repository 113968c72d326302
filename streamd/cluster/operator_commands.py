"""The CLUSTER subcommands that change something. The core decides what is allowed. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from collections.abc import Callable

from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.migrations import SlotMigrations
from streamd.cluster.slot_arguments import check_count, find_number, parse_address, parse_slot, parse_slot_ranges
from streamd.core.args import is_option
from streamd.core.dispatch import ServerContext
from streamd.core.spec import Arg, Handler, block, command, container, integer, multiple, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError

__all__: list[str] = []

ADMIN = "admin stale no_async_loading"
NODE = (string("node-id"),)
SLOT_RANGES = (multiple(block("range", integer("start-slot"), integer("end-slot"))),)
BAD_SETSLOT = "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"

container("CLUSTER", group="cluster", since="3.0.0", summary="Groups the commands about the cluster.")


def declare(
    name: str, arity: int, summary: str, *args: Arg, flags: str = ADMIN, since: str = "3.0.0", complexity: str = "O(1)",
    tips: tuple[str, ...] = (),
) -> Callable[[Handler], Handler]:  # fmt: skip
    return command(
        f"CLUSTER {name}", arity=arity, group="cluster", flags=flags, since=since, summary=summary, args=args, tips=tips,
        complexity=complexity,
    )  # fmt: skip


# --- Nodes -----------------------------------------------------------------------------------------------------------


@declare(
    "MEET", -4, "Adds another node.",
    string("ip"), integer("port"), optional(integer("cluster-bus-port", since="4.0.0")),
)  # fmt: skip
def meet(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    check_count(args, 4, 5)
    place = parse_address(args[2], args[3], args[4] if len(args) == 5 else None)
    with cluster.command() as core:
        core.meet(*place)
    ctx.reply.ok()


@declare("FORGET", 3, "Removes a node.", *NODE)
def forget(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        core.forget(args[2])
    ctx.reply.ok()


@declare("REPLICATE", 3, "Makes this node a replica of another one.", *NODE)
def replicate(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        core.replicate(args[2])
    ctx.reply.ok()


@declare("FAILOVER", -2, "Lets a replica take over.", optional(oneof("options", token("FORCE"), token("TAKEOVER"))))
def failover(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    check_count(args, 2, 3)
    mode = args[2].lower().decode("latin-1") if len(args) == 3 else ""
    if mode not in ("", "force", "takeover"):
        raise OptionSyntaxError
    with cluster.command() as core:
        core.fail_over(mode)
    ctx.reply.ok()


@declare(
    "RESET", -2, "Takes this node out of the cluster.", optional(oneof("reset-type", token("HARD"), token("SOFT"))),
    flags="admin noscript stale",
)  # fmt: skip
def reset(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    check_count(args, 2, 3)
    is_hard = len(args) == 3 and is_option(args[2], b"HARD")
    if len(args) == 3 and not is_hard and not is_option(args[2], b"SOFT"):
        raise OptionSyntaxError
    with cluster.command() as core:
        core.reset(hard=is_hard)
    ctx.reply.ok()


# --- Epochs and the file -----------------------------------------------------------------------------------------------


@declare("SET-CONFIG-EPOCH", 3, "Sets the configuration epoch of a new node.", integer("config-epoch"))
def set_config_epoch(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    epoch = find_number(args[2])
    if epoch is None:
        raise CommandError("ERR value is not an integer or out of range")
    with cluster.command() as core:
        core.set_config_epoch(epoch)
    ctx.reply.ok()


@declare("BUMPEPOCH", 2, "Raises the configuration epoch.", tips=("nondeterministic_output",))
def bump_epoch(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        reply = core.bump_epoch()
    ctx.reply.simple(reply)


@declare("SAVECONFIG", 2, "Writes the configuration of the cluster to the disk.")
def save_config(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        core.save_config()
    ctx.reply.ok()


# --- Slots ---------------------------------------------------------------------------------------------------------------


@declare("ADDSLOTS", -3, "Gives slots to this node.", multiple(integer("slot")))
def add_slots(ctx: ServerContext, args: list[bytes]) -> None:
    slots = read_slots(ctx, args)
    with ctx.get(Cluster).command() as core:
        core.add_slots(slots)
    ctx.reply.ok()


@declare("ADDSLOTSRANGE", -4, "Gives ranges of slots to this node.", *SLOT_RANGES, since="7.0.0")
def add_slots_range(ctx: ServerContext, args: list[bytes]) -> None:
    slots = read_ranges(ctx, args)
    with ctx.get(Cluster).command() as core:
        core.add_slots(slots)
    ctx.reply.ok()


@declare("DELSLOTS", -3, "Takes slots from their node.", multiple(integer("slot")))
def delete_slots(ctx: ServerContext, args: list[bytes]) -> None:
    slots = read_slots(ctx, args)
    with ctx.get(Cluster).command() as core:
        core.delete_slots(slots)
    ctx.reply.ok()


@declare("DELSLOTSRANGE", -4, "Takes ranges of slots from their nodes.", *SLOT_RANGES, since="7.0.0")
def delete_slots_range(ctx: ServerContext, args: list[bytes]) -> None:
    slots = read_ranges(ctx, args)
    with ctx.get(Cluster).command() as core:
        core.delete_slots(slots)
    ctx.reply.ok()


@declare("FLUSHSLOTS", 2, "Forgets all slots of this node.")
def flush_slots(ctx: ServerContext, args: list[bytes]) -> None:
    with ctx.get(Cluster).command() as core:
        core.flush_slots()
    ctx.reply.ok()


@declare(
    "SETSLOT", -4, "Sets which node a slot belongs to, or moves to.",
    integer("slot"),
    oneof(
        "subcommand", string("importing", "IMPORTING", display="node-id"), string("migrating", "MIGRATING", display="node-id"),
        string("node", "NODE", display="node-id"), token("STABLE"),
    ),
)  # fmt: skip
def set_slot(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    if cluster.core.state.myself.is_replica:
        raise CommandError("ERR Please use SETSLOT only with masters.")
    slot = parse_slot(args[2])
    action, node = args[3].upper(), args[4:]
    if len(node) != (0 if action == b"STABLE" else 1) or action not in (b"STABLE", b"MIGRATING", b"IMPORTING", b"NODE"):
        raise CommandError(BAD_SETSLOT)
    ctx.get(SlotMigrations).check_stable(slot)
    with cluster.command() as core:
        if action == b"MIGRATING":
            core.set_slot_migrating(slot, *node)
        elif action == b"IMPORTING":
            core.set_slot_importing(slot, *node)
        elif action == b"STABLE":
            core.set_slot_stable(slot)
        else:
            core.set_slot_node(slot, node[0], ctx.db.count_in_slot(slot))
    ctx.reply.ok()


def read_slots(ctx: ServerContext, args: list[bytes]) -> list[int]:
    """The slots that a request lists. Raises CommandError."""
    ctx.get(Cluster).check_on()
    return [parse_slot(word) for word in args[2:]]


def read_ranges(ctx: ServerContext, args: list[bytes]) -> list[int]:
    """The slots of all ranges. Raises CommandError."""
    ctx.get(Cluster).check_on()
    if len(args) % 2:
        raise CommandError(f"ERR wrong number of arguments for 'cluster|{args[1].lower().decode('latin-1')}' command")
    return [slot for first, last in parse_slot_ranges(args[2:]) for slot in range(first, last + 1)]
