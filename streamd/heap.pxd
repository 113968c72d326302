# cython: language_level=3
"""malloc and its kin for compiled modules, counting what they hand out. See heap.pyx.

    from streamd.heap cimport free, malloc, realloc

A block from here must be freed here, whichever module does it: libc's `free` would leave it counted forever, and does
not know small blocks.
"""

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #if defined(__APPLE__)
    #include <malloc/malloc.h>
    #define streamd_libc_size(block) malloc_size(block)
    #define STREAMD_BLOCK_HEAD 0
    #elif defined(__FreeBSD__)
    #include <malloc_np.h>
    #define streamd_libc_size(block) malloc_usable_size(block)
    #define STREAMD_BLOCK_HEAD 0
    #else
    #include <malloc.h>
    #define streamd_libc_size(block) malloc_usable_size(block)
    #define STREAMD_BLOCK_HEAD sizeof(size_t)   /* what the C library keeps before a block */
    #endif

    /* Small blocks have an allocator of their own, see heap.pyx. Their addresses are those that are 8 more than a
       multiple of 16: a C library aligns its blocks to 16, unless they are smaller. A sanitizer must see each block. */
    #if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    #define STREAMD_SANITIZED
    #elif defined(__has_feature)
    #if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    #define STREAMD_SANITIZED
    #endif
    #endif
    #if defined(__linux__) && defined(__LP64__) && !defined(STREAMD_SANITIZED)
    #define STREAMD_SMALL_MOST 512
    #define STREAMD_LEAST 16            /* bytes of a block of the C library */
    #define streamd_is_small(block) ((uintptr_t)(block) & 8)
    #else
    #define STREAMD_SMALL_MOST 0        /* there are none */
    #define STREAMD_LEAST 1
    #define streamd_is_small(block) 0
    #endif
    #define STREAMD_CALLED static __attribute__((noinline, unused))
    #define STREAMD_UNIT 8              /* sizes of small blocks are multiples of it */
    #define STREAMD_STEP 16             /* ... of this one, if `free` has to find out whose they are */
    #define STREAMD_SLAB ((uintptr_t)1 << 14)
    #define STREAMD_CHUNK ((uintptr_t)1 << 22)

    typedef struct streamd_slab {
        struct streamd_slab *next, *previous;   /* of its size, with room; of an unused one, `next`: the next such */
        char *hole;                 /* the first block that was freed, whose first bytes are the address of the next */
        char *fresh;                /* where what was never used begins */
        char *last;                 /* the last place at which a block fits */
        uint16_t live;              /* blocks */
        uint8_t units;              /* of a block */
        uint8_t is_open;            /* it is in the list of its size: it has room */
    } streamd_slab;

    typedef struct {
        long long counted;          /* bytes of the C library's blocks */
        long long small;            /* bytes of small blocks */
        void *(*take)(size_t units);        /* a small block; NULL: no memory */
        void (*give_back)(void *block);     /* ... which is no longer used */
    } streamd_heap;

    static inline streamd_slab *streamd_slab_of(void *block) {
        uintptr_t chunk = (uintptr_t)block & ~(STREAMD_CHUNK - 1);
        return (streamd_slab *)chunk + ((uintptr_t)block - chunk) / STREAMD_SLAB;
    }
    static inline size_t streamd_small_size(void *block) {
        return (size_t)streamd_slab_of(block)->units * STREAMD_UNIT;
    }
    static inline size_t streamd_block_size(void *block) {
        return streamd_is_small(block) ? streamd_small_size(block) : streamd_libc_size(block);
    }
    /* Bytes of memory of a block, with what the C library keeps before it. */
    static inline size_t streamd_block_memory(void *block) {
        return streamd_is_small(block) ? streamd_small_size(block) : streamd_libc_size(block) + STREAMD_BLOCK_HEAD;
    }

    static inline void streamd_add(streamd_heap *heap, long long size) {
        /* Blocks are freed by other threads too. */
        __atomic_fetch_add(&heap->counted, size, __ATOMIC_RELAXED);
    }
    static inline long long streamd_counted(streamd_heap *heap) {
        return __atomic_load_n(&heap->counted, __ATOMIC_RELAXED) + __atomic_load_n(&heap->small, __ATOMIC_RELAXED);
    }
    static inline int streamd_fits_small(size_t size) { return size - 1 < STREAMD_SMALL_MOST; }    /* 0 does not */

    /* What is not inlined is long, and would keep compilers from inlining what calls it.

       From the C library, and to it if `block` is not NULL. */
    STREAMD_CALLED void *streamd_realloc_aligned(streamd_heap *heap, void *block, size_t size) {
        long long before = block == NULL ? 0 : (long long)streamd_block_memory(block);
        void *moved = realloc(block, size < STREAMD_LEAST ? STREAMD_LEAST : size);
        if (moved != NULL)
            streamd_add(heap, (long long)streamd_block_memory(moved) - before);
        return moved;
    }
    static inline void *streamd_malloc(streamd_heap *heap, size_t size) {
        void *block = NULL;
        if (streamd_fits_small(size)
            && (block = heap->take((size + STREAMD_STEP - 1) / STREAMD_STEP * (STREAMD_STEP / STREAMD_UNIT))) != NULL)
            return block;
        return streamd_realloc_aligned(heap, NULL, size);
    }
    STREAMD_CALLED void *streamd_calloc(streamd_heap *heap, size_t count, size_t size) {
        void *block;
        if (count <= STREAMD_SMALL_MOST && size <= STREAMD_SMALL_MOST && count * size <= STREAMD_SMALL_MOST) {
            block = streamd_malloc(heap, count * size);
            return block == NULL ? NULL : memset(block, 0, count * size);
        }
        block = calloc(count, size);
        if (block != NULL)
            streamd_add(heap, (long long)streamd_block_memory(block));
        return block;
    }
    static inline void streamd_free(streamd_heap *heap, void *block) {
        if (streamd_is_small(block)) {
            heap->give_back(block);
            return;
        }
        if (block != NULL)
            streamd_add(heap, -(long long)streamd_block_memory(block));
        free(block);
    }
    static inline void *streamd_malloc_sized(streamd_heap *heap, size_t size) {
        if (streamd_fits_small(size))
            return heap->take((size + STREAMD_UNIT - 1) / STREAMD_UNIT);
        return streamd_realloc_aligned(heap, NULL, size);
    }
    static inline void streamd_free_sized(streamd_heap *heap, void *block, size_t size) {
        if (streamd_fits_small(size))
            heap->give_back(block);
        else
            streamd_free(heap, block);
    }
    static inline size_t streamd_sized_memory(void *block, size_t size) {
        return streamd_fits_small(size) ? streamd_small_size(block) : streamd_block_memory(block);
    }
    STREAMD_CALLED void *streamd_realloc(streamd_heap *heap, void *block, size_t size) {
        size_t usable;
        void *moved;
        if (block == NULL)
            return streamd_malloc(heap, size);
        if (!streamd_is_small(block) && !streamd_fits_small(size))
            return streamd_realloc_aligned(heap, block, size);
        usable = streamd_block_size(block);
        if (size <= usable && usable < size + 2 * STREAMD_STEP)     /* moving it would free too little */
            return block;
        moved = streamd_malloc(heap, size);
        if (moved == NULL)
            return NULL;
        memcpy(moved, block, size < usable ? size : usable);
        streamd_free(heap, block);
        return moved;
    }
    """
    ctypedef struct streamd_heap:
        long long small
    void *streamd_malloc(streamd_heap *heap, size_t size) noexcept nogil
    void *streamd_calloc(streamd_heap *heap, size_t count, size_t size) noexcept nogil
    void *streamd_realloc(streamd_heap *heap, void *block, size_t size) noexcept nogil
    void *streamd_realloc_aligned(streamd_heap *heap, void *block, size_t size) noexcept nogil
    void *streamd_malloc_sized(streamd_heap *heap, size_t size) noexcept nogil
    void streamd_free_sized(streamd_heap *heap, void *block, size_t size) noexcept nogil
    size_t streamd_sized_memory(void *block, size_t size) noexcept nogil
    void streamd_free(streamd_heap *heap, void *block) noexcept nogil
    void streamd_add(streamd_heap *heap, long long size) noexcept nogil
    long long streamd_counted(streamd_heap *heap) noexcept nogil
    size_t streamd_block_size(void *block) noexcept nogil
    size_t streamd_block_memory(void *block) noexcept nogil


cdef streamd_heap heap_state     # one for all modules


cdef inline void *malloc(size_t size) noexcept nogil:
    return streamd_malloc(&heap_state, size)


cdef inline void *calloc(size_t count, size_t size) noexcept nogil:
    return streamd_calloc(&heap_state, count, size)


cdef inline void *realloc(void *block, size_t size) noexcept nogil:
    return streamd_realloc(&heap_state, block, size)


cdef inline void *realloc_aligned(void *block, size_t size) noexcept nogil:
    """As realloc, always with an address of the C library's: a multiple of 16. `block` is NULL or from here."""
    return streamd_realloc_aligned(&heap_state, block, size)


cdef inline void free(void *block) noexcept nogil:
    streamd_free(&heap_state, block)


cdef inline void *malloc_sized(size_t size) noexcept nogil:
    """As malloc, for those who know the size of a block when they free it: small ones are rounded to 8 bytes only."""
    return streamd_malloc_sized(&heap_state, size)


cdef inline void free_sized(void *block, size_t size) noexcept nogil:
    """Free a block of malloc_sized, which only this function does."""
    streamd_free_sized(&heap_state, block, size)


cdef inline size_t sized_memory(void *block, size_t size) noexcept nogil:
    """Bytes of memory that a block of malloc_sized takes."""
    return streamd_sized_memory(block, size)


cdef inline size_t block_size(void *block) noexcept nogil:
    """Usable bytes of a block."""
    return streamd_block_size(block)


cdef inline size_t block_memory(void *block) noexcept nogil:
    """Bytes of memory that a block takes."""
    return streamd_block_memory(block)


cdef inline void count_object(long long size) noexcept nogil:
    """Count an object of the interpreter that belongs to the data: its size to add it, minus its size to remove it."""
    streamd_add(&heap_state, size)


cdef void freed_aside(size_t size) noexcept nogil
    # A thread other than the loop's has freed `size` bytes: return them to the system piece by piece. See heap.pyx.


cdef inline long long heap_bytes() noexcept nogil:
    """Bytes that compiled modules hold."""
    return streamd_counted(&heap_state)
