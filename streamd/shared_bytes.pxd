# cython: language_level=3
"""SharedBytes: bytes that go to many connections, and are kept once.

    from streamd.shared_bytes cimport SHARED_LEAST, SharedBytes, shared_drop, shared_hold, shared_new

They do not change. Whoever creates or holds them has to drop them; the last one frees them, on whichever thread that
is.
"""

from libc.string cimport memcpy

from streamd.heap cimport free, realloc_aligned


cdef extern from *:
    """
    #include <stddef.h>

    typedef struct {
        long long holders;      /* atomic */
        size_t size;
        char data[];
    } streamd_shared;

    static inline long long streamd_holders(streamd_shared *bytes) {
        return __atomic_load_n(&bytes->holders, __ATOMIC_RELAXED);
    }
    static inline void streamd_hold(streamd_shared *bytes) {
        __atomic_fetch_add(&bytes->holders, 1, __ATOMIC_RELAXED);
    }
    /* Whether this was the last holder. */
    static inline int streamd_drop(streamd_shared *bytes) {
        return __atomic_sub_fetch(&bytes->holders, 1, __ATOMIC_ACQ_REL) == 0;
    }
    """
    ctypedef struct SharedBytes "streamd_shared":
        long long holders
        size_t size
        char *data
    long long shared_holders "streamd_holders"(SharedBytes *bytes) noexcept nogil
    void shared_hold "streamd_hold"(SharedBytes *bytes) noexcept nogil
    bint streamd_drop(SharedBytes *bytes) noexcept nogil


cdef enum:
    SHARED_LEAST = 2048     # bytes from which on sharing costs less than copying them for each connection


cdef inline SharedBytes *shared_new(
    const char *head, size_t head_size, const char *tail, size_t tail_size
) noexcept nogil:
    """Bytes from two places, held once; NULL: no memory."""
    # Small blocks of the heap belong to the loop's thread: these are never small.
    cdef SharedBytes *bytes = <SharedBytes *>realloc_aligned(NULL, sizeof(SharedBytes) + head_size + tail_size)
    if bytes is not NULL:
        bytes.holders = 1
        bytes.size = head_size + tail_size
        memcpy(bytes.data, head, head_size)
        memcpy(bytes.data + head_size, tail, tail_size)
    return bytes


cdef inline void shared_drop(SharedBytes *bytes) noexcept nogil:
    """Hold them no more."""
    if streamd_drop(bytes):
        free(bytes)
