# cython: language_level=3
"""A set of descriptors that the kernel watches. See poller.pyx."""

from streamd.core.client cimport Client, ClientHost


cdef enum Event:
    READABLE = 1
    WRITABLE = 2
    BROKEN = 4          # closed from both sides, or failed


cdef extern from *:
    """
    typedef struct { void *owner; int events; } Happening;
    """
    ctypedef struct Happening:
        void *owner         # a Watched
        int events          # set of Event


cdef enum:
    MOST_EVENTS = 256       # taken from the kernel at a time
    INPUT_SIZE = 65536      # bytes received at a time


cdef class Crew:
    # Threads that serve connections of a poller; threads.IoThreads implements it.
    cdef int adopt(self, Client client, object sock) except -1      # serve a connection that has been accepted
    cdef int serve(self) except -1          # handle what they have reported
    cdef int dispatch(self) except -1       # let them see what has been posted
    cdef bint doze(self) noexcept           # the loop is about to sleep: False if they have reported something
    cdef int rouse(self) noexcept           # it is awake
    cdef int ring(self) noexcept            # wake it
    cdef bint is_idle(self) noexcept        # none of them has a connection
    cdef int disband(self) except -1        # end them


cdef class EventSet:
    cdef readonly int fd
    cdef list pollers
    cdef list crews                     # those of the pollers; None: there are none
    cdef list gone                      # those that left the set during `handle`, which may still have events there
    cdef bint is_handling
    cdef bint has_closing               # some poller closes as soon as it is empty
    cdef long long deadline_us          # when `wait` returns, at the latest, by the monotonic clock; -1: never
    cdef list timers                    # [(when by the monotonic clock, callback)], which are `wait`'s
    cdef long long timer_us             # the earliest of them; -1: there are none
    cdef Happening[MOST_EVENTS] happenings

    cpdef close(self)
    cdef int take(self, int ms) except -1
    cdef int take_beside(self, int ms) except -2
    cdef list handle(self, int count)
    cdef int set_timers(self, list timers) except -1
    cdef int run_timers(self, object loop, long long now_us) except -1


cdef class Poller:
    cdef readonly object loop
    cdef ClientHost host
    cdef EventSet events
    cdef bint owns_events
    cdef Py_ssize_t size                # how many are watched
    cdef bint is_closing
    cdef Crew crew                      # None: all is done on the loop's thread
    cdef char *input                    # INPUT_SIZE bytes, for whoever receives

    cdef int take_crew(self, Crew crew) except -1
    cdef int close_if_empty(self) except -1


cdef class Watched:
    cdef Poller poller
    cdef int fd
    cdef int wanted                     # set of Event; -1: not in the set of the poller

    cdef int watch(self, int events) except -1
    cdef int leave(self) except -1
    cdef int happened(self, int events) except -1
    cdef int failed(self, object error) except -1
