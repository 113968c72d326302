# cython: language_level=3
"""Question: what a waiting client asks of the values of its keys."""

cimport cython

__all__ = ["Question"]


@cython.no_gc
cdef class Question:
    """Whether running a waiting request again may serve it. This class asks whether a key holds a value of some class.

    value_class  the class
    line         clients with the same line wait in one queue for a key: only its head is run when the key is ready,
                 and the next one when the head was served and may have left something. None: all are run.
                 Types of value do not share lines: a compiled class that fills this field by itself keeps it its own
    passes       in a line: may be served although those before it wait on
    """

    def __init__(self, type value_class not None, object line=None, bint passes=False):
        self.value_class = value_class
        self.line = None if line is None else (value_class, line)
        self.passes = passes

    cdef bint is_met(self, object value, bint is_first) except -1:
        """Whether a key with this value (None: no key) may serve it; is_first: nobody in line was served before it."""
        return type(value) is self.value_class

    cdef bint lets_pass(self, object value) except -1:
        """Asked of the head of a line that was not served: whether there is something for those in it that pass."""
        return False
