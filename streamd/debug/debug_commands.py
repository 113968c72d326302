"""DEBUG: commands for tests of the server.

Only the subcommands that mean something here, and those that tune Redis's internals and that test suites send: these are
accepted and do nothing. All others are answered as unknown subcommands. Every use needs enable-debug-command.
Behaviour: Redis 8.6, as seen on a running server.

The digests are Redis's, so that data sets of both can be compared. A digest of 20 bytes takes in a piece of data either
without regard to order (`add`: exclusive or with the piece's SHA-1) or with it (`chain`: the SHA-1 of the former).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.dispatch import ServerContext
from streamd.core.enabled import check_enabled
from streamd.core.help import write_help
from streamd.core.host import Host
from streamd.core.spec import command
from streamd.debug import crash
from streamd.digests import add, chain
from streamd.errors import MUST_BE_POSITIVE, CommandError, NoSuchKeyError, one_line, printable
from streamd.integers import INT64_MAX
from streamd.keyspace.commands.expiry import Expiry
from streamd.keyspace.database import Database
from streamd.keyspace.value_type import type_of
from streamd.persistence.persistence import Persistence
from streamd.replication.replication import Replication
from streamd.settings.config import Config

__all__ = ["digest_of_all", "digest_of_value"]

log = logging.getLogger("streamd")

Handler = Callable[[ServerContext, list[bytes]], None]

# --- Digests -------------------------------------------------------------------------------------------------------

ZERO = bytes(20)


def add_value(digest: bytes, value: object, expires: bool) -> bytes:
    """Mix in a value; of an expiry, only that there is one."""
    digest = type_of(value).digest(value, digest)
    return add(digest, b"!!expire!!") if expires else digest


def digest_of_value(db: Database, key: bytes) -> bytes:
    """The digest of one value; zeros when there is none."""
    value = db.peek(key)
    return ZERO if value is None else add_value(ZERO, value, db.expiry(key) != -1)


def digest_of_all(databases: list[Database]) -> bytes:
    """The digest of all data."""
    total = ZERO
    for db in databases:
        if not len(db):
            continue
        total = chain(total, db.index.to_bytes(4, "big"))
        for key in db.keys():  # noqa: SIM118  a Database is no mapping
            value = db.peek(key)
            if value is not None:
                total = add(total, add_value(chain(ZERO, key), value, db.expiry(key) != -1))
    return total


# --- Subcommands ---------------------------------------------------------------------------------------------------


class Sub(NamedTuple):
    """A subcommand: how many arguments it takes, DEBUG and its own name included, and what it does."""

    handler: Handler
    least: int
    most: int


SUBCOMMANDS: dict[bytes, Sub] = {}


def subcommand(name: bytes, least: int, most: int | None = None) -> Callable[[Handler], Handler]:
    def declare(handler: Handler) -> Handler:
        SUBCOMMANDS[name] = Sub(handler, least, least if most is None else most)
        return handler

    return declare


@command(
    "DEBUG", arity=-2, group="server", flags="admin noscript loading stale", since="1.0.0", doc_flags="syscmd",
    summary="Groups the commands for tests of the server.", complexity="Depends on subcommand.",
)  # fmt: skip
def debug(ctx: ServerContext, args: list[bytes]) -> None:
    check_enabled("DEBUG", ctx.get(Config).enable_debug_command, ctx.client)
    found = SUBCOMMANDS.get(args[1].upper())
    if found is None or not found.least <= len(args) <= found.most:
        raise unknown(args)
    found.handler(ctx, args)


def unknown(args: list[bytes]) -> CommandError:
    name = printable(args[1][:128])
    return CommandError(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP.")


@subcommand(b"SLEEP", 3)
def sleep(ctx: ServerContext, args: list[bytes]) -> None:
    """The whole server sleeps, on purpose."""
    match = re.match(rb"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", args[2])
    seconds = float(match[0]) if match else 0.0
    if seconds > 0:
        time.sleep(seconds)
    ctx.reply.ok()


@subcommand(b"SEGFAULT", 2)
def segfault(ctx: ServerContext, args: list[bytes]) -> None:
    crash.die()


@subcommand(b"PANIC", 2)
def panic(ctx: ServerContext, args: list[bytes]) -> None:
    log.warning("Guru Meditation: called by Unittest!")
    os.abort()


@subcommand(b"OOM", 2)
def oom(ctx: ServerContext, args: list[bytes]) -> None:
    log.warning("Out Of Memory allocating %d bytes!", INT64_MAX)
    os.abort()


@subcommand(b"ASSERT", 2)
def assert_(ctx: ServerContext, args: list[bytes]) -> None:
    log.warning("=== ASSERTION FAILED ===")
    log.warning("==> '1 == 2' is not true")
    os.abort()


@subcommand(b"ERROR", 3)
def error(ctx: ServerContext, args: list[bytes]) -> None:
    raise CommandError(one_line(args[2]))


@subcommand(b"LOG", 3)
def log_message(ctx: ServerContext, args: list[bytes]) -> None:
    log.warning("DEBUG LOG: %s", args[2].decode("utf-8", "backslashreplace"))
    ctx.reply.ok()


@subcommand(b"SET-ACTIVE-EXPIRE", 3)
def set_active_expire(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Expiry).is_on = _switch(args[2])
    ctx.reply.ok()


@subcommand(b"ADVANCE-TIME", 3)
def advance_time(ctx: ServerContext, args: list[bytes]) -> None:
    """Set the server's time forward, after this command."""
    if not re.fullmatch(rb"[0-9]{1,10}(\.[0-9]{1,6})?", args[2]):
        raise CommandError("ERR seconds must be a number from 0 to 9999999999, with at most six decimal places")
    host = ctx.get(Host)
    host.loop.call_soon(host.advance, round(float(args[2]) * 1e6))
    ctx.reply.ok()


@subcommand(b"PAUSE-CRON", 3)
def pause_cron(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Host).is_cron_paused = _switch(args[2])
    ctx.reply.ok()


@subcommand(b"SET-DISABLE-DENY-SCRIPTS", 3)
def set_disable_deny_scripts(ctx: ServerContext, args: list[bytes]) -> None:
    """Let scripts call commands that are denied to them, but for those that need a connection."""
    ctx.get(Host).dispatcher.trusts_scripts = _switch(args[2])
    ctx.reply.ok()


def _switch(word: bytes) -> bool:
    """On or off, by the number that a word starts with; text is off."""
    match = re.match(rb"\s*[+-]?0*[1-9]", word)
    return match is not None


@subcommand(b"CHANGE-REPL-ID", 2)
def change_repl_id(ctx: ServerContext, args: list[bytes]) -> None:
    log.info("Changing replication IDs after receiving DEBUG change-repl-id")
    ctx.get(Replication).change_id()
    ctx.reply.ok()


@subcommand(b"QUICKLIST-PACKED-THRESHOLD", 3)
def quicklist_packed_threshold(ctx: ServerContext, args: list[bytes]) -> None:
    units = {b"": 1, b"b": 1, b"k": 1000, b"kb": 1 << 10, b"m": 10**6, b"mb": 1 << 20, b"g": 10**9, b"gb": 1 << 30}
    match = re.fullmatch(rb"([0-9]{1,18})([a-z]{0,2})", args[2].lower())
    if match is None or match[2] not in units or int(match[1]) * units[match[2]] > 1 << 32:
        raise CommandError("ERR argument must be a memory value bigger than 1 and smaller than 4gb")
    ctx.reply.ok()


def _accepted(ctx: ServerContext, args: list[bytes]) -> None:
    """For switches of Redis's internals that do not exist here."""
    ctx.reply.ok()


for _name in (b"SET-SKIP-CHECKSUM-VALIDATION", b"REPLY-COPY-AVOIDANCE", b"DICT-RESIZING"):
    subcommand(_name, 3)(_accepted)


@subcommand(b"KEYSIZES-HIST-ASSERT", 3)
def keysizes_hist_assert(ctx: ServerContext, args: list[bytes]) -> None:
    read_integer(args[2])
    ctx.reply.ok()


@subcommand(b"REPLYBUFFER", 4)
def replybuffer(ctx: ServerContext, args: list[bytes]) -> None:
    kind, value = args[2].upper(), args[3]
    if kind not in (b"PEAK-RESET-TIME", b"RESIZING"):
        raise unknown(args)
    if kind == b"PEAK-RESET-TIME" and value.upper() not in (b"NEVER", b"RESET"):
        read_integer(value)
    ctx.reply.ok()


@subcommand(b"STRINGMATCH-TEST", 2)
def stringmatch_test(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.simple("Apparently Redis did not crash: test passed")


# --- About data ----------------------------------------------------------------------------------------------------


@contextmanager
def _keeping_expired(ctx: ServerContext) -> Iterator[None]:
    """Show keys that have expired as if they had not."""
    db, ctx.db.keeps_expired = ctx.db, True
    try:
        yield
    finally:
        db.keeps_expired = False


def _record(ctx: ServerContext, key: bytes) -> Any:
    """The record of a key; raises NoSuchKeyError."""
    record = ctx.db.record(key)
    if record is None:
        raise NoSuchKeyError
    return record


@subcommand(b"OBJECT", 3)
def object_(ctx: ServerContext, args: list[bytes]) -> None:
    """Address and encoding of a value. The serialized length is its type's estimate."""
    with _keeping_expired(ctx):
        record = _record(ctx, args[2])
    length = record.type.serialized_length(record.value)
    seconds = record.accessed_ms // 1000
    idle_s = max(0, ctx.now_ms - record.accessed_ms) // 1000
    ctx.reply.simple(
        f"Value at:{id(record.value):#x} refcount:1 encoding:{record.encoding.decode()} serializedlength:{length}"
        f" lru:{seconds & 0xFFFFFF} lru_seconds_idle:{idle_s}"
    )


@subcommand(b"LISTPACK", 3)
def listpack(ctx: ServerContext, args: list[bytes]) -> None:
    _record(ctx, args[2])
    raise CommandError("ERR Not a listpack encoded object.")


@subcommand(b"QUICKLIST", 3, 4)
def quicklist(ctx: ServerContext, args: list[bytes]) -> None:
    _record(ctx, args[2])
    raise CommandError("ERR Not a quicklist encoded object.")


@subcommand(b"HTSTATS", 3, 4)
def htstats(ctx: ServerContext, args: list[bytes]) -> None:
    index = read_integer(args[2])
    if not 0 <= index < len(ctx.databases):
        raise CommandError("ERR Out of range database")
    db = ctx.databases[index]
    text = f"[Dictionary HT]\n{_table(len(db))}[Expires HT]\n{_table(db.expiring)}"
    ctx.reply.verbatim("txt", text.encode())


def _table(elements: int) -> str:
    """A hash table of Redis with this many elements; nothing when there are none."""
    if not elements:
        return ""
    size = max(4, 1 << (elements - 1).bit_length())
    return f"Hash table 0 stats (main hash table):\n table size: {size}\n number of elements: {elements}\n"


@subcommand(b"HTSTATS-KEY", 3, 4)
def htstats_key(ctx: ServerContext, args: list[bytes]) -> None:
    _record(ctx, args[2])
    raise CommandError("ERR The value stored at the specified key is not represented using an hash table")


@subcommand(b"DIGEST", 2)
def digest(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.simple(digest_of_all(ctx.databases).hex())


@subcommand(b"DIGEST-VALUE", 2, 1 << 20)
def digest_value(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.array(len(args) - 2)
    with _keeping_expired(ctx):
        for key in args[2:]:
            ctx.reply.simple(digest_of_value(ctx.db, key).hex())


@subcommand(b"POPULATE", 3, 5)
def populate(ctx: ServerContext, args: list[bytes]) -> None:
    """Add strings `key:0`, `key:1` and so on, where no key exists. This is not propagated to files and replicas."""
    count = _positive(args[2])
    prefix = args[3] if len(args) > 3 else b"key"
    size = _positive(args[4]) if len(args) > 4 else 0
    for number in range(count):
        key = b"%b:%d" % (prefix, number)
        value = b"value:%d" % number
        if ctx.db.peek(key) is None:
            ctx.db.add(key, value[:size].ljust(size, b"\0") if size else value)
    ctx.reply.ok()


def _positive(text: bytes) -> int:
    if not re.fullmatch(rb"0|[1-9][0-9]{0,18}", text) or int(text) > INT64_MAX:
        raise CommandError(MUST_BE_POSITIVE)
    return int(text)


@subcommand(b"RELOAD", 2, 5)
def reload(ctx: ServerContext, args: list[bytes]) -> None:
    """Write a snapshot and read it again. NOSAVE only reads; with NOFLUSH existing keys stay, unless they are read."""
    words = [word.upper() for word in args[2:]]
    if not {b"NOSAVE", b"NOFLUSH", b"MERGE"}.issuperset(words):
        raise CommandError("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
    ctx.get(Persistence).loader.reload(save=b"NOSAVE" not in words, flush=b"NOFLUSH" not in words)
    ctx.reply.ok()


@subcommand(b"LOADAOF", 2)
def loadaof(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Persistence).loader.reload_append_only()
    ctx.effects = []  # the commands were read from the file
    ctx.reply.ok()


# --- Types of replies ----------------------------------------------------------------------------------------------


@subcommand(b"PROTOCOL", 3)
def protocol(ctx: ServerContext, args: list[bytes]) -> None:
    write = REPLIES.get(args[2].lower())
    if write is None:
        names = "|".join(name.decode() for name in REPLIES)
        raise CommandError(f"ERR Wrong protocol type name. Please use one of the following: {names}")
    write(ctx.reply)


def _numbers(reply: Any) -> None:
    for number in range(3):
        reply.integer(number)


def _array(reply: Any) -> None:
    reply.array(3)
    _numbers(reply)


def _set(reply: Any) -> None:
    reply.set(3)
    _numbers(reply)


def _map(reply: Any) -> None:
    reply.map(3)
    for number in range(3):
        reply.integer(number)
        reply.boolean(number == 1)


def _attribute(reply: Any) -> None:
    if reply.resp == 3:
        reply.raw(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n")
    reply.bulk(b"Some real reply following the attribute")


def _push(reply: Any) -> None:
    if reply.resp == 2:
        raise CommandError("ERR RESP2 is not supported by this command")
    reply.bulk(b"Some real reply following the push reply")
    reply.push(2)
    reply.bulk(b"server-cpu-usage")
    reply.integer(42)


REPLIES: dict[bytes, Callable[[Any], object]] = {
    b"string": lambda reply: reply.bulk(b"Hello World"),
    b"integer": lambda reply: reply.integer(12345),
    b"double": lambda reply: reply.double(3.141),
    b"bignum": lambda reply: reply.big_number(1234567999999999999999999999999999999),
    b"null": lambda reply: reply.null(),
    b"array": _array,
    b"set": _set,
    b"map": _map,
    b"attrib": _attribute,
    b"push": _push,
    b"verbatim": lambda reply: reply.verbatim("txt", b"This is a verbatim\nstring"),
    b"true": lambda reply: reply.boolean(True),
    b"false": lambda reply: reply.boolean(False),
}


@subcommand(b"HELP", 2)
def help_(ctx: ServerContext, args: list[bytes]) -> None:
    write_help(
        ctx.reply,
        args,
        (
            "ASSERT",
            "    Die of an assertion.",
            "ADVANCE-TIME <seconds>",
            "    Set the server's time forward: expiries, idle times, delays, waits.",
            "ASM-FAILPOINT <channel> <state>",
            "    Break a connection of an atomic slot migration when it reaches a state; two empty words: none.",
            "ASM-TRIM-METHOD <default|none|active|bg> [<delay>]",
            "    How the keys of slots that have left are deleted; microseconds between two keys, less than 0: not at all.",
            "CHANGE-REPL-ID",
            "    Take a new replication ID.",
            "CLUSTERLINK KILL <to|from|all> <node-id>",
            "    Close the links of the cluster bus to or from a node.",
            "DIGEST",
            "    Return a digest of all data, the same as Redis's.",
            "DIGEST-VALUE <key> [<key> ...]",
            "    Return digests of values.",
            "DROP-CLUSTER-PACKET-FILTER <packet-type>",
            "    Drop packets of a type; -1: none.",
            "ERROR <string>",
            "    Answer with an error.",
            "HTSTATS <dbid>",
            "    Return the sizes of a database's tables.",
            "INTERNAL_SECRET",
            "    Return the CRC16 of the secret that the nodes of the cluster share.",
            "LOADAOF",
            "    Read the append-only file again.",
            "LOG <message>",
            "    Write a line to the log.",
            "MARK-INTERNAL-CLIENT [UNMARK]",
            "    Let this connection send what only other nodes may.",
            "OBJECT <key>",
            "    Show how a value is stored.",
            "OOM",
            "    Die as if memory had run out.",
            "PANIC",
            "    Die of a panic.",
            "PAUSE-CRON <0|1>",
            "    Stop work in the background, or resume it.",
            "POPULATE <count> [<prefix>] [<size>]",
            "    Add strings.",
            "PROTOCOL <type>",
            f"    Return a value of a type: {', '.join(name.decode() for name in REPLIES)}.",
            "RELOAD [NOSAVE] [NOFLUSH] [MERGE]",
            "    Write a snapshot and read it again.",
            "SEGFAULT",
            "    Die of a fault.",
            "SET-ACTIVE-EXPIRE <0|1>",
            "    Keep expired keys until they are accessed, or remove them as usual.",
            "SLEEP <seconds>",
            "    Stop the whole server for a while.",
        ),
    )
