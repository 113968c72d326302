# cython: language_level=3
"""Requests: bytes in, argument lists out. Contract in request.pyx."""


cdef class RequestParser:
    cdef public bint authenticated          # False: the smaller limits for strangers
    cdef public long long max_bulk_len      # proto-max-bulk-len, bytes
    cpdef int feed(self, bytes data) except -1
    cpdef list next_request(self)           # list[bytes]; [] for an empty request; None: more bytes are needed
