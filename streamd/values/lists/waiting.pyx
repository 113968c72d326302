# cython: language_level=3
"""What clients that wait for lists ask of the values of their keys: one element each.

All of a key wait in one line, whatever their commands: each takes elements, and the one that has waited longest comes
first.
"""

from streamd.core.question cimport Question
from streamd.values.lists.list_value cimport List

__all__ = []

cdef Question LIST_QUESTION = Question(List, line=b"elements")
