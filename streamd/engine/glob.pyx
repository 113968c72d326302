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
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

__all__ = ["match"]

cdef enum:
    MAX_STARS = 1000


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


cdef bint glob_match(const char *pattern, Py_ssize_t pattern_len, const char *text, Py_ssize_t text_len,
                     bint nocase) noexcept nogil:
    """Whether the whole of `text` matches `pattern`; `nocase`: ignoring ASCII case."""
    cdef const char *p = pattern
    cdef const char *pattern_end = pattern + pattern_len
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
                while p < pattern_end and p[0] == c'*':
                    p += 1
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
                same = set_holds(&p, pattern_end, c, nocase)
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
    # The text is used up. If pattern bytes are left, letting a star consume more would only leave less text for them.
    if text_len:
        while p < pattern_end and p[0] == c'*':
            p += 1
    return p == pattern_end


def match(bytes pattern not None, bytes text not None, bint nocase=False):
    """Whether the whole of `text` matches `pattern`; `nocase`: ignoring ASCII case."""
    return glob_match(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), PyBytes_AS_STRING(text),
                      PyBytes_GET_SIZE(text), nocase)
