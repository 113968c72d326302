# cython: language_level=3
"""Glob patterns as used by KEYS, SCAN and PSUBSCRIBE. See glob.pyx."""

cdef bint glob_match(const char *pattern, Py_ssize_t pattern_len, const char *text, Py_ssize_t text_len,
                     bint nocase) noexcept nogil
