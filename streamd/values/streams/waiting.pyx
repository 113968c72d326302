# cython: language_level=3
"""What clients that wait for streams ask of the values of their keys.

Readers without a group ask for a stream: whatever else happens to the key, they keep waiting. The consumers of a group
wait in line for its entries, and are also run when the key was removed or replaced by another type, since their
requests then fail. Entries released by XNACK go to the first waiter that claims, wherever it is in line.
"""

cimport cython

from streamd.core.blocking cimport Blocked, Queue, Waiters
from streamd.core.question cimport Question
from streamd.engine.ids cimport id_cmp
from streamd.keyspace.database cimport Database
from streamd.values.streams.group cimport Group
from streamd.values.streams.stream cimport Stream

__all__ = ["GroupQuestion"]

cdef Question ANY_STREAM = Question(Stream)


cdef Question stream_question(bytes group, bytes consumer, bint claims, bint in_line):
    """What XREAD (group: None) and XREADGROUP wait for.

    claims   for pending entries, too, which an idle time may yield
    in_line  its turn is after that of others that wait for the group; else it is asked whatever these get, since a rule
             limits what each consumer has
    """
    cdef GroupQuestion made
    if group is None:
        return ANY_STREAM
    made = GroupQuestion.__new__(GroupQuestion)
    made.value_class = Stream
    made.group = group
    made.consumer = consumer
    made.line = group if in_line else None
    made.passes = claims
    return made


cdef list consumers_waiting(Database db, bytes key, bytes group):
    """The consumers of a group that wait for entries of a stream."""
    cdef Waiters waiters = db.waiters.get(key)
    cdef Queue queue
    cdef Blocked blocked
    cdef list found = []
    if waiters is not None:
        for queue in (waiters.unlined, None if waiters.lines is None else waiters.lines.get(group)):
            for blocked in () if queue is None else queue.members():
                question = blocked.request.question
                if type(question) is GroupQuestion and (<GroupQuestion>question).group == group:
                    found.append((<GroupQuestion>question).consumer)
    return found


@cython.final
@cython.no_gc
cdef class GroupQuestion(Question):
    """Whether the group has new entries."""

    cdef bint is_met(self, object value, bint is_first) except -1:
        cdef Group group
        # The first is run in any case, as in Redis: its consumer is created again if it was deleted. Who claims finds
        # out by itself.
        if is_first or type(value) is not Stream or self.passes:
            return True
        group = (<Stream>value).groups.get(self.group)
        return group is None or (group.order is not None and group.order.first_in_turn() is not NULL) or (
            (<Stream>value).length and id_cmp((<Stream>value).last_live_id(), group.last_id) > 0
        )

    cdef bint lets_pass(self, object value) except -1:
        cdef Group group = (<Stream>value).groups.get(self.group) if type(value) is Stream else None
        return group is not None and group.pel.unowned
