# cython: language_level=3
"""The memory of compiled modules: how much it is, and giving back to the system what is free.

Streams, pending entries and buffers live in blocks of the C library. Every compiled module that keeps such blocks takes
them from here (heap.pxd), so that what they hold together is known at any time, exactly and at no cost: maxmemory needs it
before every command, and the C library can only tell by looking at all its free blocks.

The interpreter's own objects are not counted here. Databases count theirs (Database.memory).
"""

__all__ = ["allocated", "describe", "settle", "trim"]

cdef extern from *:
    """
    #if defined(__GLIBC__)
    #include <malloc.h>
    #include <stdio.h>
    #include <stdlib.h>
    /* An XML text that the caller frees with free(), or NULL. */
    static char *streamd_describe(size_t *length) {
        char *text = NULL;
        FILE *out = open_memstream(&text, length);
        if (out == NULL)
            return NULL;
        malloc_info(0, out);
        fclose(out);
        return text;
    }
    static int streamd_trim(size_t kept) { return malloc_trim(kept); }
    static int streamd_settle(void) { return mallopt(M_MMAP_THRESHOLD, 256 * 1024) && mallopt(M_ARENA_MAX, 2); }
    #elif defined(__APPLE__)
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    #include <malloc/malloc.h>
    static int streamd_trim(size_t kept) { (void)kept; return malloc_zone_pressure_relief(NULL, 0) != 0; }
    static int streamd_settle(void) { return 0; }
    #else
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    static int streamd_trim(size_t kept) { (void)kept; return 0; }
    static int streamd_settle(void) { return 0; }
    #endif
    """
    int streamd_trim(size_t kept) noexcept nogil
    int streamd_settle() noexcept nogil
    char *streamd_describe(size_t *length) noexcept nogil
    void libc_free "free"(void *block) noexcept nogil


def allocated():
    """Bytes of memory that compiled modules hold."""
    return heap_bytes()


def describe():
    """What the C library says about its memory, as text; a line of our own where it says nothing. O(free blocks)."""
    cdef size_t length = 0
    cdef char *text
    with nogil:
        text = streamd_describe(&length)
    if text is NULL:
        return f"Compiled modules hold {heap_bytes()} bytes. The C library of this system tells no more.\n"
    told = text[:length].decode("latin-1")
    libc_free(text)
    return f"Compiled modules hold {heap_bytes()} bytes. The C library says:\n{told}"


def trim():
    """Give free memory back to the system, as far as the C library can; whether there was any. Takes milliseconds per GB."""
    cdef int done
    with nogil:
        done = streamd_trim(0)
    return done != 0


def settle():
    """Choose how the C library keeps free memory; once, when a server process starts. Whether it can be chosen."""
    return streamd_settle() != 0
