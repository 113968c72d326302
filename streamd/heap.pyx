# cython: language_level=3
"""The memory of compiled modules: how much there is, and returning free memory to the system.

Streams, pending entries and buffers live in blocks of the C library. Every compiled module that keeps such blocks takes
them from here (heap.pxd), so that their total is known at any time, exactly and at no cost: maxmemory needs it before
every command, and the C library can only report it by walking all its free blocks.

The interpreter's own objects are not counted here. Databases count theirs (Database.memory).
"""

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

__all__ = ["allocated", "describe", "trim", "trim_freed"]

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
    #elif defined(__APPLE__)
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    #include <malloc/malloc.h>
    static int streamd_trim(size_t kept) { (void)kept; return malloc_zone_pressure_relief(NULL, 0) != 0; }
    #else
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    static int streamd_trim(size_t kept) { (void)kept; return 0; }
    #endif
    """
    int streamd_trim(size_t kept) noexcept nogil
    char *streamd_describe(size_t *length) noexcept nogil
    void libc_free "free"(void *block) noexcept nogil


def allocated():
    """Bytes of memory that compiled modules hold."""
    return heap_bytes()


def describe():
    """What the C library says about its memory, as text; a line of streamd's if it says nothing. O(free blocks)."""
    cdef size_t length = 0
    cdef char *text
    with nogil:
        text = streamd_describe(&length)
    if text is NULL:
        return f"Compiled modules hold {heap_bytes()} bytes. The C library of this system reports nothing more.\n"
    report = text[:length].decode("latin-1")
    libc_free(text)
    return f"Compiled modules hold {heap_bytes()} bytes. The C library says:\n{report}"


def trim():
    """Return free memory to the system, as far as the C library can; whether there was any. About 0.1 ms per MB."""
    cdef int done
    with nogil:
        done = streamd_trim(0)
    return done != 0


# --- Giving back what another thread frees ---------------------------------------------------------------------------
#
# The C library keeps freed memory, so a process that once held a large stream looks large ever after. Returning pages
# takes about 0.1 ms per MB, during which no other thread gets new memory from the library. So it is done in pieces,
# each short enough not to be noticed. Where free blocks are many and small, walking them takes as long again, however
# little can be returned; it is then done less often.

cdef enum:
    LEAST_PIECE = 16 << 20
    GREATEST_PIECE = 64 << 20
    LONG_US = 4000              # a stall that might be noticed

cdef long long untrimmed = 0            # bytes freed since the last time
cdef long long piece = LEAST_PIECE      # bytes after which it is done


cdef long long now_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <long long>t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef void trim_timed() noexcept nogil:
    """Return free memory to the system; choose when to do so next."""
    global untrimmed, piece
    cdef long long started = now_us()
    streamd_trim(0)
    untrimmed = 0
    if now_us() - started > LONG_US:
        piece = piece * 2 if piece < GREATEST_PIECE else piece
    elif piece > LEAST_PIECE:
        piece //= 2


cdef void freed_aside(size_t size) noexcept nogil:
    """Called by a thread that frees memory for the loop's thread: `size` more bytes are free."""
    global untrimmed
    untrimmed += <long long>size
    if untrimmed >= piece:
        trim_timed()


def trim_freed():
    """Called by such a thread when it has nothing more to free: return the rest, if it is worth it."""
    if untrimmed >= piece // 4:
        with nogil:
            trim_timed()
