# cython: language_level=3, boundscheck=False, wraparound=False
"""PFADD, PFCOUNT and PFMERGE: strings as HyperLogLogs. Behaviour: Redis 8.6, as seen on a running server."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from streamd.core.context cimport Context
from streamd.core.spec import KeysAt, command, key, multiple, optional, string
from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord
from streamd.settings.declarations import declare, memory
from streamd.values.strings.hyperloglog cimport (
    HLL_DENSE, REGISTERS, HllEncoding, Sketch, add_dense, cache_count, cached_count, check_hll, count_hll,
    count_registers, invalidate_count, merge_hll,
)
from streamd.values.strings.stored cimport (
    change_string, find_string, find_string_for_write, mark_raw, open_string, string_written, written_bytes,
)
from streamd.values.strings.string_type cimport HINT_RAW

__all__ = ["pfadd", "pfcount", "pfmerge"]

declare(
    "HyperLogLogs",
    memory(
        "hll-sparse-max-bytes", 3000,
        doc="A HyperLogLog that would be longer is stored densely, in 12304 bytes.",
    ),
)


@command(
    "PFADD", arity=-2, group="hyperloglog", flags="write denyoom fast", keys=KeysAt(1, flags="RW insert"),
    since="2.8.9", complexity="O(1) for each element",
    summary="Adds elements to a HyperLogLog; a missing key counts as an empty one.",
    args=(key(), optional(multiple(string("element")))),
)
def pfadd(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef bytes present = find_string_for_write(ctx.db, name)
    cdef long long changes
    if present is not None and check_hll(present) == HLL_DENSE:
        present = None      # so that it can be written in place
        changes = add_in_place(ctx.db, name, args)
    else:
        changes = add_to_copy(ctx, name, present, args)
    ctx.dirty += changes
    ctx.reply.integer(changes > 0)


cdef long long add_in_place(Database db, bytes name, list args) except -1:
    """Add the elements of a request to a dense HyperLogLog; returns how many of them changed it."""
    cdef KeyRecord *record = open_string(db, name, 0)
    cdef uint8_t *data = <uint8_t *>written_bytes(record)
    cdef long long changes = 0
    for element in args[2:]:
        changes += add_dense(data, <bytes>element)
    if changes:
        invalidate_count(data)
        string_written(db, record, b"pfadd")
    else:
        mark_raw(db, name)
    return changes


cdef long long add_to_copy(Context ctx, bytes name, bytes present, list args) except -1:
    """Add the elements of a request to a sparse HyperLogLog or a new one, which is a change; returns the changes."""
    cdef Sketch sketch = Sketch(present, ctx.config.hll_sparse_max_bytes)
    cdef long long changes = present is None
    mark_raw(ctx.db, name)
    for element in args[2:]:
        changes += sketch.add(<bytes>element)
    if changes:
        change_string(ctx.db, name, sketch.string(), b"pfadd", HINT_RAW)
    return changes


cdef bint merge_key(Database db, bytes name, uint8_t *maxima) except -1:
    """Raise registers to those of the HyperLogLog under a key, if there is one; returns whether it is dense."""
    cdef bytes present = find_string(db, name)
    cdef HllEncoding encoding
    if present is None:
        return False
    encoding = check_hll(present)
    merge_hll(present, maxima)
    return encoding == HLL_DENSE


@command(
    "PFCOUNT", arity=-2, group="hyperloglog", flags="readonly may_replicate", since="2.8.9",
    keys=KeysAt(1, -1, flags="RW access", notes="the count is cached in the key, and propagated"),
    complexity="O(1) for one key whose count is cached, O(N) with N being the number of keys otherwise",
    summary="Returns about how many different elements were added to HyperLogLogs.", args=(multiple(key()),),
)
def pfcount(Context ctx not None, list args not None):
    cdef uint8_t[REGISTERS] maxima
    if len(args) == 2:
        ctx.reply.integer(count_key(ctx, <bytes>args[1]))
        return
    memset(maxima, 0, REGISTERS)
    for name in args[1:]:
        merge_key(ctx.db, <bytes>name, maxima)
    ctx.reply.integer(count_registers(maxima))


cdef int64_t count_key(Context ctx, bytes name) except -1:
    """The estimate for one key, which is cached in its string."""
    cdef bytes present = find_string(ctx.db, name)
    cdef int64_t count
    cdef KeyRecord *record
    if present is None:
        return 0
    check_hll(present)
    mark_raw(ctx.db, name)
    count = cached_count(present)
    if count >= 0:
        return count
    count = count_hll(present)
    present = None          # so that it can be written in place
    record = open_string(ctx.db, name, 0)
    cache_count(<uint8_t *>written_bytes(record), count)
    string_written(ctx.db, record, None)
    ctx.dirty += 1
    return count


@command(
    "PFMERGE", arity=-2, group="hyperloglog", flags="write denyoom", since="2.8.9",
    keys=(KeysAt(1, flags="RW access insert"), KeysAt(2, -1)),
    complexity="O(N) with N being the number of keys",
    summary="Merges HyperLogLogs into one, which counts the elements of all.",
    args=(key("destkey"), optional(multiple(key("sourcekey", 1)))),
)
def pfmerge(Context ctx not None, list args not None):
    cdef uint8_t[REGISTERS] maxima
    cdef bytes target = <bytes>args[1]
    cdef bint becomes_dense = False
    cdef Sketch sketch
    memset(maxima, 0, REGISTERS)
    for name in args[1:]:
        if merge_key(ctx.db, <bytes>name, maxima):
            becomes_dense = True
    sketch = Sketch(find_string_for_write(ctx.db, target), ctx.config.hll_sparse_max_bytes)
    if becomes_dense:
        sketch.make_dense()
    sketch.take_maxima(maxima)
    change_string(ctx.db, target, sketch.string(), b"pfadd", HINT_RAW)
    ctx.dirty += 1
    ctx.reply.ok()
