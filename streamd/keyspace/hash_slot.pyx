# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hash slot of a key: which of the 16384 parts of a cluster's keys it belongs to.

The slot is the CRC16 of the key, or of a part of it in braces, the hash tag, so that keys can be kept together:

    {user1000}.following   user1000          foo{}{bar}     all of it: the first braces are empty
    {user1000}.followers   user1000          foo{{bar}}zap  {bar
    a{b                    all of it         foo{bar}{zap}  bar

The CRC has the polynomial 0x1021, starts at 0, and reflects nothing: `123456789` has 0x31C3.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t
from libc.string cimport memchr

__all__ = ["SLOTS", "slot_of", "tag_of"]

globals()["SLOTS"] = SLOTS      # for Python; the enum is for compiled modules

cdef uint16_t POLYNOMIAL = 0x1021
cdef uint16_t[4][256] crc_tables


cdef void fill_tables() noexcept:
    """The CRC of each byte with 0 to 3 bytes of zeros behind it."""
    cdef int byte, _bit, zeros
    cdef uint16_t crc
    for byte in range(256):
        crc = <uint16_t>(byte << 8)
        for _bit in range(8):
            crc = <uint16_t>((crc << 1) ^ POLYNOMIAL) if crc & 0x8000 else <uint16_t>(crc << 1)
        crc_tables[0][byte] = crc
    for zeros in range(1, 4):
        for byte in range(256):
            crc = crc_tables[zeros - 1][byte]
            crc_tables[zeros][byte] = <uint16_t>(crc << 8) ^ crc_tables[0][crc >> 8]


fill_tables()


cdef uint16_t crc16(const unsigned char *data, Py_ssize_t size) noexcept nogil:
    cdef unsigned int crc = 0       # the lower 16 bits of it
    cdef const unsigned char *end = data + size
    while end - data >= 4:
        crc = (
            crc_tables[3][(crc >> 8 & 0xFF) ^ data[0]] ^ crc_tables[2][(crc & 0xFF) ^ data[1]]
            ^ crc_tables[1][data[2]] ^ crc_tables[0][data[3]]
        )
        data += 4
    while data < end:
        crc = (crc << 8) ^ crc_tables[0][(crc >> 8 & 0xFF) ^ data[0]]
        data += 1
    return <uint16_t>crc


cdef int slot_of_text(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    """The slot of a key of `size` bytes."""
    cdef const unsigned char *start = <const unsigned char *>memchr(text, c'{', <size_t>size)
    cdef const unsigned char *end
    if start is not NULL:
        start += 1
        end = <const unsigned char *>memchr(start, c'}', <size_t>(text + size - start))
        if end is not NULL and end > start:
            return crc16(start, end - start) & (SLOTS - 1)
    return crc16(text, size) & (SLOTS - 1)


cpdef int slot_of(bytes key) except -1:
    """The slot of a key, or of a shard channel."""
    if key is None:
        raise TypeError("a key is bytes, not None")
    return slot_of_text(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cpdef bytes tag_of(int slot):
    """A text of that slot, to be put in braces: the first one of 3 or 4 digits and lower-case letters. Some 0.1 ms.

    It is part of the names of keys (delivery/rules.py), so it must not change.
    """
    cdef const char *letters = b"0123456789abcdefghijklmnopqrstuvwxyz"
    cdef unsigned char text[4]
    cdef int size, number, rest, at
    if not 0 <= slot < SLOTS:
        raise ValueError("no hash slot")
    for size in range(3, 5):
        for number in range(36 * 36 * 36 if size == 3 else 36 * 36 * 36 * 36):
            rest = number
            for at in range(size - 1, -1, -1):
                text[at] = <unsigned char>letters[rest % 36]
                rest //= 36
            if crc16(text, size) & (SLOTS - 1) == slot:
                return text[:size]
    raise AssertionError("every slot has a text of 4 letters")
