# cython: language_level=3, boundscheck=False, wraparound=False
"""PING and ECHO, which connection pools send before each use of a connection: compiled. Behaviour: Redis 8.6."""

from streamd.core.dispatch cimport ServerContext
from streamd.protocol.reply cimport ReplyWriter

from streamd.core.spec import command, optional, string
from streamd.errors import CommandError

__all__ = ["echo", "ping"]


@command(
    "PING", arity=-1, group="connection", flags="fast", since="1.0.0",
    summary="Returns PONG, or its argument.", args=(optional(string("message")),),
    tips=("request_policy:all_shards", "response_policy:all_succeeded"),
)
def ping(ServerContext ctx not None, list args not None):
    cdef ReplyWriter reply = ctx.reply
    if len(args) > 2:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    if reply.resp == 2 and ctx.client.is_subscribed:
        # Where only messages are expected, the answer has the form of one.
        reply.bulk_array([b"pong", args[1] if len(args) == 2 else b""])
    elif len(args) == 2:
        reply.bulk(args[1])
    else:
        reply.simple(b"PONG")


@command(
    "ECHO", arity=2, group="connection", flags="loading stale fast", since="1.0.0",
    summary="Returns its argument.", args=(string("message"),),
)
def echo(ServerContext ctx not None, list args not None):
    ctx.reply.bulk(args[1])
