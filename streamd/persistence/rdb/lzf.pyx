# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""LZF, the compression of strings in RDB files: literal bytes, and references to bytes that came before.

    000nnnnn                      n + 1 literal bytes follow, 1 .. 32
    lllooooo oooooooo             copy l + 2 bytes, 3 .. 8, from o + 1 bytes back, 1 .. 8192
    111ooooo nnnnnnnn oooooooo    copy n + 9 bytes, 9 .. 264, likewise; it may overlap with what it writes

    "ab" * 5    01 "a" "b"  c0 01 (8 from 2 back)

The format is libLZF's. The compressor makes its own choices, so its bytes differ from Redis's, but each can read the
other's. It takes the last place where it saw the next four bytes, and the longest match from there (three would save
nothing: splitting a run of literals costs another byte). The more misses there are, the fewer places it tries, so that
incompressible data costs little.

The decoder trusts nothing: whatever the bytes are, it reads and writes only inside the two blocks.
"""

from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    /* How many leading bytes, in memory, are alike in two words whose difference (exclusive or) is not zero. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define streamd_alike(difference) (__builtin_clzll(difference) >> 3)
    #else
    #define streamd_alike(difference) (__builtin_ctzll(difference) >> 3)
    #endif
    """
    unsigned int alike "streamd_alike"(uint64_t difference) nogil

__all__ = []

cdef enum:
    MOST_LITERALS = 32
    MOST_MATCHED = 264
    FARTHEST = 8192
    TABLE_BITS = 13            # log2 of the places in LzfTable
    NODE_BITS = 11             # the same for a short input: these places stay in the processor's cache
    NODE_SIZE = 4096           # bytes of a short input: a node of a stream
    PATIENCE = 5               # after 2^PATIENCE misses in a row every second place is tried, and so on
    LONGEST_STEP = 32


cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, p, 4)
    return word


cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word


cdef inline uint32_t place_of(uint32_t four, unsigned int shift) noexcept nogil:
    return <uint32_t>(four * <uint32_t>2654435761) >> shift


cdef inline uint8_t *put_literals(uint8_t *out, const uint8_t *data, size_t count) noexcept nogil:
    """Write `count` bytes unchanged, where there is room for count + count / 32 + 1."""
    cdef size_t run
    while count:
        run = count if count < MOST_LITERALS else MOST_LITERALS
        out[0] = <uint8_t>(run - 1)
        memcpy(out + 1, data, run)
        out += run + 1
        data += run
        count -= run
    return out


cdef inline size_t match_length(const uint8_t *a, const uint8_t *b, size_t most) noexcept nogil:
    """How many bytes are equal at both places, comparing at most `most` bytes. Four are known to be equal."""
    cdef size_t n = 4
    cdef uint64_t difference
    while n + 8 <= most:
        difference = load64(a + n) ^ load64(b + n)
        if difference:
            return n + alike(difference)
        n += 8
    while n < most and a[n] == b[n]:
        n += 1
    return n


cdef inline size_t step_after(size_t misses) noexcept nogil:
    """How far to advance after this many consecutive misses."""
    misses >>= PATIENCE
    return 1 + misses if misses < LONGEST_STEP else LONGEST_STEP


cdef size_t lzf_compress(
    LzfTable *table, const uint8_t *data, size_t size, uint8_t *out, size_t room
) noexcept nogil:
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + size
    cdef const uint8_t *literals = data      # what has not been written yet
    cdef const uint8_t *match
    cdef uint8_t *start = out
    cdef uint8_t *stop = out + room
    cdef uint32_t base, word, slot, seen
    cdef size_t length, count, back, most, misses = 0
    cdef unsigned int shift = 32 - (NODE_BITS if size <= NODE_SIZE else TABLE_BITS)
    if size > UINT32_MAX // 2:
        return 0
    if table.base > UINT32_MAX - <uint32_t>size - 1 or table.base == 0:
        memset(table.seen, 0, sizeof(table.seen))
        table.base = 1     # 0 in the table: never seen
    base = table.base
    table.base += <uint32_t>size
    while end - p >= 4:
        word = load32(p)
        slot = place_of(word, shift)
        seen = table.seen[slot]
        table.seen[slot] = base + <uint32_t>(p - data)
        if seen < base:
            misses += 1
            p += step_after(misses)
            continue
        match = data + (seen - base)
        back = p - match
        if back > FARTHEST or load32(match) != word:
            misses += 1
            p += step_after(misses)
            continue
        misses = 0
        most = end - p
        if most > MOST_MATCHED:
            most = MOST_MATCHED
        length = match_length(p, match, most)
        count = p - literals
        if <size_t>(stop - out) < count + count // MOST_LITERALS + 4:
            return 0
        out = put_literals(out, literals, count)
        back -= 1
        if length <= 8:
            out[0] = <uint8_t>((length - 2) << 5 | back >> 8)
            out += 1
        else:
            out[0] = <uint8_t>(7 << 5 | back >> 8)
            out[1] = <uint8_t>(length - 9)
            out += 2
        out[0] = <uint8_t>back
        out += 1
        p += length
        literals = p
        if end - p >= 4:
            table.seen[place_of(load32(p - 2), shift)] = base + <uint32_t>(p - 2 - data)
            table.seen[place_of(load32(p - 1), shift)] = base + <uint32_t>(p - 1 - data)
    count = end - literals
    if <size_t>(stop - out) < count + (count + MOST_LITERALS - 1) // MOST_LITERALS:
        return 0
    return put_literals(out, literals, count) - start


cdef inline void copy_back(uint8_t *out, size_t back, size_t length, size_t room) noexcept nogil:
    """Copy `length` bytes, which fit, from `back` before `out`, byte by byte: it may repeat what it has written.

    room  bytes that may be written: whatever follows the first `length` of them is irrelevant
    """
    cdef const uint8_t *source = out - back
    cdef size_t done = 0
    if back >= 16 and length + 16 <= room:
        while done < length:
            memcpy(out + done, source + done, 16)
            done += 16
        return
    if back >= 8 and length + 8 <= room:
        while done < length:
            memcpy(out + done, source + done, 8)
            done += 8
        return
    while done < length:
        out[done] = source[done]
        done += 1


cdef bint lzf_expand(const uint8_t *data, size_t size, uint8_t *out, size_t expected) noexcept nogil:
    cdef const uint8_t *end = data + size
    cdef uint8_t *start = out
    cdef uint8_t *stop = out + expected
    cdef const uint8_t *source
    cdef size_t control, length, back
    # As long as neither end is near, literals and matches are copied in whole words, and any excess is overwritten by
    # what comes next.
    while end - data >= MOST_LITERALS + 1 and stop - out >= MOST_MATCHED + 16:
        control = data[0]
        if control < MOST_LITERALS:
            if control == 0:
                out[0] = data[1]
            elif control < 8:
                memcpy(out, data + 1, 8)
            else:
                memcpy(out, data + 1, MOST_LITERALS)
            data += control + 2
            out += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[1]
            data += 1
        length += 2
        back = ((control & 31) << 8 | data[1]) + 1
        data += 2
        if back > <size_t>(out - start):
            return False
        if length <= 8:
            # Byte by byte: what is copied has mostly just been written, in pieces of other sizes, and a load that
            # spans several pieces must wait until all of them have left the processor's store buffer.
            source = out - back
            out[0] = source[0]
            out[1] = source[1]
            out[2] = source[2]
            out[3] = source[3]
            if length > 4:
                out[4] = source[4]
                out[5] = source[5]
                out[6] = source[6]
                out[7] = source[7]
        elif back >= 8 and length <= 16:
            memcpy(out, out - back, 8)
            memcpy(out + 8, out + 8 - back, 8)
        else:
            copy_back(out, back, length, MOST_MATCHED + 16)
        out += length
    while data < end:
        control = data[0]
        data += 1
        if control < MOST_LITERALS:
            length = control + 1
            if length > <size_t>(end - data) or length > <size_t>(stop - out):
                return False
            memcpy(out, data, length)
            data += length
        else:
            length = control >> 5
            if length == 7:
                if data == end:
                    return False
                length += data[0]
                data += 1
            length += 2
            if data == end:
                return False
            back = ((control & 31) << 8 | data[0]) + 1
            data += 1
            if back > <size_t>(out - start) or length > <size_t>(stop - out):
                return False
            copy_back(out, back, length, <size_t>(stop - out))
        out += length
    return out == stop
