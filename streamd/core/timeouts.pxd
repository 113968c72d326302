# cython: language_level=3
"""How long a client waits, in seconds. See timeouts.pyx."""

cdef long long parse_seconds(bytes text, long long now_ms) except -1
