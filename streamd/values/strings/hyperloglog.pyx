# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""HyperLogLogs: how many different elements were added, estimated from 16384 registers. Byte for byte those of Redis.

An element is hashed with MurmurHash64A. The lowest 14 bits of the hash choose a register; the number of zeros below the
lowest set bit of the other 50, plus one, is the element's count, and a register holds the greatest count that it has
met. In a string:

    |<- 4 ->|<-- 1 -->|<- 3 ->|<----- 8 ----->|<-- rest -->|
    +-------+---------+-------+---------------+------------+     The count of the last PFCOUNT is little-endian; it is
    | HYLL  | 0 dense | zeros | cached count  | registers  |     out of date while the top bit of its last byte is set.
    |       | 1 sparse|       |               |            |
    +-------+---------+-------+---------------+------------+

Dense registers have 6 bits each, lowest bits first: register 1 is the two highest bits of byte 0 and the four lowest of
byte 1. Sparse ones are runs of equal registers, which together cover all of them:

    00nnnnnn             n + 1 registers that are 0         "ZERO"
    01nnnnnn nnnnnnnn    n + 1 registers that are 0         "XZERO"
    1vvvvvnn             n + 1 registers that are v + 1     "VAL"

A sparse string becomes dense for good when a register exceeds 32, or when a change would make it longer than
hll-sparse-max-bytes. Runs are split where a register is raised, and then joined as Redis does, which is not always the
shortest form. The estimate is that of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches".
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport INFINITY, llround, pow, sqrt
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from streamd.errors import CommandError
from streamd.heap cimport free, malloc, realloc

__all__: list = []

cdef enum:
    REGISTER_BITS = 14
    HASH_BITS = 50                          # of a hash, beyond the register
    HEAD = 16                               # bytes before the registers
    ENCODING_AT = 4
    COUNT_AT = 8
    DENSE_SIZE = HEAD + REGISTERS * 6 // 8
    MOST_COUNTS = 64                        # different values of 6 bits
    SPARSE_MOST_COUNT = 32
    ZERO_MOST = 64                          # registers that one code covers
    XZERO_MOST = 16384
    VAL_MOST = 4
    SCANNED = 5                             # codes that are looked at for joining, from the one before a change on
    HASH_SEED = 0xadc83b19

cdef uint64_t HASH_FACTOR = 0xc6a4a7935bd1e995
cdef double ALPHA = 0.721347520444481703680     # 1 / (2 ln 2), the factor of an estimate with many registers

cdef extern from *:
    int trailing_zeros "__builtin_ctzll"(unsigned long long value) noexcept nogil


cdef object not_a_hll():
    return CommandError("WRONGTYPE Key is not a valid HyperLogLog string value.")


cdef object corrupted():
    return CommandError("INVALIDOBJ Corrupted HLL object detected")


# --- Hashing ----------------------------------------------------------------------------------------------------------


cdef uint64_t murmur(const uint8_t *data, size_t size) noexcept nogil:
    """MurmurHash64A, of the words of eight bytes in little-endian order."""
    cdef uint64_t state = HASH_SEED ^ (<uint64_t>size * HASH_FACTOR)
    cdef uint64_t word
    while size >= 8:
        word = word_of(data, 8) * HASH_FACTOR
        word = (word ^ (word >> 47)) * HASH_FACTOR
        state = (state ^ word) * HASH_FACTOR
        data += 8
        size -= 8
    if size:
        state = (state ^ word_of(data, size)) * HASH_FACTOR
    state = (state ^ (state >> 47)) * HASH_FACTOR
    return state ^ (state >> 47)


cdef inline uint64_t word_of(const uint8_t *data, size_t size) noexcept nogil:
    """Up to eight bytes as a number, lowest first."""
    cdef uint64_t word = 0
    cdef size_t i
    for i in range(size):
        word |= <uint64_t>data[i] << (8 * i)
    return word


cdef int place_of(bytes element, int *count) noexcept:
    """The register of an element, and its count, 1 to 51."""
    cdef uint64_t hashed = murmur(<const uint8_t *>PyBytes_AS_STRING(element), <size_t>PyBytes_GET_SIZE(element))
    count[0] = trailing_zeros(hashed >> REGISTER_BITS | <uint64_t>1 << HASH_BITS) + 1
    return <int>(hashed & (REGISTERS - 1))


# --- Strings ----------------------------------------------------------------------------------------------------------


cdef HllEncoding check_hll(bytes string) except *:
    """The encoding of a string that looks like a HyperLogLog, whatever its runs are; CommandError for any other."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(string)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(string)
    if size < HEAD or memcmp(data, b"HYLL", 4) != 0 or data[ENCODING_AT] > HLL_SPARSE:
        raise not_a_hll()
    if data[ENCODING_AT] == HLL_DENSE and size != DENSE_SIZE:
        raise not_a_hll()
    return <HllEncoding>data[ENCODING_AT]


cdef int64_t cached_count(bytes string) noexcept:
    """The count of the last PFCOUNT; -1 when the registers have changed since."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(string)
    cdef uint64_t count = word_of(data + COUNT_AT, 8)
    return -1 if count >> 63 else <int64_t>count


cdef void cache_count(uint8_t *data, int64_t count) noexcept:
    cdef int i
    for i in range(8):
        data[COUNT_AT + i] = <uint8_t>(<uint64_t>count >> (8 * i))


cdef void invalidate_count(uint8_t *data) noexcept:
    data[HEAD - 1] |= 0x80


cdef bint next_run(const uint8_t **at, const uint8_t *end, int *count, int *length) noexcept nogil:
    """Read one code of sparse registers: what they hold, and how many they are; False at the end, and if it is cut."""
    cdef const uint8_t *p = at[0]
    if p >= end:
        return False
    count[0] = 0
    if p[0] & 0x80:
        count[0] = (p[0] >> 2 & 31) + 1
        length[0] = (p[0] & 3) + 1
    elif not p[0] & 0x40:
        length[0] = (p[0] & 63) + 1
    elif p + 1 < end:
        length[0] = ((p[0] & 63) << 8 | p[1]) + 1
        at[0] += 1
    else:
        return False
    at[0] += 1
    return True


cdef inline int get_dense(const uint8_t *registers, int register) noexcept nogil:
    """A register of 6 bits, which may lie in two bytes."""
    cdef int at = register * 6 >> 3, shift = register * 6 & 7
    cdef int value = registers[at] >> shift
    if shift > 2:
        value |= registers[at + 1] << (8 - shift)
    return value & 63


cdef inline void set_dense(uint8_t *registers, int register, int value) noexcept nogil:
    cdef int at = register * 6 >> 3, shift = register * 6 & 7
    registers[at] = <uint8_t>((registers[at] & ~(63 << shift)) | value << shift)
    if shift > 2:
        registers[at + 1] = <uint8_t>((registers[at + 1] & ~(63 >> (8 - shift))) | value >> (8 - shift))


cdef bint raise_dense(uint8_t *registers, int register, int count) noexcept nogil:
    if get_dense(registers, register) >= count:
        return False
    set_dense(registers, register, count)
    return True


cdef bint add_dense(uint8_t *data, bytes element) noexcept:
    """Add an element to a dense HyperLogLog in place."""
    cdef int count
    cdef int register = place_of(element, &count)
    return raise_dense(data + HEAD, register, count)


cdef int merge_hll(bytes string, uint8_t *maxima) except -1:
    """Raise registers, of a byte each, to those of a HyperLogLog that `check_hll` has accepted."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(string)
    cdef const uint8_t *at = data + HEAD
    cdef const uint8_t *end = data + PyBytes_GET_SIZE(string)
    cdef int register = 0, count, length, i
    if data[ENCODING_AT] == HLL_DENSE:
        for i in range(REGISTERS):
            count = get_dense(at, i)
            if count > maxima[i]:
                maxima[i] = <uint8_t>count
        return 0
    while next_run(&at, end, &count, &length):
        if register + length > REGISTERS:
            raise corrupted()
        for i in range(register, register + length):
            if count > maxima[i]:
                maxima[i] = <uint8_t>count
        register += length
    if register != REGISTERS or at != end:
        raise corrupted()
    return 0


# --- Estimates --------------------------------------------------------------------------------------------------------


cdef double sigma(double x) noexcept nogil:
    """Ertl's sum for registers that are 0."""
    cdef double y = 1, z = x, before = -1
    if x == 1:
        return INFINITY
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


cdef double tau(double x) noexcept nogil:
    """Ertl's sum for registers that are at their maximum."""
    cdef double y = 1, z = 1 - x, before = -1
    if x == 0 or x == 1:
        return 0
    while z != before:
        x = sqrt(x)
        before = z
        y *= 0.5
        z -= pow(1 - x, 2) * y
    return z / 3


cdef int64_t estimate(const int *numbers) noexcept nogil:
    """The estimate for registers of which `numbers` tells how many have each value."""
    cdef double m = REGISTERS
    cdef double z = m * tau((m - numbers[HASH_BITS + 1]) / m)
    cdef int value
    for value in range(HASH_BITS, 0, -1):
        z = (z + numbers[value]) * 0.5
    z += m * sigma(numbers[0] / m)
    return llround(ALPHA * m * m / z)


cdef int64_t count_registers(const uint8_t *maxima) noexcept:
    """The estimate for registers of a byte each."""
    cdef int[MOST_COUNTS] numbers
    cdef int i
    memset(numbers, 0, sizeof(numbers))
    for i in range(REGISTERS):
        numbers[maxima[i]] += 1
    return estimate(numbers)


cdef int64_t count_hll(bytes string) except -1:
    """The estimate for a HyperLogLog that `check_hll` has accepted."""
    cdef uint8_t[REGISTERS] maxima
    memset(maxima, 0, REGISTERS)
    merge_hll(string, maxima)
    return count_registers(maxima)


# --- Changing ---------------------------------------------------------------------------------------------------------


cdef inline Py_ssize_t put_zeros(uint8_t *p, int length) noexcept nogil:
    """Write the code of registers that are 0, in the shortest form; returns its bytes."""
    if length > ZERO_MOST:
        p[0] = <uint8_t>(0x40 | (length - 1) >> 8)
        p[1] = <uint8_t>(length - 1)
        return 2
    p[0] = <uint8_t>(length - 1)
    return 1


cdef inline uint8_t value_code(int count, int length) noexcept nogil:
    return <uint8_t>(0x80 | (count - 1) << 2 | (length - 1))


cdef inline Py_ssize_t put_run(uint8_t *p, int count, int length) noexcept nogil:
    """Write the code of `length` equal registers; returns its bytes."""
    if length == 0:
        return 0
    if count == 0:
        return put_zeros(p, length)
    p[0] = value_code(count, length)
    return 1


@cython.final
@cython.no_gc
cdef class Sketch:
    """A HyperLogLog that is being changed: a copy of a string, or an empty sparse one (None)."""

    def __cinit__(self, bytes string, Py_ssize_t max_sparse):
        self.max_sparse = max_sparse
        self.size = HEAD + 2 if string is None else PyBytes_GET_SIZE(string)
        self.capacity = self.size + 8
        self.data = <uint8_t *>malloc(<size_t>self.capacity)
        if self.data is NULL:
            raise MemoryError("no memory for a HyperLogLog")
        if string is not None:
            memcpy(self.data, PyBytes_AS_STRING(string), <size_t>self.size)
            return
        memset(self.data, 0, HEAD)
        memcpy(self.data, b"HYLL", 4)
        self.data[ENCODING_AT] = HLL_SPARSE
        put_zeros(self.data + HEAD, XZERO_MOST)

    def __dealloc__(self):
        free(self.data)

    cdef bytes string(self):
        """The string, whose registers have changed."""
        invalidate_count(self.data)
        return PyBytes_FromStringAndSize(<char *>self.data, self.size)

    cdef bint add(self, bytes element) except -1:
        """Add an element."""
        cdef int count
        cdef int register = place_of(element, &count)
        return self.raise_register(register, count)

    cdef bint raise_register(self, int register, int count) except -1:
        """Raise a register to `count`, unless it is as high; returns whether it was raised."""
        cdef const uint8_t *at = self.data + HEAD
        cdef const uint8_t *end = self.data + self.size
        cdef const uint8_t *before = NULL       # the code before the one that covers the register
        cdef const uint8_t *code = NULL
        cdef uint8_t[5] codes
        cdef Py_ssize_t used, code_size
        cdef int first = 0, present = 0, length = 0
        if self.data[ENCODING_AT] == HLL_DENSE:
            return raise_dense(self.data + HEAD, register, count)
        if count <= SPARSE_MOST_COUNT:
            while True:
                first += length
                before = code
                code = at
                if not next_run(&at, end, &present, &length):
                    raise corrupted()
                if register < first + length:
                    break
            if present >= count:
                return False
            # The run is split into what is before the register, the register, and what is after it.
            used = put_run(codes, present, register - first)
            codes[used] = value_code(count, 1)
            used += 1
            used += put_run(codes + used, present, first + length - 1 - register)
            code_size = at - code
            if used <= code_size or self.size + used - code_size <= self.max_sparse:
                length = <int>((code if before is NULL else before) - self.data)
                self.replace(code - self.data, code_size, codes, used)
                self.join_equal(length)
                return True
        self.make_dense()
        return raise_dense(self.data + HEAD, register, count)

    cdef int replace(self, Py_ssize_t at, Py_ssize_t old, const uint8_t *codes, Py_ssize_t new) except -1:
        """Put `new` bytes in the place of `old` ones."""
        cdef Py_ssize_t size = self.size + new - old
        cdef uint8_t *grown
        if size > self.capacity:
            grown = <uint8_t *>realloc(self.data, <size_t>(size + size // 4))
            if grown is NULL:
                raise MemoryError("no memory for a HyperLogLog")
            self.data = grown
            self.capacity = size + size // 4
        memmove(self.data + at + new, self.data + at + old, <size_t>(self.size - at - old))
        memcpy(self.data + at, codes, <size_t>new)
        self.size = size
        return 0

    cdef int join_equal(self, Py_ssize_t at) noexcept:
        """Join values that follow each other with values that are equal, in the few codes from `at` on."""
        cdef uint8_t *p = self.data + at
        cdef int scanned = 0, length
        while p < self.data + self.size and scanned < SCANNED:
            scanned += 1
            if not p[0] & 0x80:
                p += 2 if p[0] & 0x40 else 1
                continue
            if p + 1 < self.data + self.size and (p[0] ^ p[1]) < 4:     # the same but for the length
                length = (p[0] & 3) + (p[1] & 3) + 2
                if length <= VAL_MOST:
                    p[0] = <uint8_t>((p[0] & ~3) | (length - 1))
                    memmove(p + 1, p + 2, <size_t>(self.data + self.size - p - 2))
                    self.size -= 1
                    continue            # which may be joined with the next one again
            p += 1
        return 0

    cdef int make_dense(self) except -1:
        """Give each register its 6 bits; what is before the registers stays."""
        cdef const uint8_t *at = self.data + HEAD
        cdef const uint8_t *end = self.data + self.size
        cdef uint8_t *dense
        cdef int register = 0, count, length, i
        if self.data[ENCODING_AT] == HLL_DENSE:
            return 0
        dense = <uint8_t *>malloc(DENSE_SIZE)
        if dense is NULL:
            raise MemoryError("no memory for a HyperLogLog")
        memset(dense, 0, DENSE_SIZE)
        memcpy(dense, self.data, HEAD)
        dense[ENCODING_AT] = HLL_DENSE
        while next_run(&at, end, &count, &length) and register + length <= REGISTERS:
            for i in range(register, register + length if count else register):
                set_dense(dense + HEAD, i, count)
            register += length
        if register != REGISTERS or at != end:
            free(dense)
            raise corrupted()
        free(self.data)
        self.data = dense
        self.size = self.capacity = DENSE_SIZE
        return 0

    cdef int take_maxima(self, const uint8_t *maxima) except -1:
        """Raise all registers."""
        cdef int register
        for register in range(REGISTERS):
            if maxima[register]:
                self.raise_register(register, maxima[register])
        return 0
