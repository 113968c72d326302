# cython: language_level=3
"""Where units with scripts run. See stage.pyx."""

from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher
from streamd.core.route cimport Route


cdef class Stage:
    cdef object host
    cdef Dispatcher dispatcher
    cdef object loop
    cdef object audience                # the greenlet of the event loop
    cdef object player                  # the greenlet in which units run; None before the first
    cdef bint is_playing                # the running code is the player's
    cdef bint is_interrupted            # a unit has been put aside
    cdef bint is_closed
    cdef Client client                  # the unit
    cdef Route route
    cdef list args
    cdef object failure                 # the exception that has ended it

    cdef int run(self, Client client, Route route, list args) except -1
    cdef int enter(self) except -1
    cdef int go_on_later(self) except -1
