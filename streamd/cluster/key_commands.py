"""The CLUSTER subcommands about the keys of slots; RESTORE-ASKING and TRIMSLOTS. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from typing import Any

from streamd.cluster.cluster import Cluster
from streamd.cluster.slot_arguments import check_count, find_number, parse_slot, parse_slot_ranges, wrong_arguments
from streamd.cluster.slot_statistics import METRICS, SlotStatistics
from streamd.core.args import is_option
from streamd.core.dispatch import ServerContext
from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.keyspace.commands.dump import restore
from streamd.keyspace.hash_slot import SLOTS, slot_of

__all__: list[str] = []

UNSTEADY = ("nondeterministic_output",)


@command(
    "CLUSTER KEYSLOT", arity=3, group="cluster", flags="stale", since="3.0.0", complexity="O(N) with N being the bytes of the key",
    summary="Returns the slot of a key.", args=(string("key"),),
)  # fmt: skip
def key_slot(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    ctx.reply.integer(slot_of(args[2]))


@command(
    "CLUSTER COUNTKEYSINSLOT", arity=3, group="cluster", flags="stale", since="3.0.0",
    summary="Returns the number of keys in a slot.", args=(integer("slot"),),
)  # fmt: skip
def count_keys_in_slot(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    slot = find_number(args[2])
    if slot is None:
        raise CommandError("ERR value is not an integer or out of range")
    if not 0 <= slot < SLOTS:
        raise CommandError("ERR Invalid slot")
    ctx.reply.integer(ctx.db.count_in_slot(slot) if cluster.shows(slot) else 0)


@command(
    "CLUSTER GETKEYSINSLOT", arity=4, group="cluster", flags="stale", since="3.0.0",
    complexity="O(N) with N being the number of keys", tips=UNSTEADY, summary="Returns keys of a slot.",
    args=(integer("slot"), integer("count")),
)  # fmt: skip
def get_keys_in_slot(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    cluster.check_on()
    slot, count = find_number(args[2]), find_number(args[3])
    if slot is None or count is None:
        raise CommandError("ERR value is not an integer or out of range")
    if not 0 <= slot < SLOTS or count < 0:
        raise CommandError("ERR Invalid slot or number of keys")
    ctx.reply.bulk_array(ctx.db.keys_in_slot(slot, count) if cluster.shows(slot) else [])


@command(
    "CLUSTER SLOT-STATS", arity=-4, group="cluster", flags="loading stale", since="8.2.0",
    complexity="O(N log(N)) with N being the number of slots", tips=(*UNSTEADY, "request_policy:all_shards"),
    summary="Returns statistics about the slots of this node.",
    args=(
        oneof(
            "filter",
            block("slotsrange", integer("start-slot"), integer("end-slot"), token="SLOTSRANGE"),
            block(
                "orderby", string("metric"), optional(integer("limit", "LIMIT")),
                optional(oneof("order", token("ASC"), token("DESC"))), token="ORDERBY",
            ),
        ),
    ),
)  # fmt: skip
def slot_stats(ctx: ServerContext, args: list[bytes]) -> None:
    cluster, statistics = ctx.get(Cluster), ctx.get(SlotStatistics)
    cluster.check_on()
    if is_option(args[2], b"SLOTSRANGE"):
        check_count(args, 5, 5)
        first, last = parse_slot(args[3]), parse_slot(args[4])
        if first > last:
            raise CommandError(f"ERR Start slot number {first} is greater than end slot number {last}")
        slots = [slot for slot in range(first, last + 1) if cluster.has_slot(slot)]
    elif is_option(args[2], b"ORDERBY"):
        slots = order_slots(cluster, statistics, args)
    else:
        raise wrong_arguments(args)
    found: list[Any] = [[slot, statistics.describe(slot)] for slot in slots]
    ctx.reply.value(found)


def order_slots(cluster: Cluster, statistics: SlotStatistics, args: list[bytes]) -> list[int]:
    """The slots of ORDERBY, in its order. Raises CommandError."""
    metric = next((name for name in METRICS if args[3].lower() == name.encode()), "")
    if metric not in statistics.metrics:
        raise CommandError("ERR Unrecognized sort metric for ORDERBY.")
    limit, is_ascending = SLOTS, False
    has_limit = has_order = False
    rest = iter(args[4:])
    for word in rest:
        if is_option(word, b"LIMIT") and (text := next(rest, None)) is not None:
            if has_limit:
                raise CommandError("ERR Multiple filters of the same type are disallowed.")
            number = find_number(text)
            if number is None or not 1 <= number <= SLOTS:
                raise CommandError("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).")
            limit, has_limit = number, True
        elif is_option(word, b"ASC") or is_option(word, b"DESC"):
            if has_order:
                raise CommandError("ERR Multiple filters of the same type are disallowed.")
            is_ascending, has_order = is_option(word, b"ASC"), True
        else:
            raise OptionSyntaxError
    sign = 1 if is_ascending else -1
    slots = [slot for slot in range(SLOTS) if cluster.has_slot(slot)]
    return sorted(slots, key=lambda slot: (sign * statistics.value(metric, slot), slot))[:limit]


# --- Moving slots ----------------------------------------------------------------------------------------------------------


command(
    "RESTORE-ASKING", arity=-4, group="server", flags="write denyoom asking", categories="keyspace dangerous", since="3.0.0",
    keys=KeysAt(1, flags="OW update"), complexity="O(N) with N being the bytes of the value", doc_flags="syscmd",
    summary="Creates a key of a slot that is being moved to this node; sent by MIGRATE.",
    history=(("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`."), ("5.0.0", "`IDLETIME` and `FREQ`.")),
    args=(
        key(), integer("ttl"), string("serialized-value"), optional(token("REPLACE"), since="3.0.0"),
        optional(token("ABSTTL"), since="5.0.0"), optional(integer("seconds", "IDLETIME"), since="5.0.0"),
        optional(integer("frequency", "FREQ"), since="5.0.0"),
    ),
)(restore)  # fmt: skip


@command(
    "TRIMSLOTS", arity=-5, group="server", flags="write", categories="keyspace dangerous", since="8.4.0",
    complexity="O(N) with N being the number of keys in the slots",
    summary="Deletes the keys of slots that have left; sent by primaries to their replicas.",
    args=(
        block(
            "ranges", integer("numranges"), multiple(block("slots", integer("startslot"), integer("endslot"))), token="RANGES",
        ),
    ),
)  # fmt: skip
def trim_slots(ctx: ServerContext, args: list[bytes]) -> None:
    cluster = ctx.get(Cluster)
    if not is_option(args[1], b"RANGES"):
        raise CommandError("ERR missing ranges argument")
    count = find_number(args[2])
    if count is None or count < 1 or len(args) != 3 + 2 * count:
        raise CommandError("ERR invalid number of ranges")
    slots = [slot for first, last in parse_slot_ranges(args[3:]) for slot in range(first, last + 1)]
    cluster.check_on()
    if not ctx.is_replaying:
        served = next((slot for slot in slots if cluster.has_slot(slot)), None)
        if served is not None:
            raise CommandError(f"ERR the slot {served} is served by this node")
    for slot in slots:
        for name in ctx.db.keys_in_slot(slot, len(ctx.db)):
            ctx.db.delete(name)
    ctx.dirty += 1
    ctx.reply.ok()
