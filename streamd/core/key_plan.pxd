# cython: language_level=3
"""Where the keys of requests are. See key_plan.pyx."""


cdef enum KeyAccess:
    READ = 1
    WRITE = 2
    ASKED_EACH_TIME = 4          # a function of the declaration says how the keys of a request are accessed


cdef struct KeyRange:
    # A key specification (spec.KeySpec), and where its keys are in the current request.
    int first                    # index of the first key; 0: the specification is evaluated for each request
    int last                     # relative to the first; relative to the end when negative
    int step
    int access                   # set of KeyAccess
    Py_ssize_t found_first       # in this request
    Py_ssize_t found_last        # before the first: there are none
    Py_ssize_t found_step
    int found_access


cdef class Plan:
    cdef KeyRange *ranges        # owned
    cdef readonly int count
    cdef Py_ssize_t only         # index of the key, if each request has exactly this one, and no channels; else 0
    cdef list specs              # of spec.KeySpec, one for each range
    cdef object key_flags        # spec.Command.key_flags, or None
    cdef Py_ssize_t first_channel    # 0: the command names no channels
    cdef Py_ssize_t last_channel
    cdef bint channels_are_patterns

    cdef int find_keys(self, list args) except -1
