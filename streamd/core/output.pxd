# cython: language_level=3
"""Limits of unsent output per client. See output.pyx."""

from streamd.core.client cimport Client, ClientHost


cdef class OutputLimits(ClientHost):
    cdef long long output_hard[3]         # limits of unsent replies by OutputClass, bytes; 0: none
    cdef long long output_soft[3]
    cdef long long output_soft_us[3]      # how long output_soft may be exceeded
    cdef list doomed                      # clients over their limit, closed at the end of the turn
    cdef readonly long long closed_for_output    # clients closed for their unsent replies

    cdef int doom(self, Client client) except -1
