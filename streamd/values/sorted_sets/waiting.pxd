# cython: language_level=3
"""What clients that wait for sorted sets ask. See waiting.pyx."""

from streamd.core.question cimport Question

cdef Question SORTED_SET_QUESTION
