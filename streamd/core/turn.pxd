# cython: language_level=3
"""A turn of the event loop. See turn.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.effects cimport Effects
from streamd.core.output cimport OutputLimits


cdef enum TurnEnd:
    # How `before_sleep` will be called.
    END_IDLE             # not at all: there is no work for it yet
    END_SOON             # by the loop
    END_POSSIBLE         # after the present events, if they give it work
    END_WANTED           # after the present events


cdef class Turn(OutputLimits):
    cdef readonly object loop
    cdef readonly Effects effects
    cdef TurnEnd end
    cdef bint is_asked                    # a capability wants to be called before the replies of this turn
    cdef tuple before                     # of Capability: those that may ask, in order
    cdef tuple after                      # of Capability
    cdef list resumed                     # clients served after a wait, which may have more requests
    cdef long long share_us               # how long a client may currently run requests before others get their turn
    cdef long long turn_started_us        # monotonic: when the first request of this turn arrived; 0: none yet
    cdef readonly long long turns         # turns of the loop with work to do
    cdef readonly long long turns_us      # total time of these turns

    cpdef int before_sleep(self) except -1
    cdef int resume_served(self) except -1
    cdef int resume_put_off(self) except -1
    cdef int prepare_replies(self) except -1
    cdef list send_replies(self)
    cdef int look_after_clients(self, list clients) except -1
    cdef int close_doomed(self) except -1
    cpdef int ask_before_replies(self) except -1
