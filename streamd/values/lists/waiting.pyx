# cython: language_level=3
"""The question of clients that wait for lists: whether the value of a key is one.

All that wait for a key share one queue, whichever command they have sent: the one that has waited longest is served
first.
"""

from streamd.core.question cimport Question
from streamd.values.lists.list_value cimport List

__all__ = []

cdef Question LIST_QUESTION = Question(List, line=b"elements")
