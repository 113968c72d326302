# cython: language_level=3, boundscheck=False, wraparound=False
"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

Requests are queued, and EXEC runs them, in the server's dispatcher like all requests. This module only maps commands
to it; compiled, since each transaction costs three of them. Behaviour: Redis 8.6.
"""

from streamd.core.client cimport Client
from streamd.core.dispatch cimport ServerContext

from streamd.core.spec import KeysAt, command, key, multiple
from streamd.errors import CommandError

__all__ = ["discard", "exec_", "multi", "unwatch", "watch"]

FLAGS = "noscript loading stale fast allow_busy"


@command(
    "MULTI", arity=1, group="transactions", flags=FLAGS, since="1.2.0",
    summary="Starts a transaction: further commands are queued until EXEC.",
)
def multi(ServerContext ctx not None, list args not None):
    if (<Client>ctx.client).transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    ctx.begin_transaction()
    ctx.reply.ok()


@command(
    "EXEC", arity=1, group="transactions", flags="noscript loading stale skip_slowlog runs_script", since="1.2.0",
    complexity="that of the queued commands",
    summary="Runs the queued commands, with no other client's commands in between.",
)
def exec_(ServerContext ctx not None, list args not None):
    ctx.run_transaction()


@command(
    "DISCARD", arity=1, group="transactions", flags=FLAGS, since="2.0.0",
    complexity="O(N) with N being the number of queued commands",
    summary="Ends a transaction without running the queued commands.",
)
def discard(ServerContext ctx not None, list args not None):
    if (<Client>ctx.client).transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    ctx.end_transaction()
    ctx.reply.ok()


@command(
    "WATCH", arity=-2, group="transactions", flags=FLAGS, keys=KeysAt(1, -1, flags="RO"), since="2.2.0",
    summary="Aborts the next transaction if one of these keys changes before EXEC.", args=(multiple(key()),),
)
def watch(ServerContext ctx not None, list args not None):
    cdef Py_ssize_t at
    if (<Client>ctx.client).transaction is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for at in range(1, len(args)):
        ctx.watch(args[at])
    ctx.reply.ok()


@command(
    "UNWATCH", arity=1, group="transactions", flags=FLAGS, since="2.2.0",
    complexity="O(N) with N being the number of watched keys", summary="Stops watching all keys.",
)
def unwatch(ServerContext ctx not None, list args not None):
    ctx.unwatch()
    ctx.reply.ok()
