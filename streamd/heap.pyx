# cython: language_level=3
"""The memory of compiled modules: how much there is, and returning free memory to the system.

Streams, pending entries and buffers live in blocks of the C library. Every compiled module that keeps such blocks takes
them from here (heap.pxd), so that their total is known at any time, exactly and at no cost: maxmemory needs it before
every command, and the C library can only report it by walking all its free blocks.

Blocks of up to 512 bytes, such as the packed values of small keys, do not come from the C library, which would add
eight bytes to each, and return their memory only where the end of its heap is free:

    chunk, 4 MiB, at a multiple of its size          slab of blocks of 192 bytes
    +-------+--------+--------+- - -+----------+     +-+---------+---------+------+---------+- - - - - -+
    | heads | slab 1 | slab 2 |     | slab 255 |     |8| block 0 | block 1 | hole | block 3 | not used  |
    +-------+--------+--------+- - -+----------+     +-+---------+---------+------+---------+- - - - - -+

A slab has 16 KiB, and blocks of one size, a multiple of 16 bytes. Each of them starts 8 bytes after such a multiple,
where no block of the C library does: so `free` knows whose it is. Blocks of malloc_sized may also have 8 bytes more,
since their sizes already show whose they are. A slab without blocks can be used for another size;
its pages are returned to the system at once. A lock guards all of it, since a thread frees large values in the
background; it is held for a few instructions, or for one system call. What needs addresses of the C library, as the
interpreters of scripts do, calls realloc_aligned.

The interpreter's own objects are not counted here. Databases count theirs (Database.memory).
"""

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

__all__ = ["allocated", "describe", "trim", "trim_freed"]

cdef extern from *:
    """
    #if STREAMD_SMALL_MOST
    #include <pthread.h>
    #include <sched.h>
    #include <sys/mman.h>

    static struct {
        int lock;                   /* of all below, and of the slabs */
        streamd_slab *open[STREAMD_SMALL_MOST / STREAMD_UNIT + 1];  /* by the units of their blocks: slabs with room */
        streamd_slab *unused;
        long long used;             /* slabs */
    } slabs;
    static streamd_heap *counts;

    static void streamd_lock(void) {
        while (__atomic_exchange_n(&slabs.lock, 1, __ATOMIC_ACQUIRE))
            sched_yield();
    }
    static void streamd_unlock(void) { __atomic_store_n(&slabs.lock, 0, __ATOMIC_RELEASE); }

    /* Only under the lock; it is read without. */
    static void streamd_count_small(long long size) {
        __atomic_store_n(&counts->small, counts->small + size, __ATOMIC_RELAXED);
    }

    static char *streamd_slab_start(streamd_slab *slab) {
        uintptr_t chunk = (uintptr_t)slab & ~(STREAMD_CHUNK - 1);
        return (char *)chunk + (slab - (streamd_slab *)chunk) * STREAMD_SLAB;
    }
    static void streamd_open_slab(streamd_slab *slab) {
        slab->previous = NULL;
        slab->next = slabs.open[slab->units];
        if (slab->next != NULL)
            slab->next->previous = slab;
        slabs.open[slab->units] = slab;
        slab->is_open = 1;
    }
    static void streamd_close_slab(streamd_slab *slab) {
        if (slab->previous != NULL)
            slab->previous->next = slab->next;
        else
            slabs.open[slab->units] = slab->next;
        if (slab->next != NULL)
            slab->next->previous = slab->previous;
        slab->is_open = 0;
    }
    /* Memory for more slabs. The first slab of a chunk describes the others. Returns 0 when there is no memory. */
    static int streamd_add_chunk(void) {
        _Static_assert(STREAMD_CHUNK / STREAMD_SLAB * sizeof(streamd_slab) <= STREAMD_SLAB, "one slab describes all");
        char *mapped = mmap(NULL, 2 * STREAMD_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uintptr_t start = (uintptr_t)mapped, chunk, number;
        if (mapped == MAP_FAILED)
            return 0;
        chunk = (start + STREAMD_CHUNK - 1) & ~(STREAMD_CHUNK - 1);
        if (chunk > start)
            munmap(mapped, chunk - start);
        if (chunk < start + STREAMD_CHUNK)
            munmap((char *)chunk + STREAMD_CHUNK, start + STREAMD_CHUNK - chunk);
        for (number = STREAMD_CHUNK / STREAMD_SLAB - 1; number > 0; number--) {
            ((streamd_slab *)chunk)[number].next = slabs.unused;
            slabs.unused = &((streamd_slab *)chunk)[number];
        }
        return 1;
    }
    static streamd_slab *streamd_begin_slab(size_t units) {
        streamd_slab *slab;
        if (slabs.unused == NULL && !streamd_add_chunk())
            return NULL;
        slab = slabs.unused;
        slabs.unused = slab->next;
        slab->hole = NULL;
        slab->fresh = streamd_slab_start(slab) + 8;
        slab->last = streamd_slab_start(slab) + STREAMD_SLAB - units * STREAMD_UNIT;
        slab->live = 0;
        slab->units = (uint8_t)units;
        streamd_open_slab(slab);
        slabs.used++;
        return slab;
    }
    /* A slab without blocks: its pages go back to the system, unless it is the only one of its size with room. */
    static void streamd_end_slab(streamd_slab *slab) {
        if (slab->next == NULL && slab->previous == NULL)
            return;
        streamd_close_slab(slab);
        slab->next = slabs.unused;
        slabs.unused = slab;
        slabs.used--;
        madvise(streamd_slab_start(slab), STREAMD_SLAB, MADV_DONTNEED);
    }

    static void *streamd_take(size_t units) {
        streamd_slab *slab;
        char *block;
        streamd_lock();
        slab = slabs.open[units];
        if (slab == NULL && (slab = streamd_begin_slab(units)) == NULL) {
            streamd_unlock();
            return NULL;
        }
        block = slab->hole;
        if (block != NULL)
            memcpy(&slab->hole, block, sizeof(char *));
        else {
            block = slab->fresh;
            slab->fresh += units * STREAMD_UNIT;
        }
        slab->live++;
        if (slab->hole == NULL && slab->fresh > slab->last)
            streamd_close_slab(slab);
        streamd_count_small((long long)(units * STREAMD_UNIT));
        streamd_unlock();
        return block;
    }
    static void streamd_give_back(void *block) {
        streamd_slab *slab = streamd_slab_of(block);
        streamd_lock();
        memcpy(block, &slab->hole, sizeof(char *));
        slab->hole = block;
        streamd_count_small(-(long long)slab->units * STREAMD_UNIT);
        if (!slab->is_open)
            streamd_open_slab(slab);
        if (--slab->live == 0)
            streamd_end_slab(slab);
        streamd_unlock();
    }

    static void streamd_begin_heap(streamd_heap *heap) {
        counts = heap;
        heap->take = streamd_take;
        heap->give_back = streamd_give_back;
        pthread_atfork(streamd_lock, streamd_unlock, streamd_unlock);   /* a child finds the slabs complete */
    }
    static long long streamd_slab_bytes(void) { return slabs.used * (long long)STREAMD_SLAB; }
    #else
    static void streamd_begin_heap(streamd_heap *heap) { (void)heap; }
    static long long streamd_slab_bytes(void) { return 0; }
    #endif

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
    static void streamd_keep_little(void) {
        mallopt(M_ARENA_MAX, 1);
        mallopt(M_MMAP_THRESHOLD, 256 << 10);
        mallopt(M_TRIM_THRESHOLD, 1 << 20);
    }
    #elif defined(__APPLE__)
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    #include <malloc/malloc.h>
    static int streamd_trim(size_t kept) { (void)kept; return malloc_zone_pressure_relief(NULL, 0) != 0; }
    static void streamd_keep_little(void) { }
    #else
    static char *streamd_describe(size_t *length) { *length = 0; return NULL; }
    static int streamd_trim(size_t kept) { (void)kept; return 0; }
    static void streamd_keep_little(void) { }
    #endif
    """
    void streamd_begin_heap(streamd_heap *heap) noexcept
    long long streamd_slab_bytes() noexcept nogil
    int streamd_trim(size_t kept) noexcept nogil
    void streamd_keep_little() noexcept nogil
    char *streamd_describe(size_t *length) noexcept nogil
    void libc_free "free"(void *block) noexcept nogil

streamd_begin_heap(&heap_state)


def allocated():
    """Bytes of memory that compiled modules hold."""
    return heap_bytes()


def describe():
    """What is known of free memory, as text: slabs, and what the C library says of its own. O(free blocks)."""
    cdef size_t length = 0
    cdef char *text
    with nogil:
        text = streamd_describe(&length)
    held = (
        f"Compiled modules hold {heap_bytes()} bytes, {heap_state.small} of them in slabs of"
        f" {streamd_slab_bytes()} bytes. "
    )
    if text is NULL:
        return held + "The C library of this system reports nothing more.\n"
    report = text[:length].decode("latin-1")
    libc_free(text)
    return held + f"The C library says:\n{report}"


def trim():
    """Return free memory to the system, as far as the C library can; whether there was any. About 0.1 ms per MB."""
    cdef int done
    with nogil:
        done = streamd_trim(0)
    return done != 0


def keep_little():
    """Have the C library keep little of what is freed: for a process of a few threads that frees large blocks.

    Otherwise each thread has free memory of its own, and after a large block was freed, all of that size are kept.
    To be called before there are threads.
    """
    streamd_keep_little()


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
