"""MEMORY: what keys and the server take.

Behaviour: Redis 8.6, as seen on a running server; the numbers are those of this server.
"""

from __future__ import annotations

from streamd.core.args import integer as read_integer
from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import KeysAt, command, container, integer, key, optional
from streamd.errors import OptionSyntaxError
from streamd.memory.accounting import Memory

__all__: list[str] = []

ALL_NODES = ("request_policy:all_shards", "response_policy:special", "nondeterministic_output")


container("MEMORY", group="server", since="4.0.0", summary="Groups the commands about memory.")


@command(
    "MEMORY USAGE", arity=-3, group="server", flags="readonly", keys=KeysAt(2, flags="RO"), since="4.0.0",
    complexity="O(N) with N being the number of consumer groups and consumers",
    summary="Returns the bytes of memory that a key and its value use.",
    args=(key(), optional(integer("count", "SAMPLES"))),
)  # fmt: skip
def memory_usage(ctx: ServerContext, args: list[bytes]) -> None:
    """SAMPLES is parsed but not used: the size of nested values is known exactly."""
    rest = iter(args[3:])
    for word in rest:
        count = next(rest, None)
        if word.upper() != b"SAMPLES" or count is None:
            raise OptionSyntaxError
        if read_integer(count) < 0:
            raise OptionSyntaxError
    size = ctx.db.key_memory(args[2])
    if size < 0:
        ctx.reply.null()
    else:
        ctx.reply.integer(size)


@command(
    "MEMORY STATS", arity=2, group="server", since="4.0.0", tips=ALL_NODES,
    summary="Returns how the memory of the server is used.",
)  # fmt: skip
def memory_stats(ctx: ServerContext, args: list[bytes]) -> None:
    fields = ctx.get(Memory).statistics()
    ctx.reply.map(len(fields))
    for name, value in fields:
        ctx.reply.bulk_str(name)
        if isinstance(value, dict):
            ctx.reply.map(len(value))
            for inner, number in value.items():
                ctx.reply.bulk_str(inner)
                ctx.reply.integer(number)
        elif isinstance(value, float):
            ctx.reply.double(value)
        else:
            ctx.reply.integer(value)


@command(
    "MEMORY DOCTOR", arity=2, group="server", since="4.0.0", tips=ALL_NODES,
    summary="Returns a report on problems with the memory of the server.",
)  # fmt: skip
def memory_doctor(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", ctx.get(Memory).diagnosis().encode())


@command(
    "MEMORY PURGE", arity=2, group="server", since="4.0.0",
    tips=("request_policy:all_shards", "response_policy:all_succeeded"),
    summary="Returns free memory to the system.",
)  # fmt: skip
def memory_purge(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Memory).purge()
    ctx.reply.ok()


@command(
    "MEMORY MALLOC-STATS", arity=2, group="server", since="4.0.0", tips=ALL_NODES,
    summary="Returns the allocators' own statistics.",
)  # fmt: skip
def memory_malloc_stats(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", ctx.get(Memory).allocator().encode())


declare_help(
    "MEMORY", "server", "4.0.0",
    "DOCTOR",
    "    Report problems with the memory.",
    "MALLOC-STATS",
    "    Show the allocators' own statistics.",
    "PURGE",
    "    Return free memory to the system.",
    "STATS",
    "    Show what the memory of the server is used for.",
    "USAGE <key> [SAMPLES <count>]",
    "    Show the bytes that the key and its value use. <count> is accepted and has",
    "    no effect: the figure is exact without it.",
)  # fmt: skip
