# cython: language_level=3
"""What clients that wait for sorted sets ask of the values of their keys: for a sorted set.

They stand in one line for each key, whichever command they have sent: only the first of them is served, and the next
one if it has left something.
"""

from streamd.core.question cimport Question
from streamd.values.sorted_sets.sorted_set cimport SortedSet

__all__ = []

cdef Question SORTED_SET_QUESTION = Question(SortedSet, line=b"")
