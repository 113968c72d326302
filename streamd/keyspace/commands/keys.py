"""Commands for keys of any type and for whole databases. SELECT belongs to the connection.

Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from streamd.core.args import database_index
from streamd.core.args import integer as read_integer
from streamd.core.context import BlockRequest, Context
from streamd.core.dispatch import Dispatcher
from streamd.core.help import declare_help
from streamd.core.scans import parse_cursor
from streamd.core.spec import (
    KeysAt,
    command,
    container,
    integer,
    key,
    oneof,
    optional,
    pattern,
    string,
    token,
)
from streamd.engine.glob import Glob
from streamd.errors import (
    NO_SUCH_DATABASE,
    CommandError,
    NoSuchKeyError,
    OptionSyntaxError,
)
from streamd.keyspace.commands.expiry import Expiry
from streamd.keyspace.commands.freeing import Freeing
from streamd.keyspace.database import Database, KeyView
from streamd.keyspace.key_record import ACCESS_MODES

__all__ = ["ScanOptions", "database_at"]


# --- Shared by the handlers ------------------------------------------------------------------------------------------

SAME_OBJECTS = "ERR source and destination objects are the same"


def database_at(ctx: Context, index: int) -> Database:
    """A database by its number, with its clock set to the time of this command; CommandError if it does not exist."""
    if not 0 <= index < len(ctx.databases):
        raise CommandError(NO_SUCH_DATABASE)
    db: Database = ctx.databases[index]
    db.now_ms = ctx.now_ms
    return db


# --- Keys: any, and how many -----------------------------------------------------------------------------------------


@command(
    "RANDOMKEY", arity=1, group="generic", flags="readonly", since="1.0.0", summary="Returns the name of any key.",
    tips=("request_policy:all_shards", "response_policy:special", "nondeterministic_output"),
)  # fmt: skip
def randomkey(ctx: Context, args: list[bytes]) -> None:
    ctx.reply.bulk(ctx.db.random_key())


@command(
    "DBSIZE", arity=1, group="server", flags="readonly fast", categories="keyspace", since="1.0.0",
    tips=("request_policy:all_shards", "response_policy:agg_sum"), summary="Returns the number of keys.",
)  # fmt: skip
def dbsize(ctx: Context, args: list[bytes]) -> None:
    # As in Redis, a replica of a cluster does not count keys that it does not show, nor does a primary while slots arrive or leave.
    db = ctx.db
    is_hiding = db.by_slot and (ctx.get(Dispatcher).is_replica or ctx.get(Expiry).has_arrivals or db.leaving)
    ctx.reply.integer(db.count_shown() if is_hiding else len(db))


# --- All keys: KEYS, SCAN --------------------------------------------------------------------------------------------


@command(
    "KEYS", arity=2, group="generic", flags="readonly", categories="dangerous", since="1.0.0",
    complexity="O(N) with N being the number of keys in the database",
    tips=("request_policy:all_shards", "nondeterministic_output_order"),
    summary="Returns the names of all keys that match a pattern.", args=(pattern("pattern"),),
)  # fmt: skip
def keys_(ctx: Context, args: list[bytes]) -> None:
    found = ctx.db.keys()
    ctx.reply.bulk_array(found if args[1] == b"*" else list(filter(Glob(args[1]).match, found)))


class ScanOptions(NamedTuple):
    """The options after the cursor of a SCAN.

    pattern    what the names must match, or None
    limit      number of keys to visit (COUNT)
    type_name  the type the keys must have, in lower case, or None
    """

    pattern: bytes | None = None
    limit: int = 10
    type_name: bytes | None = None

    @classmethod
    def parse(cls, words: list[bytes]) -> ScanOptions:
        """Read the options; the last one of each kind counts. OptionSyntaxError, NotIntegerError."""
        wanted, limit, kind = None, 10, None
        for at in range(0, len(words), 2):
            word = words[at].upper()
            if at + 1 == len(words) or word not in (b"COUNT", b"MATCH", b"TYPE"):
                raise OptionSyntaxError
            operand = words[at + 1]
            if word == b"MATCH":
                wanted = operand
            elif word == b"TYPE":
                kind = operand.lower()
            else:
                limit = read_integer(operand)
                if limit < 1:
                    raise OptionSyntaxError
        return cls(wanted, limit, kind)


@command(
    "SCAN", arity=-2, group="generic", flags="readonly", since="2.8.0",
    complexity="O(1) for every call, O(N) for all calls together with N being the number of keys in the database",
    tips=("nondeterministic_output", "request_policy:special", "response_policy:special"),
    history=(("6.0.0", "`TYPE`."),), summary="Returns the names of keys, some with each call.",
    args=(
        integer("cursor"), optional(pattern("pattern", "MATCH")), optional(integer("count", "COUNT")),
        optional(string("type", "TYPE"), since="6.0.0"),
    ),
)  # fmt: skip
def scan(ctx: Context, args: list[bytes]) -> None:
    cursor = parse_cursor(args[1])
    options = ScanOptions.parse(args[2:])
    cursor, records = ctx.db.scan(cursor, options.limit)
    if options.type_name is not None:
        records = [record for record in records if record.type.name == options.type_name]
    names = [record.key for record in records]
    wanted = options.pattern
    if wanted is not None and wanted != b"*":
        names = list(filter(Glob(wanted).match, names))
    ctx.reply.array(2)
    ctx.reply.bulk(b"%d" % cursor)
    ctx.reply.bulk_array(names)


# --- Keys: renaming, moving, copying ---------------------------------------------------------------------------------


@command(
    "RENAME", arity=3, group="generic", flags="write", since="1.0.0",
    keys=(KeysAt(1, flags="RW access delete"), KeysAt(2, flags="OW update")),
    summary="Renames a key, and overwrites a key that has the new name.", args=(key(), key("newkey", 1)),
)  # fmt: skip
def rename(ctx: Context, args: list[bytes]) -> None:
    _, name, new_name = args
    if not ctx.db.rename(name, new_name):
        raise NoSuchKeyError
    ctx.dirty += name != new_name
    ctx.reply.ok()


@command(
    "RENAMENX", arity=3, group="generic", flags="write fast", since="1.0.0",
    keys=(KeysAt(1, flags="RW access delete"), KeysAt(2, flags="OW insert")),
    history=(("3.2.0", "The same name twice is no longer an error."),),
    summary="Renames a key if the new name is not in use.", args=(key(), key("newkey", 1)),
)  # fmt: skip
def renamenx(ctx: Context, args: list[bytes]) -> None:
    _, name, new_name = args
    if name not in ctx.db:
        raise NoSuchKeyError
    is_free = new_name not in ctx.db
    if is_free:
        ctx.db.rename(name, new_name)
        ctx.dirty += 1
    ctx.reply.integer(is_free)


@command(
    "MOVE", arity=3, group="generic", flags="write fast", keys=KeysAt(1, flags="RW access update"), since="1.0.0",
    summary="Moves a key to another database.", args=(key(), integer("db")),
)  # fmt: skip
def move(ctx: Context, args: list[bytes]) -> None:
    if ctx.config.cluster_enabled:
        raise CommandError("ERR MOVE is not allowed in cluster mode")
    target = database_at(ctx, database_index(args[2]))
    if target is ctx.db:
        raise CommandError(SAME_OBJECTS)
    is_moved = ctx.db.move(args[1], target)
    ctx.dirty += is_moved
    ctx.reply.integer(is_moved)


@command(
    "COPY", arity=-3, group="generic", flags="write denyoom", since="6.2.0",
    keys=(KeysAt(1), KeysAt(2, flags="OW update")), complexity="O(N) with N being the number of entries of a stream",
    summary="Copies the value of a key to another key.",
    args=(
        key("source"), key("destination", 1), optional(integer("destination-db", "DB")),
        optional(token("REPLACE")),
    ),
)  # fmt: skip
def copy(ctx: Context, args: list[bytes]) -> None:
    name, new_name = args[1], args[2]
    target, replaces = ctx.db, False
    rest = iter(args[3:])
    for text in rest:
        word = text.upper()
        if word == b"REPLACE":
            replaces = True
        elif word == b"DB" and (index := next(rest, None)) is not None:
            target = database_at(ctx, database_index(index))
        else:
            raise OptionSyntaxError
    if target is ctx.db and name == new_name:
        raise CommandError(SAME_OBJECTS)
    is_copied = ctx.db.find(name) is not None and (replaces or new_name not in target)
    if is_copied:
        ctx.db.copy(name, target, new_name)
        ctx.dirty += 1
    ctx.reply.integer(is_copied)


# --- Whole databases -------------------------------------------------------------------------------------------------

FLUSH_TYPE = optional(oneof("flush-type", token("ASYNC", since="4.0.0"), token("SYNC", since="6.2.0")))
FLUSH_HISTORY = (("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`."))
ALL_SHARDS = ("request_policy:all_shards", "response_policy:all_succeeded")


def _flush(ctx: Context, databases: list[Database], args: list[bytes], *, is_all: bool = False) -> None:
    """Empty databases; `is_all`: these are all databases. With SYNC the client waits until the memory is freed."""
    words = args[1:]
    if len(words) > 1 or (words and words[0].upper() not in (b"ASYNC", b"SYNC")):
        raise OptionSyntaxError
    # A client that caches what it reads is notified of its own flush after the reply if the reply does not wait for the
    # memory to be freed, and before it otherwise.
    is_async = words[0].upper() == b"ASYNC" if words else ctx.config.lazyfree_lazy_user_flush
    if is_async:
        ctx.reply.ok()
    for db in databases:
        ctx.dirty += len(db)
        db.flush()
    if is_all:
        ctx.data_dropped()
    ctx.propagate(args)  # even when nothing was there: a replica may have keys that this server does not have
    if not is_async:
        _answer_flush(ctx, args)


def _answer_flush(ctx: Context, args: list[bytes]) -> None:
    """Answer OK when the memory of what was flushed has been freed."""
    freeing = ctx.find(Freeing)
    if freeing is None or ctx.in_transaction or not freeing.has_more():
        ctx.reply.ok()
        return
    ctx.block_on(BlockRequest([], args, 0, timeout_reply=lambda: b"+OK\r\n", can_unblock=False))
    freeing.answer_when_done(ctx.client)


@command(
    "FLUSHDB", arity=-1, group="server", flags="write", categories="keyspace dangerous", since="1.0.0",
    complexity="O(1); memory is freed later", tips=ALL_SHARDS, history=FLUSH_HISTORY,
    summary="Deletes all keys of the selected database.", args=(FLUSH_TYPE,),
)  # fmt: skip
def flushdb(ctx: Context, args: list[bytes]) -> None:
    _flush(ctx, [ctx.db], args)


@command(
    "FLUSHALL", arity=-1, group="server", flags="write", categories="keyspace dangerous", since="1.0.0",
    complexity="O(1); memory is freed later", tips=ALL_SHARDS, history=FLUSH_HISTORY,
    summary="Deletes all keys of all databases.", args=(FLUSH_TYPE,),
)  # fmt: skip
def flushall(ctx: Context, args: list[bytes]) -> None:
    _flush(ctx, ctx.databases, args, is_all=True)


def _swap_index(text: bytes, which: str) -> int:
    try:
        return database_index(text)
    except CommandError:
        raise CommandError(f"ERR invalid {which} DB index") from None


@command(
    "SWAPDB", arity=3, group="server", flags="write fast", categories="keyspace dangerous", since="4.0.0",
    complexity="O(N) with N being the number of keys that clients wait for in the two databases",
    summary="Exchanges the keys of two databases.", args=(integer("index1"), integer("index2")),
)  # fmt: skip
def swapdb(ctx: Context, args: list[bytes]) -> None:
    if ctx.config.cluster_enabled:
        raise CommandError("ERR SWAPDB is not allowed in cluster mode")
    first, second = _swap_index(args[1], "first"), _swap_index(args[2], "second")
    one, other = database_at(ctx, first), database_at(ctx, second)
    if one is not other:
        one.swap_with(other)
    ctx.dirty += 1
    ctx.reply.ok()


# --- OBJECT ----------------------------------------------------------------------------------------------------------

container("OBJECT", group="generic", since="2.2.3", summary="Groups the commands about the representation of values.")


def _object(name: str, since: str, summary: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The declaration of a subcommand that inspects a key."""
    return command(
        f"OBJECT {name}", arity=3, group="generic", flags="readonly", keys=KeysAt(2, flags="RO"), since=since, summary=summary,
        tips=("nondeterministic_output",), args=(key(),),
    )  # fmt: skip


def _look_at(ctx: Context, name: bytes) -> KeyView | None:
    """The record of a key, or None; counts as a lookup, but not as an access, and is not reported."""
    return None if ctx.db.find_untouched(name, False) is None else ctx.db.record(name)


def _counts_uses(ctx: Context) -> bool:
    """Whether the eviction policy depends on how often keys are used."""
    return ctx.db.access_mode == ACCESS_MODES["frequency"]


@_object("ENCODING", "2.2.3", "Returns the name of the way in which Redis would store what a key holds.")
def object_encoding(ctx: Context, args: list[bytes]) -> None:
    record = _look_at(ctx, args[2])
    ctx.reply.bulk(None if record is None else record.encoding)


@_object("REFCOUNT", "2.2.3", "Returns the number of references to what a key holds, which is always 1.")
def object_refcount(ctx: Context, args: list[bytes]) -> None:
    if _look_at(ctx, args[2]) is None:
        ctx.reply.null()
    else:
        ctx.reply.integer(1)


@_object("IDLETIME", "2.2.3", "Returns the number of seconds since a key was last used.")
def object_idletime(ctx: Context, args: list[bytes]) -> None:
    record = _look_at(ctx, args[2])
    if record is None:
        ctx.reply.null()
    elif _counts_uses(ctx):
        raise CommandError(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between"
            " policies at runtime LRU and LFU data will take some time to adjust."
        )
    else:
        ctx.reply.integer(max(0, ctx.now_ms - record.accessed_ms) // 1000)


@_object("FREQ", "4.0.0", "Returns how often a key is used; only with a maxmemory policy that counts it.")
def object_freq(ctx: Context, args: list[bytes]) -> None:
    if _look_at(ctx, args[2]) is None:
        ctx.reply.null()
        return
    if _counts_uses(ctx):
        ctx.reply.integer(ctx.db.frequency(args[2]))
        return
    raise CommandError(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching"
        " between policies at runtime LRU and LFU data will take some time to adjust."
    )


declare_help(
    "OBJECT", "generic", "6.2.0",
    "ENCODING <key>",
    "    The way in which Redis would store what the key holds.",
    "FREQ <key>",
    "    How often the key is used, on a logarithmic scale.",
    "IDLETIME <key>",
    "    Seconds since the key was last used.",
    "REFCOUNT <key>",
    "    References to what the key holds.",
)  # fmt: skip
