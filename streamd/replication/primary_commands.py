"""The commands that replicas send, and those that wait for replicas. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

import logging
from contextlib import suppress

from streamd.core.args import integer as read_integer
from streamd.core.args import is_option, parse_timeout
from streamd.core.context import BlockRequest
from streamd.core.dispatch import ServerContext
from streamd.core.spec import command, integer, string
from streamd.errors import MUST_BE_POSITIVE, CommandError, OptionSyntaxError
from streamd.replication.durability import Durability
from streamd.replication.failover import Failover
from streamd.replication.following import Following
from streamd.replication.primary import Primary
from streamd.replication.replica import Replica
from streamd.replication.replication import Replication
from streamd.replication.views import Views
from streamd.replication.wait_commands import Waiting

__all__: list[str] = []

log = logging.getLogger("streamd")

LONGEST_ADDRESS = 255
CAPABILITIES = frozenset({"eof", "psync2", "rdb-channel-repl"})


# --- Asking for the stream -------------------------------------------------------------------------------------------


@command(
    "PSYNC", arity=-3, group="server", flags="admin noscript no_async_loading no_multi", since="2.8.0",
    summary="Requests the replication stream from an offset on; sent by replicas.",
    args=(string("replicationid"), integer("offset")),
)  # fmt: skip
def psync(ctx: ServerContext, args: list[bytes]) -> None:
    is_handed_over = len(args) > 3 and is_option(args[3], b"FAILOVER")
    if is_handed_over:
        take_over(ctx, args[1].decode("latin-1"))
    replica = check_sync(ctx, is_handed_over=is_handed_over)
    if replica is not None:
        ctx.get(Primary).attach(replica, args[1].decode("latin-1"), read_integer(args[2]))


def take_over(ctx: ServerContext, replid: str) -> None:
    """The primary of this server asks it to become the primary. Raises CommandError."""
    following = ctx.get(Following)
    if not following.is_replica:
        raise CommandError("ERR PSYNC FAILOVER can't be sent to a master.")
    if replid.lower() != ctx.get(Replication).replid:
        raise CommandError("ERR PSYNC FAILOVER replid must match my replid.")
    following.promote()
    log.info("MASTER MODE enabled (failover request from '%s')", ctx.client.address)


@command(
    "SYNC", arity=1, group="server", flags="admin noscript no_async_loading no_multi", since="1.0.0",
    summary="Requests a snapshot and the replication stream; sent by old replicas.",
)  # fmt: skip
def sync(ctx: ServerContext, args: list[bytes]) -> None:
    replica = check_sync(ctx)
    if replica is not None:
        ctx.get(Primary).attach(replica, None, 0)


def check_sync(ctx: ServerContext, *, is_handed_over: bool = False) -> Replica | None:
    """The record of a connection that may get the stream; None: it gets it already. Raises CommandError.

    is_handed_over  this server has become the primary just now because the replica asks for it: it will come back and greet
    """
    replication = ctx.get(Replication)
    if ctx.client.id in replication.replicas:
        return None
    if ctx.get(Failover).is_on:
        raise CommandError("NOMASTERLINK Can't SYNC while failing over")
    replica = ctx.get(Primary).record(ctx.client)
    if replication.is_replica and not replication.is_link_up and not replica.wants_data:
        raise CommandError("NOMASTERLINK Can't SYNC while not connected with my master")
    if replica.is_ahead:
        raise CommandError("NOMASTERLINK Can't SYNC before I have what you have")
    if ctx.get(Views).is_outdated(replica) and not is_handed_over:
        raise CommandError("NOMASTERLINK Can't SYNC before you have joined my view")
    if ctx.client.output_size():
        raise CommandError("ERR SYNC and PSYNC are invalid with pending output")
    if replica.rdb_filter is not None and "eof" not in replica.capabilities:
        raise CommandError("ERR Filtered replica requires EOF capability")
    return replica


@command(
    "REPLCONF", arity=-1, group="server", flags="admin noscript loading stale allow_busy", since="3.0.0", doc_flags="syscmd",
    summary="Reports the state of a replica to its primary; sent by replicas.",
)  # fmt: skip
def replconf(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) % 2 == 0:
        raise OptionSyntaxError
    primary = ctx.get(Primary)
    option = args[1].lower() if len(args) > 1 else b""
    if option == b"ack":
        with suppress(CommandError):  # what is no number is ignored
            primary.acknowledge(ctx.client, read_integer(args[2]), read_fack(args))
        ctx.get(Durability).advance()
        ctx.get(Failover).check()
        ctx.get(Waiting).retry()
    elif option == b"view":
        try:
            ctx.reply.simple(ctx.get(Views).greet(primary.record(ctx.client), args[2]))
        except ValueError:
            raise OptionSyntaxError from None
    elif option != b"getack":  # which only a primary sends
        for at in range(1, len(args), 2):
            configure(primary, primary.record(ctx.client), args[at], args[at + 1])
        ctx.reply.ok()


def read_fack(args: list[bytes]) -> int | None:
    """The offset that is on the replica's disk, if it says so."""
    if len(args) > 4 and is_option(args[3], b"FACK"):
        return read_integer(args[4])
    return None


def configure(primary: Primary, replica: Replica, option: bytes, value: bytes) -> None:
    """One option of REPLCONF. Raises CommandError."""
    name = option.lower()
    if name == b"listening-port":
        replica.port = read_integer(value)
    elif name == b"ip-address":
        if len(value) > LONGEST_ADDRESS:
            raise CommandError(f"ERR REPLCONF ip-address provided by replica instance is too long: {len(value)} bytes")
        replica.announced_ip = value.decode("utf-8", "surrogateescape")
    elif name == b"capa":
        replica.capabilities |= {value.lower().decode("latin-1")} & CAPABILITIES
    elif name == b"rdb-only":
        replica.is_rdb_only = read_integer(value) == 1
    elif name == b"rdb-no-compress":
        replica.wants_uncompressed = read_integer(value) == 1
    elif name == b"wants-data":
        replica.wants_data = read_integer(value) == 1
    elif name == b"rdb-filter-only":
        replica.rdb_filter = read_filter(value)
    elif name == b"rdb-channel":
        replica.client.is_rdb_channel = read_integer(value) == 1
    elif name == b"main-ch-client-id":
        number = read_integer(value)
        main = primary.replicas.get(number)
        if main is None:
            raise CommandError(f"ERR Unrecognized RDB client id: {number}")
        replica.main = main
    else:
        raise CommandError(f"ERR Unrecognized REPLCONF option: {option.decode('utf-8', 'surrogateescape')}")


def read_filter(value: bytes) -> frozenset[str]:
    """The parts of a snapshot that are wanted."""
    words = value.decode("utf-8", "surrogateescape").split()
    for word in words:
        if word.lower() != "functions":
            raise CommandError(f"ERR Unsupported rdb-filter-only option: {word}")
    return frozenset(words)


# --- Waiting for replicas --------------------------------------------------------------------------------------------


@command(
    "WAIT", arity=3, group="generic", flags="blocking", categories="connection -keyspace", since="3.0.0",
    tips=("request_policy:all_shards", "response_policy:agg_min"),
    summary="Waits until replicas have received the writes of this connection, and returns their number.",
    args=(integer("numreplicas"), integer("timeout")),
)  # fmt: skip
def wait(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.get(Replication).is_replica:
        raise CommandError(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is"
            " configured to be writable (which is not the default) writes to replicas are just local and are not"
            " propagated."
        )
    wanted = read_integer(args[1])
    timeout_ms = parse_timeout(args[2], ctx.now_ms)
    waiting, offset = ctx.get(Waiting), ctx.client.write_offset
    have = waiting.count_replicas(offset)
    if have >= wanted or ctx.in_transaction:
        ctx.reply.integer(have)
        return

    def on_timeout() -> bytes:
        return b":%d\r\n" % waiting.count_replicas(offset)

    waiting.block(ctx, BlockRequest([], args, timeout_ms, timeout_reply=on_timeout))


def find_count(word: bytes) -> int | None:
    """A number of replicas, or None if it is not one."""
    with suppress(CommandError):
        count = read_integer(word)
        return count if count >= 0 else None
    return None


@command(
    "WAITAOF", arity=4, group="generic", flags="blocking", categories="connection -keyspace", since="7.2.0",
    tips=("request_policy:all_shards", "response_policy:agg_min"),
    summary="Waits until the writes of this connection are on disk, here and on replicas, and returns on how many servers.",
    args=(integer("numlocal"), integer("numreplicas"), integer("timeout")),
)  # fmt: skip
def waitaof(ctx: ServerContext, args: list[bytes]) -> None:
    wanted_here, wanted = read_integer(args[1]), find_count(args[2])
    if not 0 <= wanted_here <= 1:
        raise CommandError("ERR value is out of range, value must between 0 and 1")
    if wanted is None:
        raise CommandError(MUST_BE_POSITIVE)
    timeout_ms = parse_timeout(args[3], ctx.now_ms)
    if ctx.get(Replication).is_replica:
        raise CommandError(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local"
            " and are not propagated."
        )
    if wanted_here and not ctx.config.appendonly:
        raise CommandError("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.")
    waiting, offset = ctx.get(Waiting), ctx.client.write_offset

    def found() -> tuple[int, int]:
        return int(waiting.is_on_disk(offset)), waiting.count_durable_replicas(offset)

    here, have = found()
    if (here >= wanted_here and have >= wanted) or ctx.in_transaction:
        ctx.reply.value([here, have])
        return

    def on_timeout() -> bytes:
        return b"*2\r\n:%d\r\n:%d\r\n" % found()

    waiting.block(ctx, BlockRequest([], args, timeout_ms, timeout_reply=on_timeout))
