# cython: language_level=3, boundscheck=False, wraparound=False
"""EXISTS, TOUCH, TYPE, DEL and UNLINK: compiled, since programs run them often. Behaviour: Redis 8.6."""

from streamd.core.context cimport Context

from streamd.core.spec import KeysAt, command, key, multiple
from streamd.keyspace.value_type import type_of

__all__ = ["del_", "exists", "touch", "type_", "unlink"]

SUM_OF_SHARDS = ("request_policy:multi_shard", "response_policy:agg_sum")


@command(
    "EXISTS", arity=-2, group="generic", flags="readonly fast", keys=KeysAt(1, -1, flags="RO"), since="1.0.0",
    complexity="O(N) with N being the number of keys", tips=SUM_OF_SHARDS, history=(("3.0.3", "Several keys."),),
    summary="Counts how many of the given keys exist; a key given twice counts twice.", args=(multiple(key()),),
)
def exists(Context ctx not None, list args not None):
    cdef long long found = 0
    cdef Py_ssize_t at
    for at in range(1, len(args)):
        found += ctx.db.find_untouched(args[at]) is not None
    ctx.reply.integer(found)


@command(
    "TOUCH", arity=-2, group="generic", flags="readonly fast", keys=KeysAt(1, -1, flags="RO"), since="3.2.1",
    complexity="O(N) with N being the number of keys", tips=SUM_OF_SHARDS,
    summary="Updates the access time of keys, and returns how many of them exist.", args=(multiple(key()),),
)
def touch(Context ctx not None, list args not None):
    cdef long long found = 0
    cdef Py_ssize_t at
    for at in range(1, len(args)):
        found += ctx.db.touch(args[at])
    ctx.reply.integer(found)


@command(
    "TYPE", arity=2, group="generic", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="1.0.0",
    summary="Returns the type of the value of a key.", args=(key(),),
)
def type_(Context ctx not None, list args not None):
    value = ctx.db.find_untouched(args[1])
    ctx.reply.simple(b"none" if value is None else type_of(value).name)


cdef int delete_all(Context ctx, list args) except -1:
    cdef long long deleted = 0
    cdef Py_ssize_t at
    for at in range(1, len(args)):
        deleted += ctx.db.delete(args[at], True)
    ctx.dirty += deleted
    ctx.reply.integer(deleted)
    return 0


@command(
    "DEL", arity=-2, group="generic", flags="write", keys=KeysAt(1, -1, flags="RM delete"), since="1.0.0",
    complexity="O(N) with N being the number of keys; large values are freed by another thread", tips=SUM_OF_SHARDS,
    summary="Deletes keys.", args=(multiple(key()),),
)
def del_(Context ctx not None, list args not None):
    delete_all(ctx, args)


@command(
    "UNLINK", arity=-2, group="generic", flags="write fast", keys=KeysAt(1, -1, flags="RM delete"), since="4.0.0",
    complexity="O(N) with N being the number of keys; large values are freed by another thread", tips=SUM_OF_SHARDS,
    summary="Deletes keys, and frees their memory later.", args=(multiple(key()),),
)
def unlink(Context ctx not None, list args not None):
    delete_all(ctx, args)
