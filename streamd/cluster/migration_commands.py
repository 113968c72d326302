"""CLUSTER MIGRATION, by which operators move slots, and CLUSTER SYNCSLOTS, by which nodes do. Behaviour: Redis 8.6, as seen on running servers."""

from __future__ import annotations

from typing import Any

from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.migrations import SlotMigrations
from streamd.cluster.slot_arguments import find_number, parse_slot
from streamd.core.args import is_option
from streamd.core.dispatch import ServerContext
from streamd.core.spec import block, command, integer, multiple, oneof, optional, string, token
from streamd.errors import CommandError

__all__: list[str] = []

UNSTEADY = ("nondeterministic_output",)
UNKNOWN = "ERR unknown argument"
BAD_SYNCSLOTS = "ERR CLUSTER SYNCSLOTS subcommand or number of arguments is not valid"


@command(
    "CLUSTER MIGRATION", arity=-4, group="cluster", flags="admin stale no_async_loading", since="8.4.0",
    complexity="O(N) with N being the number of slots", summary="Moves slots to this node, and shows or cancels that.",
    args=(
        oneof(
            "subcommand",
            multiple(block("import", integer("start-slot"), integer("end-slot"), token="IMPORT")),
            oneof("cancel", string("task-id", "ID"), token("ALL"), token="CANCEL"),
            oneof("status", optional(string("task-id", "ID")), optional(token("ALL")), token="STATUS"),
        ),
    ),
)  # fmt: skip
def migration(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    migrations = ctx.get(SlotMigrations)
    if is_option(args[2], b"IMPORT"):
        ctx.reply.bulk(migrations.begin_import(read_ranges(args[3:], args)))
    elif is_option(args[2], b"STATUS"):
        found: list[Any] = [task.describe() for task in migrations.find(read_id(args))]
        ctx.reply.value(found)
    elif is_option(args[2], b"CANCEL"):
        ctx.reply.integer(migrations.cancel(read_id(args)))
    else:
        raise CommandError(UNKNOWN)


def wrong_count(args: list[bytes]) -> CommandError:
    return CommandError(f"ERR wrong number of arguments for 'cluster|{args[1].lower().decode('latin-1')}' command")


def read_id(args: list[bytes]) -> bytes | None:
    """The ID of STATUS and CANCEL; None for ALL. Raises CommandError."""
    if is_option(args[3], b"ID"):
        if len(args) != 5:
            raise wrong_count(args)
        return args[4]
    if not is_option(args[3], b"ALL"):
        raise CommandError(UNKNOWN)
    if len(args) != 4:
        raise wrong_count(args)
    return None


def read_ranges(words: list[bytes], args: list[bytes]) -> list[tuple[int, int]]:
    """Ranges of slots that do not overlap. Raises CommandError."""
    if len(words) % 2 or not words:
        raise wrong_count(args)
    found: list[tuple[int, int]] = []
    for first_word, last_word in zip(words[::2], words[1::2], strict=True):
        first, last = parse_slot(first_word), parse_slot(last_word)
        if first > last:
            raise CommandError(f"ERR start slot number {first} is greater than end slot number {last}")
        for other_first, other_last in found:
            if first <= other_last and other_first <= last:
                raise CommandError(f"ERR Slot {max(first, other_first)} specified multiple times")
        found.append((first, last))
    return found


@command(
    "CLUSTER SYNCSLOTS", arity=-3, group="cluster", flags="admin stale no_async_loading", since="8.4.0", tips=UNSTEADY,
    summary="Used between nodes while slots move.",
    args=(
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
    ),
)  # fmt: skip
def sync_slots(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Cluster).check_on()
    migrations = ctx.get(SlotMigrations)
    if ctx.is_replaying:
        if is_option(args[2], b"CONF") and len(args) == 5 and is_option(args[3], b"ASM-TASK"):
            migrations.primary_says(args[4])
            ctx.dirty += 1
        ctx.reply.ok()
        return
    if not migrations.is_node(ctx.client):
        ctx.client.close_after_reply = True
        raise CommandError("ERR CLUSTER SYNCSLOTS subcommands are only allowed for internal clients")
    if is_option(args[2], b"CONF"):
        configure(ctx, migrations, args)
    elif is_option(args[2], b"SYNC") and len(args) >= 6:
        migrations.begin_handover(ctx.client, args[3], read_ranges(args[4:], args))
        ctx.client.become_replica()
        ctx.reply.simple("RDBCHANNELSYNCSLOTS")
    elif is_option(args[2], b"RDBCHANNEL") and len(args) == 4:
        migrations.open_channel(ctx.client, args[3])
    elif is_option(args[2], b"ACK") and len(args) == 5:
        applied = find_number(args[4])
        if applied is not None:
            migrations.acknowledge(ctx.client, applied)
    elif is_option(args[2], b"FAIL") and len(args) == 4:
        migrations.peer_failed(ctx.client, args[3].decode("utf-8", "replace"))
    else:
        raise CommandError(BAD_SYNCSLOTS)


def configure(ctx: ServerContext, migrations: SlotMigrations, args: list[bytes]) -> None:
    """CONF: what another node says of itself."""
    if len(args) % 2 == 0:
        raise CommandError(BAD_SYNCSLOTS)
    for option, value in zip(args[3::2], args[4::2], strict=True):
        if is_option(option, b"NODE-ID"):
            migrations.name_node(ctx.client, value)
    ctx.reply.ok()
