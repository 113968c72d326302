# cython: language_level=3
"""What clients that wait for lists ask. See waiting.pyx."""

from streamd.core.question cimport Question

cdef Question LIST_QUESTION
