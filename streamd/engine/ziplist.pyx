# cython: language_level=3, boundscheck=False, wraparound=False
"""Ziplists: the packed lists of Redis before 7.0, read from untrusted bytes into listpacks.

    +-------------+----------------+---------+---------+-----+------+
    | total bytes | offset of the  | number  | element | ... |  ff  |     numbers are little endian; a number of
    |   4 bytes   | last element 4 | 2 bytes |         |     |      |     65535 means that they must be counted
    +-------------+----------------+---------+---------+-----+------+

    element    length of the previous element (1 byte, or fe and 4), then
               00nnnnnn, 01nnnnnn n, 80 nnnn (big endian)       and that many bytes
               c0 i16, d0 i32, e0 i64, f0 i24, fe i8            an integer, little endian
               f1 ... fd                                        0 ... 12
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LP_ROOM, lp_load32, lp_load64, lp_put, lp_put_int, lp_set_header,
)
from streamd.heap cimport free, malloc, realloc

__all__ = []

cdef enum:
    ZL_HEADER = 10


cdef const char *read_entry(
    const uint8_t *p, const uint8_t *last, size_t previous, const uint8_t **text, size_t *length, int64_t *number,
    size_t *entry_size
) noexcept nogil:
    """Read the entry at `p`: a string, or, with `text` NULL, an integer. Returns what is wrong, or NULL."""
    cdef const uint8_t *start = p
    cdef size_t left = last - p
    cdef size_t width
    cdef uint8_t b
    if p[0] < 0xFE:
        if p[0] != previous:
            return b"wrong length of the previous element"
        p += 1
    else:
        if left < 5:
            return b"ziplist element goes past the end"
        if p[0] != 0xFE or lp_load32(p + 1) != previous:
            return b"wrong length of the previous element"
        p += 5
    if p >= last:
        return b"ziplist element goes past the end"
    left = last - p
    b = p[0]
    text[0] = NULL
    if b < 0xC0:
        if b < 0x40:
            width = 1
            length[0] = b
        elif b < 0x80:
            width = 2
        elif b == 0x80:
            width = 5
        else:
            return b"unknown ziplist encoding"
        if left < width:
            return b"ziplist element goes past the end"
        if width == 2:
            length[0] = <size_t>(b & 0x3F) << 8 | p[1]
        elif width == 5:
            length[0] = <size_t>p[1] << 24 | <size_t>p[2] << 16 | <size_t>p[3] << 8 | p[4]
        if length[0] > left - width:
            return b"ziplist element goes past the end"
        text[0] = p + width
        entry_size[0] = p + width + length[0] - start
        return NULL
    if b == 0xC0:
        width = 2
    elif b == 0xD0:
        width = 4
    elif b == 0xE0:
        width = 8
    elif b == 0xF0:
        width = 3
    elif b == 0xFE:
        width = 1
    elif 0xF1 <= b <= 0xFD:
        number[0] = b - 0xF1
        entry_size[0] = p + 1 - start
        return NULL
    else:
        return b"unknown ziplist encoding"
    if left < width + 1:
        return b"ziplist element goes past the end"
    p += 1
    if width == 1:
        number[0] = <int8_t>p[0]
    elif width == 2:
        number[0] = <int16_t>(p[0] | p[1] << 8)
    elif width == 3:
        number[0] = ((<int64_t>p[0] | <int64_t>p[1] << 8 | <int64_t>p[2] << 16) ^ 0x800000) - 0x800000
    elif width == 4:
        number[0] = <int32_t>lp_load32(p)
    else:
        number[0] = <int64_t>lp_load64(p)
    entry_size[0] = p + width - start
    return NULL


cdef uint8_t *ziplist_unpack(
    const uint8_t *zl, size_t size, size_t *lp_size, const char **wrong, size_t *offset
) noexcept nogil:
    cdef const uint8_t *p = zl + ZL_HEADER
    cdef const uint8_t *last = zl + size - 1
    cdef const uint8_t *text
    cdef uint8_t *lp
    cdef uint8_t *out
    cdef size_t previous = 0, entry_size = 0, length = 0
    cdef int64_t number = 0
    cdef uint64_t count = 0
    wrong[0] = NULL
    offset[0] = 0
    if size < ZL_HEADER + 1 or lp_load32(zl) != size:
        wrong[0] = b"ziplist size is not the size in its header"
        return NULL
    if last[0] != 0xFF:
        offset[0] = size - 1
        wrong[0] = b"ziplist does not end with its end byte"
        return NULL
    # An entry of two bytes or more becomes one of at most LP_ROOM bytes more.
    lp = <uint8_t *>malloc(LP_HEADER + 1 + size + (size // 2 + 1) * LP_ROOM)
    if lp is NULL:
        return NULL
    out = lp + LP_HEADER
    while p < last:
        offset[0] = p - zl
        wrong[0] = read_entry(p, last, previous, &text, &length, &number, &entry_size)
        if wrong[0] is not NULL:
            free(lp)
            return NULL
        out = lp_put_int(out, number) if text is NULL else lp_put(out, text, length)
        previous = entry_size
        p += entry_size
        count += 1
    offset[0] = 4
    if lp_load32(zl + 4) != <uint32_t>(last - zl - previous):
        wrong[0] = b"wrong offset of the last element in the ziplist header"
    elif (zl[8] | <uint32_t>zl[9] << 8) != 0xFFFF and (zl[8] | <uint32_t>zl[9] << 8) != count:
        wrong[0] = b"wrong number of elements in the ziplist header"
    if wrong[0] is not NULL:
        free(lp)
        return NULL
    out[0] = LP_END
    lp_size[0] = out + 1 - lp
    lp_set_header(lp, lp_size[0], count)
    out = <uint8_t *>realloc(lp, lp_size[0])
    return lp if out is NULL else out
