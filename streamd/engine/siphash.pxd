# cython: language_level=3
"""SipHash-1-3: a hash of bytes under a secret key, which whoever chooses the bytes cannot aim at.

One round for each eight bytes, three at the end; 64 bits. The key is of 16 bytes.
"""

from libc.stdint cimport uint8_t, uint64_t

from streamd.engine.listpack cimport lp_load64


cdef inline uint64_t rotate_left(uint64_t x, int n) noexcept nogil:
    return x << n | x >> (64 - n)


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate_left(v[1], 13) ^ v[0]
    v[3] = rotate_left(v[3], 16) ^ v[2]
    v[0] = rotate_left(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate_left(v[1], 17) ^ v[2]
    v[3] = rotate_left(v[3], 21) ^ v[0]
    v[2] = rotate_left(v[2], 32)


cdef inline uint64_t siphash(const uint8_t *p, size_t n, const uint64_t *key) noexcept nogil:
    """The hash of n bytes under two words of key."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef size_t left = n
    v[0] = key[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = key[1] ^ <uint64_t>0x646F72616E646F6D
    v[2] = key[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = key[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        word = lp_load64(p)
        v[3] ^= word
        sip_round(v)
        v[0] ^= word
        p += 8
        left -= 8
    word = <uint64_t>n << 56
    while left > 0:
        left -= 1
        word |= <uint64_t>p[left] << (8 * left)
    v[3] ^= word
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xFF
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
