# cython: language_level=3
"""Columns of a record batch, seen through Arrow's C data interface. See column_views.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

# The structs of Arrow's C data interface; their layout is fixed for good.
cdef extern from *:
    """
    #include <stdint.h>
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    """
    struct ArrowSchema:
        const char *format
        const char *name
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children


cdef struct View:
    const char *data        # borrowed from the batch, as are the other two
    const void *offsets     # int32 or int64
    const uint8_t *valid    # NULL: nothing is null
    int64_t offset          # of row 0
    int is_large            # offsets are int64


cdef struct ListView:
    const void *offsets     # borrowed
    const uint8_t *valid
    int64_t offset
    int is_large
    View names
    View values


cdef int look_at(View *view, ArrowSchema *schema, ArrowArray *array, int64_t offset) except -1
    # View an array of strings. Raises TypeError for any other array.
    #
    # offset  of the struct around it, which is added to its own
cdef int look_at_list(ListView *view, ArrowSchema *schema, ArrowArray *array, int64_t offset) except -1
    # View a list of pairs, or a map. Raises TypeError when it is neither.


cdef inline bint is_null(View *view, int64_t row) noexcept nogil:
    row += view.offset
    return view.valid is not NULL and not (view.valid[row >> 3] >> (row & 7)) & 1


cdef inline int64_t start_of(View *view, int64_t row) noexcept nogil:
    if view.is_large:
        return (<const int64_t *>view.offsets)[row + view.offset]
    return (<const int32_t *>view.offsets)[row + view.offset]


cdef inline int64_t list_start(ListView *view, int64_t row) noexcept nogil:
    if view.is_large:
        return (<const int64_t *>view.offsets)[row + view.offset]
    return (<const int32_t *>view.offsets)[row + view.offset]
