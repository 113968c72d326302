# cython: language_level=3
"""Blocks of streamd.heap, by their addresses."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uintptr_t
from libc.string cimport memcpy, memset

from streamd.heap cimport (
    block_memory, block_size, calloc, free, free_sized, malloc, malloc_sized, realloc, sized_memory,
)

__all__ = [
    "MOST_SMALL", "churn", "memory_of", "read", "release", "release_sized", "resize", "room_of",
    "sized_memory_of", "take", "take_sized", "take_zeros", "write",
]

cdef extern from *:
    enum:
        STREAMD_SMALL_MOST

MOST_SMALL = STREAMD_SMALL_MOST
"""Bytes of the largest block that does not come from the C library; 0: all do."""

cdef enum:
    PLACES = 256        # blocks that `churn` has at most


def take(size_t size):
    """The address of a new block; 0: no memory."""
    return <uintptr_t>malloc(size)


def take_zeros(size_t count, size_t size):
    return <uintptr_t>calloc(count, size)


def resize(uintptr_t block, size_t size):
    return <uintptr_t>realloc(<void *>block, size)


def release(uintptr_t block):
    free(<void *>block)


def take_sized(size_t size):
    """The address of a new block that `release_sized` frees."""
    return <uintptr_t>malloc_sized(size)


def release_sized(uintptr_t block, size_t size):
    free_sized(<void *>block, size)


def sized_memory_of(uintptr_t block, size_t size):
    return sized_memory(<void *>block, size)


def room_of(uintptr_t block):
    return block_size(<void *>block)


def memory_of(uintptr_t block):
    return block_memory(<void *>block)


def read(uintptr_t block, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>block, size)


def write(uintptr_t block, bytes data not None):
    memcpy(<void *>block, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


def churn(uint32_t seed, size_t rounds):
    """Take and free blocks of any size, without the GIL; how many did not hold what was written to them."""
    cdef uint8_t *blocks[PLACES]
    cdef size_t sizes[PLACES]
    cdef size_t at, size
    cdef size_t wrong = 0
    cdef uint8_t mark = <uint8_t>seed
    memset(blocks, 0, sizeof(blocks))
    with nogil:
        for _ in range(rounds):
            seed = seed * 1664525 + 1013904223
            at = seed >> 24
            if blocks[at] is not NULL:
                size = sizes[at]
                wrong += blocks[at][0] != mark or blocks[at][size - 1] != mark
                free(blocks[at])
                blocks[at] = NULL
                continue
            size = 1 + (seed >> 8) % 600
            blocks[at] = <uint8_t *>malloc(size)
            sizes[at] = size
            memset(blocks[at], mark, size)
        for at in range(PLACES):
            free(blocks[at])
    return wrong
