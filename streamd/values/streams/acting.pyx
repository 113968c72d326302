# cython: language_level=3, boundscheck=False, wraparound=False
"""Whether the server may change data by itself: move entries, trim streams. Only a primary that accepts writes may."""

from streamd.core.dispatch cimport FENCED, FEW_REPLICAS, Dispatcher

__all__ = []


cdef bint is_held(object host) except -1:
    """Whether the server must not change data by itself now: others decide, or writes are refused or held back."""
    cdef Dispatcher dispatcher = host.dispatcher
    return bool(
        host.is_loading or dispatcher.is_replica or dispatcher.keeps_keys or dispatcher.pause
        or dispatcher.is_busy or dispatcher.is_refusing or dispatcher.state & (FENCED | FEW_REPLICAS)
    )
