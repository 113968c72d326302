# cython: language_level=3
"""The question of clients that wait for sorted sets: whether the value of a key is one.

All that wait for a key share one queue, whichever command they have sent: the first is served, and the next one if
members are left.
"""

from streamd.core.question cimport Question
from streamd.values.sorted_sets.sorted_set cimport SortedSet

__all__ = []

cdef Question SORTED_SET_QUESTION = Question(SortedSet, line=b"")
