# cython: language_level=3
"""Ring: records from one thread to another, without locks.

    head                          tail
      |  published, not yet read    |  free                  |        positions only grow; place = position & (size - 1)
      +-----------------------------+------------------------+
      [Record | bytes ...][Record | bytes ...][SKIP ...

One thread writes (`ring_room`, `ring_commit`, `ring_publish`), another reads (`ring_next`, `ring_release`). The bytes
of a record are contiguous; where they do not fit before the end of the block, a SKIP record leads to its start. What
the writer did before `ring_publish` is visible to the reader after `ring_next`; bytes stay until `ring_release`.

Invariants: head <= tail <= writing, writing - head <= size; positions and sizes are multiples of 16 bytes.
"""

from libc.stdint cimport uint32_t


cdef extern from *:
    """
    #include <sched.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #include <unistd.h>

    typedef struct { void *line; uint32_t kind; uint32_t size; } __attribute__((aligned(16))) streamd_record;
    typedef struct {
        char *data;                 /* of whoever opened the ring */
        size_t size;                /* of data, a power of two */
        int wake_fd;                /* eventfd that wakes the reader */
        char pad0[64];
        size_t tail;                /* atomic; the end of published records, by the writer */
        size_t writing;             /* the writer's: the end of committed records */
        size_t seen_head;           /* the writer's: at least up to here is free */
        int is_starved;             /* atomic: the writer waits for room, and wants to be told */
        char pad1[64];
        size_t head;                /* atomic; the start of what the reader needs, by the reader */
        size_t reading;             /* the reader's: the next record */
        size_t seen_tail;           /* the reader's: at least up to here is published */
        int is_asleep;              /* atomic: the reader sleeps, or is about to */
        char pad2[64];
    } streamd_ring;

    #define RING_HEAD sizeof(streamd_record)
    _Static_assert(sizeof(streamd_record) == 16, "positions are multiples of 16");
    #define RING_SKIP 0

    static inline void ring_open(streamd_ring *ring, char *data, size_t size, int wake_fd) {
        memset(ring, 0, sizeof *ring);
        ring->data = data;
        ring->size = size;
        ring->wake_fd = wake_fd;
    }

    static inline void ring_wake(int fd) {
        uint64_t one = 1;
        if (write(fd, &one, sizeof one) < 0) { /* full: it has been woken */ }
    }

    /* Where the bytes of the next record go: `*room` of them, between `least` and `most`; NULL: full. */
    static inline char *ring_room(streamd_ring *ring, size_t least, size_t most, size_t *room) {
        size_t need = RING_HEAD + ((least + 15) & ~(size_t)15);
        for (int fresh = 0;; fresh = 1) {
            size_t at = ring->writing & (ring->size - 1), before_end = ring->size - at;
            size_t left = ring->size - (ring->writing - ring->seen_head);
            if (before_end < need && left >= before_end + need) {
                streamd_record *record = (streamd_record *)(ring->data + at);
                record->kind = RING_SKIP;
                ring->writing += before_end;
                continue;
            }
            if (before_end >= need && left >= need) {
                size_t found = (left < before_end ? left : before_end) - RING_HEAD;
                *room = found < most ? found : most;
                return ring->data + at + RING_HEAD;
            }
            if (fresh)
                return NULL;
            ring->seen_head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
        }
    }

    /* The bytes are there: the record is complete. */
    static inline void ring_commit(streamd_ring *ring, void *line, uint32_t kind, size_t size) {
        streamd_record *record = (streamd_record *)(ring->data + (ring->writing & (ring->size - 1)));
        record->line = line;
        record->kind = kind;
        record->size = (uint32_t)size;
        ring->writing += RING_HEAD + ((size + 15) & ~(size_t)15);
    }

    /* Show the reader all complete records; wake it if it sleeps. */
    static inline void ring_publish(streamd_ring *ring) {
        if (ring->writing == __atomic_load_n(&ring->tail, __ATOMIC_RELAXED))
            return;
        __atomic_store_n(&ring->tail, ring->writing, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&ring->is_asleep, __ATOMIC_SEQ_CST)
            && __atomic_exchange_n(&ring->is_asleep, 0, __ATOMIC_SEQ_CST))
            ring_wake(ring->wake_fd);
    }

    /* The next record, whose bytes follow it; NULL: there is none. */
    static inline streamd_record *ring_next(streamd_ring *ring) {
        for (;;) {
            if (ring->reading == ring->seen_tail) {
                ring->seen_tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
                if (ring->reading == ring->seen_tail)
                    return NULL;
            }
            size_t at = ring->reading & (ring->size - 1);
            streamd_record *record = (streamd_record *)(ring->data + at);
            if (record->kind != RING_SKIP) {
                ring->reading += RING_HEAD + (((size_t)record->size + 15) & ~(size_t)15);
                return record;
            }
            ring->reading += ring->size - at;
        }
    }

    /* Whether a record that was published before `end`, an earlier `ring_end`, is still to be read. */
    static inline int ring_is_before(streamd_ring *ring, size_t end) { return (ptrdiff_t)(end - ring->reading) > 0; }
    static inline size_t ring_end(streamd_ring *ring) { return __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE); }

    /* Give back the room of the records before a position; returns whether the writer waits for it. */
    static inline int ring_release_to(streamd_ring *ring, size_t position) {
        if (position == __atomic_load_n(&ring->head, __ATOMIC_RELAXED))
            return 0;
        __atomic_store_n(&ring->head, position, __ATOMIC_SEQ_CST);
        return __atomic_load_n(&ring->is_starved, __ATOMIC_SEQ_CST)
            && __atomic_exchange_n(&ring->is_starved, 0, __ATOMIC_SEQ_CST);
    }
    /* ... of all records that have been read. */
    static inline int ring_release(streamd_ring *ring) { return ring_release_to(ring, ring->reading); }
    static inline size_t ring_position(streamd_ring *ring) { return ring->reading; }

    /* The reader is about to sleep: 0 if there is something to read, and it must not. */
    static inline int ring_doze(streamd_ring *ring) {
        __atomic_store_n(&ring->is_asleep, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST) == ring->reading)
            return 1;
        __atomic_store_n(&ring->is_asleep, 0, __ATOMIC_RELAXED);
        return 0;
    }
    static inline void ring_rouse(streamd_ring *ring) { __atomic_store_n(&ring->is_asleep, 0, __ATOMIC_RELAXED); }

    /* The writer is about to sleep until there is room: 0 if there is some by now. */
    static inline int ring_starve(streamd_ring *ring) {
        __atomic_store_n(&ring->is_starved, 1, __ATOMIC_SEQ_CST);
        return __atomic_load_n(&ring->head, __ATOMIC_SEQ_CST) == ring->seen_head;
    }

    static inline long long streamd_load(long long *place) { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }
    static inline void streamd_store(long long *place, long long value) {
        __atomic_store_n(place, value, __ATOMIC_RELEASE);
    }
    """
    ctypedef struct Record "streamd_record":
        void *line
        uint32_t kind
        uint32_t size

    ctypedef struct Ring "streamd_ring":
        char *data
        int wake_fd

    void ring_open(Ring *ring, char *data, size_t size, int wake_fd) noexcept nogil
    void ring_wake(int fd) noexcept nogil
    char *ring_room(Ring *ring, size_t least, size_t most, size_t *room) noexcept nogil
    void ring_commit(Ring *ring, void *line, uint32_t kind, size_t size) noexcept nogil
    void ring_publish(Ring *ring) noexcept nogil
    Record *ring_next(Ring *ring) noexcept nogil
    size_t ring_end(Ring *ring) noexcept nogil
    bint ring_is_before(Ring *ring, size_t end) noexcept nogil
    bint ring_release(Ring *ring) noexcept nogil
    bint ring_release_to(Ring *ring, size_t position) noexcept nogil
    size_t ring_position(Ring *ring) noexcept nogil
    bint ring_doze(Ring *ring) noexcept nogil
    void ring_rouse(Ring *ring) noexcept nogil
    bint ring_starve(Ring *ring) noexcept nogil
    long long streamd_load(long long *place) noexcept nogil
    void streamd_store(long long *place, long long value) noexcept nogil
    int sched_yield() noexcept nogil
