# cython: language_level=3, boundscheck=False, wraparound=False
"""STREAMD.REDRIVE: dead letters go back to the group that they come from. A command specific to streamd.

What becomes of a dead letter that was moved from this stream and group:

    the entry is still in the stream               it is pending again, without a consumer, with a delivery count of 0
    ... and is pending, or was not delivered yet   the group has it already
    it is gone, and TO is given                    a new entry in that stream, with the fields that the letter has of it
    it is gone                                     nothing: the dead letter stays

and the dead letter is deleted, but in the last case. All that a request does is one unit, whose effects are XNACK, or
XCLAIM for receivers that do not know it, XADD and XDEL. Other entries of the dead-letter stream are left alone.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from streamd.core.args cimport is_word, parse_id, parse_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, make_id
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.appending cimport append
from streamd.values.streams.arguments cimport (
    argument, find_group, find_stream_for_write, hold_effects, id_text, ids_in, no_such_key_or_group, note_change,
    propagate_unowned, require_ids,
)
from streamd.values.streams.group cimport Group
from streamd.values.streams.pel cimport pel_find
from streamd.values.streams.ruled_group cimport has_rules
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.rule_timer cimport replace_waiting

from streamd.core.spec import KeysAfter, KeysAt, command, integer, key, multiple, oneof, optional, string
from streamd.errors import CommandError, OptionSyntaxError
from streamd.values.streams.dead_letters import LETTER_FIELDS

__all__ = []

cdef enum:
    DEFAULT_COUNT = 100
    MOST_COUNT = 1000
    AT_A_TIME = 32             # letters that are held as Python values
    MOST_LOOKED_AT = 100_000   # letters that one request looks at, those of other groups among them


def find_target(list args not None):
    """Where the key after TO is in a STREAMD.REDRIVE request."""
    cdef Py_ssize_t i = 4
    while i + 1 < PyList_GET_SIZE(args) and not is_word(argument(args, i), b"ID"):
        if is_word(argument(args, i), b"TO"):
            return range(i + 1, i + 2)
        i += 2
    return range(0)


@command(
    "STREAMD.REDRIVE", arity=-4, group="stream", flags="write denyoom",
    keys=(
        KeysAt(1, flags="RW update"), KeysAt(3, flags="RW access delete"),
        KeysAfter(b"TO", start=4, flags="RW insert incomplete", find=find_target),
    ),
    since="0.2.0", summary="Gives dead letters back to the consumer group that they come from.",
    complexity="O(N log M) with N the dead letters looked at, 100000 at most, and M the pending entries.",
    args=(
        key(), string("group"), key("dead-letter-key", spec=1), optional(key("target", spec=2, token="TO")),
        optional(oneof("which", integer("count", "COUNT"), multiple(string("id", "ID")))),
    ),
)  # fmt: skip
def streamd_redrive(Context ctx not None, list args not None):
    cdef Stream stream = find_stream_for_write(ctx, argument(args, 1))
    cdef Group group = find_group(stream, argument(args, 2))
    cdef Stream dead = find_stream_for_write(ctx, argument(args, 3))
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef Py_ssize_t i = 4
    cdef long long count = DEFAULT_COUNT
    cdef int64_t redriven = 0
    cdef bytes target = None, ids = None
    if group is None:
        no_such_key_or_group(argument(args, 1), argument(args, 2))
    while i < argc:
        if i + 1 == argc:
            raise OptionSyntaxError()
        if is_word(argument(args, i), b"TO"):
            target = argument(args, i + 1)
        elif is_word(argument(args, i), b"COUNT"):
            if not parse_int64(argument(args, i + 1), &count) or not 0 < count <= MOST_COUNT:
                raise CommandError(f"ERR COUNT must be an integer between 1 and {MOST_COUNT}")
        elif is_word(argument(args, i), b"ID"):
            ids = require_ids(args, i + 1, argc - i - 1)
            count = argc - i - 1
            break
        else:
            raise OptionSyntaxError()
        i += 2
    if argument(args, 1) == argument(args, 3) or target == argument(args, 3):
        raise CommandError("ERR the dead-letter stream must be another one than the stream and TO")
    if target is not None:
        find_stream_for_write(ctx, target)      # nothing is done if it is of another type
    hold_effects(ctx)
    for (ms, seq), pairs in letters_of(dead, ids, count):
        try:
            redriven += redrive(ctx, args, stream, group, dead, target, make_id(ms, seq), pairs)
        except CommandError:
            # Nothing has changed for this one; what was done before is to be propagated.
            if redriven == 0:
                raise
            break
        if redriven == count:
            break
    ctx.reply.integer(redriven)


def letters_of(Stream dead, bytes ids, Py_ssize_t count):
    """The letters with these `count` IDs, or from the first one on; one that was deleted is not found again."""
    cdef StreamID id = make_id(0, 0)
    cdef Py_ssize_t at
    if dead is None:
        return
    if ids is not None:
        for at in range(count):
            id = ids_in(ids)[at]
            yield from dead.range((id.ms, id.seq), (id.ms, id.seq))
        return
    for _ in range(MOST_LOOKED_AT // AT_A_TIME):
        letters = dead.range((id.ms, id.seq), count=AT_A_TIME)
        yield from letters
        if len(letters) < AT_A_TIME:
            return
        ms, seq = letters[AT_A_TIME - 1][0]
        id = make_id(ms, seq)
        if not id_increment(&id):
            return


cdef bint redrive(
    Context ctx, list args, Stream stream, Group group, Stream dead, bytes target, StreamID letter, list pairs
) except -1:
    """Give one entry of the dead-letter stream back; False, or CommandError, if it stays."""
    cdef StreamID id
    cdef dict known = dict(pairs[-len(LETTER_FIELDS):])
    if tuple(known) != LETTER_FIELDS or known[b"dlq.stream"] != args[1] or known[b"dlq.group"] != group.name:
        return False
    if not parse_id(<bytes>known[b"dlq.id"], &id):
        return False
    if stream.has_entry(id):
        if id_cmp(id, group.last_id) <= 0 and not group.has_pending(id):
            give_back(ctx, argument(args, 1), group, id)
    elif target is not None and len(pairs) > len(LETTER_FIELDS):
        append(ctx, target, [word for pair in pairs[:-len(LETTER_FIELDS)] for word in pair])
        if has_rules(ctx):
            replace_waiting(ctx, target, None)
    else:
        return False
    dead.remove(letter)
    ctx.dirty += 1
    ctx.db.touched(argument(args, 3))
    ctx.db.event(EVENT_STREAM, b"xdel", argument(args, 3))
    if ctx.is_propagating:
        ctx.effects.append([b"XDEL", argument(args, 3), id_text(letter)])
    return True


cdef int give_back(Context ctx, bytes stream_key, Group group, StreamID id) except -1:
    """Make an acknowledged entry pending, without a consumer, as if it had never been delivered."""
    group.give_back(id, 0)
    if ctx.is_propagating:
        propagate_unowned(ctx, stream_key, group, b"FAIL", pel_find(&group.pel, id))
    ctx.dirty += 1
    note_change(ctx, stream_key)
    return ctx.db.signal_ready(stream_key)
