"""Run command handlers without a server: one context, sixteen databases, replies decoded by hiredis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hiredis

from streamd.core.context import BlockRequest, Context
from streamd.core.spec import table
from streamd.errors import CommandError
from streamd.keyspace.database import Database
from streamd.keyspace.lazyfree import LazyFree
from streamd.protocol.reply import ReplyWriter

START_MS = 1_700_000_000_000
"""The initial time of a new context."""


class HandlerContext(Context):
    """A context that records blocking requests in `blocked`."""

    blocked: BlockRequest | None

    def block_on(self, request: BlockRequest) -> None:
        self.blocked = request


def make_context(resp: int = 2, now_ms: int = START_MS, **config: Any) -> HandlerContext:
    """A context with empty databases; `config` overrides settings."""
    ctx = HandlerContext()
    ready: dict[Any, None] = {}
    trash = LazyFree()
    ctx.databases = [Database(index, ready, trash) for index in range(16)]
    ctx.db = ctx.databases[0]
    ctx.reply = ReplyWriter(resp)
    ctx.config = SimpleNamespace(
        cluster_enabled=False,
        **{
            "proto_max_bulk_len": 512 * 1024 * 1024,
            "stream_node_max_bytes": 4096,
            "stream_node_max_entries": 100,
            "lazyfree_lazy_server_del": False,
            "lazyfree_lazy_user_flush": False,
        }
        | config,
    )
    ctx.stream_node_max_bytes = ctx.config.stream_node_max_bytes
    ctx.stream_node_max_entries = ctx.config.stream_node_max_entries
    ctx.stream_idmp_duration = ctx.stream_idmp_maxsize = 100
    ctx.blocked = None
    set_time(ctx, now_ms)
    return ctx


def set_time(ctx: HandlerContext, now_ms: int) -> None:
    """Set the time everywhere."""
    ctx.now_ms = now_ms
    for db in ctx.databases:
        db.now_ms = now_ms


def run(ctx: HandlerContext, *args: bytes | str | int) -> Any:
    """Run one request; return its decoded reply, or None for null replies and when it blocks (`ctx.blocked`).

    An error is returned as hiredis.ReplyError; simple strings and bulk strings are both bytes. Dispatch is the table's:
    unknown names and wrong numbers of arguments are errors of the test.
    """
    request = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    ctx.db.now_ms = ctx.now_ms
    ctx.blocked = None
    found = table[request[0].decode().upper()]
    if found.handler is None:
        found = found.subcommands[request[1].decode().upper()]
    assert found.handler is not None
    assert found.accepts(len(request)), f"{found.full_name} does not take {len(request)} arguments"
    mark = ctx.reply.mark()
    try:
        found.handler(ctx, request)
    except CommandError as error:
        ctx.reply.truncate(mark)
        return hiredis.ReplyError(str(error))
    sent = ctx.reply.take()
    reader = hiredis.Reader()
    reader.feed(sent)
    reply = reader.gets()
    if reply is False:
        assert ctx.blocked is not None, f"{found.full_name} did not answer"
        assert not sent, f"{found.full_name} answered with {sent!r}"
        return None
    assert reader.gets() is False, f"{found.full_name} answered more than once: {sent!r}"
    return reply
