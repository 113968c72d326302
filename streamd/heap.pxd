# cython: language_level=3
"""malloc and its kin for compiled modules, counting what they hand out. See heap.pyx.

    from streamd.heap cimport free, malloc, realloc

A block from here must be freed here, whichever module does it: libc's `free` would leave it counted forever.
"""

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__APPLE__)
    #include <malloc/malloc.h>
    #define streamd_block_size(block) malloc_size(block)
    #define STREAMD_BLOCK_HEAD 0
    #elif defined(__FreeBSD__)
    #include <malloc_np.h>
    #define streamd_block_size(block) malloc_usable_size(block)
    #define STREAMD_BLOCK_HEAD 0
    #else
    #include <malloc.h>
    #define streamd_block_size(block) malloc_usable_size(block)
    #define STREAMD_BLOCK_HEAD sizeof(size_t)   /* what the C library keeps before a block */
    #endif

    static inline void streamd_count(long long *counter, void *block, int sign) {
        /* Blocks are freed by other threads too. */
        if (block != NULL)
            __atomic_fetch_add(
                counter, sign * (long long)(streamd_block_size(block) + STREAMD_BLOCK_HEAD), __ATOMIC_RELAXED);
    }
    static inline void streamd_add(long long *counter, long long size) {
        __atomic_fetch_add(counter, size, __ATOMIC_RELAXED);
    }
    static inline long long streamd_counted(long long *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }
    static inline void *streamd_malloc(long long *counter, size_t size) {
        void *block = malloc(size);
        streamd_count(counter, block, 1);
        return block;
    }
    static inline void *streamd_calloc(long long *counter, size_t count, size_t size) {
        void *block = calloc(count, size);
        streamd_count(counter, block, 1);
        return block;
    }
    static inline void *streamd_realloc(long long *counter, void *block, size_t size) {
        long long before = block == NULL ? 0 : (long long)(streamd_block_size(block) + STREAMD_BLOCK_HEAD);
        void *moved = realloc(block, size);
        if (moved != NULL)
            __atomic_fetch_add(
                counter, (long long)(streamd_block_size(moved) + STREAMD_BLOCK_HEAD) - before, __ATOMIC_RELAXED);
        return moved;
    }
    static inline void streamd_free(long long *counter, void *block) {
        streamd_count(counter, block, -1);
        free(block);
    }
    """
    void *streamd_malloc(long long *counter, size_t size) noexcept nogil
    void *streamd_calloc(long long *counter, size_t count, size_t size) noexcept nogil
    void *streamd_realloc(long long *counter, void *block, size_t size) noexcept nogil
    void streamd_free(long long *counter, void *block) noexcept nogil
    void streamd_add(long long *counter, long long size) noexcept nogil
    long long streamd_counted(long long *counter) noexcept nogil
    size_t streamd_block_size(void *block) noexcept nogil


cdef long long counted    # bytes allocated and not freed; one counter for all modules


cdef inline void *malloc(size_t size) noexcept nogil:
    return streamd_malloc(&counted, size)


cdef inline void *calloc(size_t count, size_t size) noexcept nogil:
    return streamd_calloc(&counted, count, size)


cdef inline void *realloc(void *block, size_t size) noexcept nogil:
    return streamd_realloc(&counted, block, size)


cdef inline void free(void *block) noexcept nogil:
    streamd_free(&counted, block)


cdef inline size_t block_size(void *block) noexcept nogil:
    """Usable bytes of a block."""
    return streamd_block_size(block)


cdef inline void count_object(long long size) noexcept nogil:
    """Count an object of the interpreter that belongs to the data: its size to add it, minus its size to remove it."""
    streamd_add(&counted, size)


cdef void freed_aside(size_t size) noexcept nogil
    # A thread other than the loop's has freed `size` bytes: return them to the system piece by piece. See heap.pyx.


cdef inline long long heap_bytes() noexcept nogil:
    """Bytes that compiled modules hold."""
    return streamd_counted(&counted)
