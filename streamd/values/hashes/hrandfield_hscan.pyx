# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""HRANDFIELD and HSCAN. Behaviour: Redis 8.6, as seen on a running server.

Fields whose time has come are not shown. HRANDFIELD removes some of them first, where they may be removed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.glob cimport Glob
from streamd.engine.table cimport TABLE_PAGE, random_below, table_scan
from streamd.keyspace.database cimport Database
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.hashes.access cimport (
    find_hash, has_passed, live_count, remove_expired, reply_text, report_expired,
)
from streamd.values.hashes.field_table cimport FieldTable
from streamd.values.hashes.hash cimport (
    FORM_TABLE, Hash, HashWalk, hash_at, hash_due, hash_first_due, hash_next, hash_random,
)
from streamd.values.hashes.pairs cimport HashItem

from streamd.core.scans import ElementScanOptions, parse_cursor
from streamd.core.spec import KeysAt, block, command, integer, key, optional, pattern, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = []

cdef enum:
    REMOVED_AT_ONCE = 1000     # expired fields that one HRANDFIELD removes at most
    SAMPLES = 16               # fields from which the size of a reply is estimated
    SPARSE = 3                 # a choice of less than a third is made field by field

cdef int64_t MOST_REPLY = <int64_t>4 << 30     # bytes of a reply that an HRANDFIELD may ask for


# --- HRANDFIELD -------------------------------------------------------------------------------------------------------


cdef class Choice:
    """Draws fields of a hash that have not expired; the hash must not change while it is in use."""

    cdef Hash hash
    cdef bytes room
    cdef uint64_t *places      # in `room`: those of all fields to draw from; NULL: all fields of a table
    cdef uint64_t count        # fields to draw from

    @staticmethod
    cdef Choice of(Database db, Hash hash, bint is_listed):
        """is_listed: the places are needed, `take_another` will be called."""
        cdef Choice choice = Choice.__new__(Choice)
        cdef HashWalk walk
        cdef HashItem item
        choice.hash = hash
        choice.count = live_count(db, hash)
        if hash.form == FORM_TABLE and choice.count == hash.count and not is_listed:
            return choice
        choice.room = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(choice.count * sizeof(uint64_t)))
        choice.places = <uint64_t *>PyBytes_AS_STRING(choice.room)
        choice.count = 0
        memset(&walk, 0, sizeof(walk))
        while hash_next(hash, &walk, &item):
            if not has_passed(db, item.expire_at_ms):
                choice.places[choice.count] = item.place
                choice.count += 1
        return choice

    cdef int take(self, HashItem *out) except -1:
        """Any field; there is one."""
        if self.places is NULL:
            hash_random(self.hash, out)
        else:
            hash_at(self.hash, self.places[random_below(self.count)], out)
        return 0

    cdef int take_another(self, uint64_t taken, HashItem *out) except -1:
        """A field that was not among the first `taken` ones."""
        cdef uint64_t at = taken + random_below(self.count - taken)
        cdef uint64_t place = self.places[at]
        self.places[at] = self.places[taken]
        self.places[taken] = place
        hash_at(self.hash, place, out)
        return 0


cdef int remove_due(Context ctx, bytes name, Hash hash) except -1:
    """Remove fields whose time has come, but not very many."""
    cdef HashItem item
    cdef int removed = 0
    if ctx.db.holds_expired:
        return 0
    while removed < REMOVED_AT_ONCE and has_passed(ctx.db, hash_due(hash)):
        hash_first_due(hash, &item)
        remove_expired(ctx.db, name, hash, &item)
        removed += 1
    if removed:
        report_expired(ctx.db, name, hash)
    return 0


cdef int reply_item(ReplyWriter reply, const HashItem *item, bint has_values) except -1:
    if has_values and reply.resp == 3:
        reply.array_header(2)
    reply_text(reply, &item.field)
    if has_values:
        reply_text(reply, &item.value)
    return 0


cdef int refuse_huge(Choice choice, int64_t count, bint has_values) except -1:
    """Raise CommandError if a reply with so many fields is too large to be made."""
    cdef ReplyWriter sample = ReplyWriter.__new__(ReplyWriter)
    cdef HashItem item
    cdef int _i
    for _i in range(SAMPLES):
        choice.take(&item)
        reply_item(sample, &item, has_values)
    if count > MOST_REPLY // <int64_t>(sample.length // SAMPLES + 1):
        raise CommandError("ERR value is out of range, the reply would exceed 4 GiB")
    return 0


cdef int reply_repeated(ReplyWriter reply, Choice choice, int64_t count, bint has_values) except -1:
    """Any fields, as many as asked for."""
    cdef HashItem item
    refuse_huge(choice, count, has_values)
    reply.array_header(count if reply.resp == 3 or not has_values else 2 * count)
    while count and not reply.is_cut:
        choice.take(&item)
        reply_item(reply, &item, has_values)
        count -= 1
    return 0


cdef int reply_distinct(ReplyWriter reply, Choice choice, uint64_t count, bint has_values) except -1:
    """Different fields."""
    cdef HashItem item
    cdef uint64_t taken = 0
    cdef set seen
    reply.array_header(<int64_t>(count if reply.resp == 3 or not has_values else 2 * count))
    if choice.places is not NULL:
        while taken < count:
            choice.take_another(taken, &item)
            reply_item(reply, &item, has_values)
            taken += 1
        return 0
    seen = set()
    while taken < count:
        choice.take(&item)
        if item.place not in seen:
            seen.add(item.place)
            reply_item(reply, &item, has_values)
            taken += 1
    return 0


@command(
    "HRANDFIELD", arity=-2, group="hash", flags="readonly", keys=KeysAt(1), since="6.2.0",
    summary="Returns fields of a hash, chosen at random.", complexity="O(N) with N being the number of fields returned",
    tips=("nondeterministic_output",),
    args=(key(), optional(block("options", integer("count"), optional(token("WITHVALUES"))))),
)
def hrandfield(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef int64_t count = 1
    cdef bint has_values = False
    cdef Hash hash
    cdef Choice choice
    cdef HashItem item
    if argc > 2:
        count = require_int64(<bytes>args[2])
        if count < -INT64_MAX:
            raise CommandError(f"ERR value is out of range, value must between {-INT64_MAX} and {INT64_MAX}")
        if argc > 4 or argc == 4 and not is_word(<bytes>args[3], b"WITHVALUES"):
            raise OptionSyntaxError
        has_values = argc == 4
        if has_values and not -INT64_MAX // 2 <= count <= INT64_MAX // 2:
            raise CommandError("ERR value is out of range")
    hash = find_hash(ctx, <bytes>args[1])
    if hash is not None:
        remove_due(ctx, <bytes>args[1], hash)
    if hash is None or live_count(ctx.db, hash) == 0 or count == 0:
        if argc > 2:
            ctx.reply.array_header(0)
        else:
            ctx.reply.null()
        return
    choice = Choice.of(ctx.db, hash, count > 0 and argc > 2 and <uint64_t>count > hash.count // SPARSE)
    if argc == 2:
        choice.take(&item)
        reply_text(ctx.reply, &item.field)
    elif count < 0:
        reply_repeated(ctx.reply, choice, -count, has_values)
    else:
        if <uint64_t>count > choice.count:
            count = <int64_t>choice.count
        reply_distinct(ctx.reply, choice, <uint64_t>count, has_values)


# --- HSCAN ------------------------------------------------------------------------------------------------------------


cdef bint is_wanted(Database db, const HashItem *item, Glob wanted) except -1:
    """Whether a field has not expired, and matches the pattern if there is one."""
    cdef char digits[INT64_ROOM]
    if has_passed(db, item.expire_at_ms):
        return False
    if wanted is None:
        return True
    if item.field.data is NULL:
        return wanted.matches(digits, <Py_ssize_t>put_int64(digits, item.field.number))
    return wanted.matches(<const char *>item.field.data, <Py_ssize_t>item.field.length)


cdef int reply_scanned(ReplyWriter reply, const HashItem *item, bint has_values) except -1:
    reply_text(reply, &item.field)
    if has_values:
        reply_text(reply, &item.value)
    return 1 + has_values


cdef int64_t scan_packed(Context ctx, Hash hash, Glob wanted, bint has_values) except -1:
    """All fields; returns how many elements were written."""
    cdef HashWalk walk
    cdef HashItem item
    cdef int64_t written = 0
    memset(&walk, 0, sizeof(walk))
    while hash_next(hash, &walk, &item):
        if is_wanted(ctx.db, &item, wanted):
            written += reply_scanned(ctx.reply, &item, has_values)
    return written


cdef uint64_t scan_table(
    Context ctx, Hash hash, uint64_t cursor, int64_t limit, Glob wanted, bint has_values, int64_t *written
) except? 0:
    """About `limit` fields from a cursor on; returns the next cursor."""
    cdef uint32_t handles[TABLE_PAGE]
    cdef uint32_t count, at
    cdef HashItem item
    while True:
        cursor = table_scan(&(<FieldTable *>hash.body).table, cursor, handles, &count)
        for at in range(count):
            hash_at(hash, handles[at], &item)
            if is_wanted(ctx.db, &item, wanted):
                written[0] += reply_scanned(ctx.reply, &item, has_values)
        limit -= count
        if cursor == 0 or limit <= 0:
            return cursor


@command(
    "HSCAN", arity=-3, group="hash", flags="readonly", keys=KeysAt(1), since="2.8.0",
    summary="Returns fields of a hash with their values, some with each call.",
    complexity="O(1) for every call, O(N) for all calls together with N being the number of fields",
    tips=("nondeterministic_output",),
    args=(
        key(), integer("cursor"), optional(pattern("pattern", "MATCH")), optional(integer("count", "COUNT")),
        optional(token("NOVALUES")),
    ),
)
def hscan(Context ctx not None, list args not None):
    cdef uint64_t cursor = parse_cursor(args[2])
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    cdef Glob wanted = None
    cdef ReplyWriter reply = ctx.reply
    cdef ReplyWriter elements
    cdef int64_t written = 0
    cdef size_t opened
    if hash is None:
        reply.array_header(2)
        reply.bulk(b"0")
        reply.array_header(0)
        return
    options = ElementScanOptions.parse(args[3:], has_values=True)
    if options.pattern is not None and options.pattern != b"*":
        wanted = Glob(options.pattern)
    if hash.form != FORM_TABLE:
        reply.array_header(2)
        reply.bulk(b"0")
        opened = reply.open_array(<int64_t>hash.count)
        reply.close_array(opened, scan_packed(ctx, hash, wanted, not options.is_without_values))
        return
    # The cursor comes before the elements, but is known only after them.
    elements = ReplyWriter.__new__(ReplyWriter, reply.resp)
    ctx.reply = elements
    try:
        cursor = scan_table(
            ctx, hash, cursor, options.limit, wanted, not options.is_without_values, &written)
    finally:
        ctx.reply = reply
    reply.array_header(2)
    reply.bulk(b"%d" % cursor)
    reply.array_header(written)
    reply.raw_c(elements.data, elements.length)
