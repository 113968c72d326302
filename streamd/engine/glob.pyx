# cython: language_level=3, boundscheck=False, wraparound=False
"""Glob patterns by Redis's rules, for KEYS, SCAN MATCH, CONFIG GET, COMMAND LIST, PSUBSCRIBE and ACL keys.

    ?          any one byte
    *          any number of bytes, including none
    [ab-d]     one byte of the set; [^ab-d]: one byte not in it; [d-b] is [b-d]
    \\x         x itself, also in a set; anything else matches itself

What looks like a mistake below but is Redis's behaviour (8.6, as observed on a running server):
  - empty text matches only the empty pattern, not `*` (KEYS and SCAN skip the match when the pattern is a bare `*`);
  - a set without its `]` ends with the pattern: `[a` matches `a`; `[^` matches any byte; `[]` matches none, `[^]` any;
  - bytes in ranges compare as signed numbers: [\\x01-\\xff] holds 01, 00 and ff only;
  - without regard to case, `[\\G]` still wants a capital G, and a range is put in order before its ends become lower
    case;
  - a pattern with more than a thousand stars, not counting one at its end, matches nothing.

Every element but the star consumes one byte, so once a later star has been reached, what an earlier one consumed never
needs to change: one position to return to is enough, and there is no recursion. A match takes at most len(pattern) *
len(text) steps, whatever the pattern.

A set behind a star is tried with every byte of the text, and a pattern with every key. What is long to read is
therefore read only once: a set into a table, a run of stars to its end. Their records take no more memory than the
pattern.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

__all__ = ["Glob"]

cdef enum:
    MAX_STARS = 1000
    LONG = 64               # bytes of a part that gets a record: more than the record needs


cdef inline int lower(int c) noexcept nogil:
    return c + 32 if c'A' <= c <= c'Z' else c


cdef bint set_holds(const char **pattern, const char *end, int c, bint nocase) noexcept nogil:
    """Whether the byte c is in the set whose `[` is at `pattern`; advances `pattern` past the set."""
    cdef const char *p = pattern[0] + 1
    cdef bint negated = p < end and p[0] == c'^'
    cdef bint found = False
    cdef int low, high, swapped
    if negated:
        p += 1
    while p < end and p[0] != c']':
        if p[0] == c'\\' and end - p >= 2:
            found |= <signed char>p[1] == c
            p += 2
        elif end - p >= 3 and p[1] == c'-':
            low = <signed char>p[0]
            high = <signed char>p[2]
            if low > high:
                swapped = low
                low = high
                high = swapped
            if nocase:
                found |= lower(low) <= lower(c) <= lower(high)
            else:
                found |= low <= c <= high
            p += 3
        else:
            found |= (lower(<signed char>p[0]) == lower(c)) if nocase else <signed char>p[0] == c
            p += 1
    pattern[0] = p + 1 if p < end else p
    return found != negated


cdef inline void put_in(LongPart *table, int c) noexcept nogil:
    table.bits[<unsigned char>c >> 6] |= <uint64_t>1 << (c & 63)


cdef void read_set(const char *start, const char *end, bint nocase, LongPart *table) noexcept nogil:
    """Fill in the table of the set from `start`, its `[`, to `end`."""
    # A range costs no more to read than a single byte: begun[i] is how many begin at the signed byte i - 128 (in lower
    # case with `nocase`), less those that ended at the one before.
    cdef Py_ssize_t begun[257]
    cdef bint covered[256]
    cdef const char *p = start + 1
    cdef bint negated = p < end and p[0] == c'^'
    cdef int c, low, high
    cdef Py_ssize_t depth = 0
    memset(begun, 0, sizeof(begun))
    memset(table.bits, 0, sizeof(table.bits))
    if negated:
        p += 1
    while p < end and p[0] != c']':
        if p[0] == c'\\' and end - p >= 2:
            put_in(table, p[1])
            p += 2
            continue
        low = high = <signed char>p[0]
        if end - p >= 3 and p[1] == c'-':
            low = min(<signed char>p[0], <signed char>p[2])
            high = max(<signed char>p[0], <signed char>p[2])
            p += 2
        p += 1
        if nocase:
            low = lower(low)
            high = lower(high)
        if low <= high:
            begun[low + 128] += 1
            begun[high + 129] -= 1
    for c in range(256):
        depth += begun[c]
        covered[c] = depth > 0
    for c in range(-128, 128):
        if covered[(lower(c) if nocase else c) + 128]:
            put_in(table, c)
    if negated:
        for c in range(4):
            table.bits[c] = ~table.bits[c]


cdef class Glob:
    """A pattern to match many texts with; `nocase`: ignoring ASCII case."""

    def __cinit__(self, bytes pattern not None, bint nocase=False):
        self.text = pattern
        self.nocase = nocase
        if PyBytes_GET_SIZE(pattern) >= LONG:
            self.read_long_parts()

    def __dealloc__(self):
        free(self.parts)

    cdef int read_long_parts(self) except -1:
        cdef const char *p = PyBytes_AS_STRING(self.text)
        cdef const char *end = p + PyBytes_GET_SIZE(self.text)
        cdef const char *start
        cdef LongPart *grown
        while p < end:
            start = p
            if p[0] == c'[':
                set_holds(&p, end, 0, False)
            elif p[0] == c'*':
                while p < end and p[0] == c'*':
                    p += 1
            else:
                p += 2 if p[0] == c'\\' and end - p >= 2 else 1
            if p - start < LONG:
                continue
            if self.count & (self.count - 1) == 0:
                grown = <LongPart *>realloc(self.parts, <size_t>max(1, 2 * self.count) * sizeof(LongPart))
                if grown is NULL:
                    raise MemoryError("no memory for a pattern")
                self.parts = grown
            self.parts[self.count].start = start
            self.parts[self.count].end = p
            if start[0] == c'[':
                read_set(start, p, self.nocase, &self.parts[self.count])
            self.count += 1
        return 0

    cdef LongPart *find_long(self, const char *start) noexcept nogil:
        """The record of the part that begins at `start`, or NULL."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.parts[middle].start < start:
                low = middle + 1
            else:
                high = middle
        return &self.parts[low] if low < self.count and self.parts[low].start == start else NULL

    cdef const char *behind_stars(self, const char *start, const char *end) noexcept nogil:
        """The place after a run of stars that may start at `start`."""
        cdef LongPart *part
        if self.count and start < end and start[0] == c'*':
            part = self.find_long(start)
            if part is not NULL:
                return part.end
        while start < end and start[0] == c'*':
            start += 1
        return start

    cdef bint set_has(self, const char **pattern, const char *end, int c) noexcept nogil:
        """As `set_holds`."""
        cdef LongPart *part = self.find_long(pattern[0]) if self.count else NULL
        if part is NULL:
            return set_holds(pattern, end, c, self.nocase)
        pattern[0] = part.end
        return part.bits[<unsigned char>c >> 6] >> (c & 63) & 1

    cdef bint matches(self, const char *text, Py_ssize_t text_len) noexcept:
        """Whether the whole of `text` matches."""
        cdef bint nocase = self.nocase
        cdef const char *p = PyBytes_AS_STRING(self.text)
        cdef const char *pattern_end = p + PyBytes_GET_SIZE(self.text)
        cdef const char *t = text
        cdef const char *text_end = text + text_len
        cdef const char *after_star = NULL      # the pattern after the last star seen,
        cdef const char *star_text = NULL       # and the text position to try there
        cdef int stars = 0
        cdef int c
        cdef bint same
        while t < text_end:
            same = False
            if p < pattern_end:
                if p[0] == c'*':
                    p = self.behind_stars(p, pattern_end)
                    if p == pattern_end:
                        return True
                    stars += 1
                    if stars > MAX_STARS:
                        return False
                    after_star = p
                    star_text = t
                    continue
                c = <signed char>t[0]
                if p[0] == c'?':
                    same = True
                    p += 1
                elif p[0] == c'[':
                    same = self.set_has(&p, pattern_end, c)
                else:
                    if p[0] == c'\\' and pattern_end - p >= 2:
                        p += 1
                    same = <signed char>p[0] == c or (nocase and lower(<signed char>p[0]) == lower(c))
                    p += 1
            if same:
                t += 1
            elif after_star is NULL:
                return False
            else:
                # The last star consumes one more byte.
                star_text += 1
                t = star_text
                p = after_star
        # The text is used up. If pattern bytes are left, letting a star consume more would leave less for them.
        if text_len:
            p = self.behind_stars(p, pattern_end)
        return p == pattern_end

    def match(self, bytes text not None):
        """Whether the whole of `text` matches."""
        return self.matches(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
