"""Subscriptions: SUBSCRIBE and its variants, and PUBSUB. Messages are sent by publish.pyx.

The server's hub keeps all subscriptions, and confirms each name with a push: these are the whole answer. This module
only maps commands to the hub. Behaviour: Redis 8.6.
"""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import ChannelsAt, KeysAt, command, container, multiple, optional, pattern, string
from streamd.engine.glob import Glob
from streamd.errors import CommandError
from streamd.pubsub.hub import Hub, Namespace

SUBSCRIBE_FLAGS = "denyoom pubsub noscript loading stale"
UNSUBSCRIBE_FLAGS = "pubsub noscript loading stale"
LOOK_FLAGS = "pubsub loading stale"
SHARD_CHANNELS = KeysAt(1, -1, flags="not_key")


# --- Subscribing ---------------------------------------------------------------------------------------------------


@command(
    "SUBSCRIBE", arity=-2, group="pubsub", flags=SUBSCRIBE_FLAGS, channels=ChannelsAt(1, -1), since="2.0.0",
    complexity="O(N) with N being the number of channels",
    summary="Subscribes this connection to channels.", args=(multiple(string("channel")),),
)  # fmt: skip
def subscribe(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Hub).channels.subscribe_all(ctx.client, args[1:], b"subscribe", ctx.confirmations())


@command(
    "UNSUBSCRIBE", arity=-1, group="pubsub", flags=UNSUBSCRIBE_FLAGS, since="2.0.0",
    complexity="O(N) with N being the number of channels",
    summary="Ends subscriptions to channels; without arguments, all of them.", args=(optional(multiple(string("channel"))),),
)  # fmt: skip
def unsubscribe(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Hub).channels.unsubscribe_all(ctx.client, args[1:], b"unsubscribe", ctx.confirmations())


@command(
    "PSUBSCRIBE", arity=-2, group="pubsub", flags=SUBSCRIBE_FLAGS, channels=ChannelsAt(1, -1, are_patterns=True),
    since="2.0.0", complexity="O(N) with N being the number of patterns",
    summary="Subscribes this connection to all channels that match patterns.",
    args=(multiple(pattern("pattern")),),
)  # fmt: skip
def psubscribe(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Hub).patterns.subscribe_all(ctx.client, args[1:], b"psubscribe", ctx.confirmations())


@command(
    "PUNSUBSCRIBE", arity=-1, group="pubsub", flags=UNSUBSCRIBE_FLAGS, since="2.0.0",
    complexity="O(N) with N being the number of patterns",
    summary="Ends subscriptions to patterns; without arguments, all of them.", args=(optional(multiple(pattern("pattern"))),),
)  # fmt: skip
def punsubscribe(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Hub).patterns.unsubscribe_all(ctx.client, args[1:], b"punsubscribe", ctx.confirmations())


@command(
    "SSUBSCRIBE", arity=-2, group="pubsub", flags=SUBSCRIBE_FLAGS, keys=SHARD_CHANNELS, channels=ChannelsAt(1, -1),
    since="7.0.0", complexity="O(N) with N being the number of shard channels",
    summary="Subscribes this connection to shard channels.", args=(multiple(string("shardchannel")),),
)  # fmt: skip
def ssubscribe(ctx: ServerContext, args: list[bytes]) -> None:
    if ctx.in_transaction:
        raise CommandError("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
    ctx.get(Hub).shard_channels.subscribe_all(ctx.client, args[1:], b"ssubscribe", ctx.confirmations())


@command(
    "SUNSUBSCRIBE", arity=-1, group="pubsub", flags=UNSUBSCRIBE_FLAGS, keys=SHARD_CHANNELS, since="7.0.0",
    complexity="O(N) with N being the number of shard channels",
    summary="Ends subscriptions to shard channels; without arguments, all of them.",
    args=(optional(multiple(string("shardchannel"))),),
)  # fmt: skip
def sunsubscribe(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Hub).shard_channels.unsubscribe_all(ctx.client, args[1:], b"sunsubscribe", ctx.confirmations())


# --- PUBSUB --------------------------------------------------------------------------------------------------------

container("PUBSUB", group="pubsub", since="2.8.0", summary="Groups the commands about subscriptions.")


def _write_names(ctx: ServerContext, namespace: Namespace, patterns: list[bytes]) -> None:
    """The names in use, or those that match a pattern."""
    ctx.reply.bulk_array(list(filter(Glob(patterns[0]).match, namespace) if patterns else namespace))


def _refuse_more(args: list[bytes], most: int) -> None:
    if len(args) > most:
        word = args[1][:128].decode("latin-1")
        raise CommandError(f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try PUBSUB HELP.")


def _write_counts(ctx: ServerContext, namespace: Namespace, names: list[bytes]) -> None:
    """Each name and the number of its subscribers."""
    ctx.reply.array(2 * len(names))
    for name in names:
        ctx.reply.bulk(name)
        ctx.reply.integer(namespace.count_clients(name))


@command(
    "PUBSUB CHANNELS", arity=-2, group="pubsub", flags=LOOK_FLAGS, since="2.8.0",
    complexity="O(N) with N being the number of channels with subscribers",
    summary="Returns the channels that have subscribers.", args=(optional(pattern("pattern")),),
)  # fmt: skip
def pubsub_channels(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 3)
    _write_names(ctx, ctx.get(Hub).channels, args[2:])


@command(
    "PUBSUB NUMSUB", arity=-2, group="pubsub", flags=LOOK_FLAGS, since="2.8.0",
    complexity="O(N) with N being the number of channels asked for",
    summary="Counts the subscribers of channels.", args=(optional(multiple(string("channel"))),),
)  # fmt: skip
def pubsub_numsub(ctx: ServerContext, args: list[bytes]) -> None:
    _write_counts(ctx, ctx.get(Hub).channels, args[2:])


@command(
    "PUBSUB NUMPAT", arity=2, group="pubsub", flags=LOOK_FLAGS, since="2.8.0",
    summary="Counts the patterns that have subscribers.",
)  # fmt: skip
def pubsub_numpat(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(len(ctx.get(Hub).patterns))


@command(
    "PUBSUB SHARDCHANNELS", arity=-2, group="pubsub", flags=LOOK_FLAGS, since="7.0.0",
    complexity="O(N) with N being the number of shard channels with subscribers",
    summary="Returns the shard channels that have subscribers.", args=(optional(pattern("pattern")),),
)  # fmt: skip
def pubsub_shardchannels(ctx: ServerContext, args: list[bytes]) -> None:
    _refuse_more(args, 3)
    _write_names(ctx, ctx.get(Hub).shard_channels, args[2:])


@command(
    "PUBSUB SHARDNUMSUB", arity=-2, group="pubsub", flags=LOOK_FLAGS, since="7.0.0",
    complexity="O(N) with N being the number of shard channels asked for",
    summary="Counts the subscribers of shard channels.", args=(optional(multiple(string("shardchannel"))),),
)  # fmt: skip
def pubsub_shardnumsub(ctx: ServerContext, args: list[bytes]) -> None:
    _write_counts(ctx, ctx.get(Hub).shard_channels, args[2:])


declare_help(
    "PUBSUB", "pubsub", "6.2.0",
    "CHANNELS [<pattern>]",
    "    Return the channels with subscribers, all or those that match.",
    "NUMPAT",
    "    Return how many patterns have subscribers.",
    "NUMSUB [<channel> ...]",
    "    Return how many are subscribed to each channel, not counting patterns.",
    "SHARDCHANNELS [<pattern>]",
    "    Return the shard channels with subscribers, all or those that match.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return how many are subscribed to each shard channel.",
)  # fmt: skip
