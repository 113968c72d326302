# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Doubles as text: in replies, in arguments, and in listpacks of sorted sets.

Written as Redis writes them. An integral number up to 2**62 is written in full. Any other number is N digits times
10**K, with digits that read back as the same double:

    K >= 0, and the exponent of the first digit below N + 7    digits and zeros            99999999999999990000000
    K < 0, and K > -7 or that exponent within 3 of 0           a decimal point             0.000025
    else                                                       an exponent                 1.7000000001234567e+9

The digits come from Grisu2 (F. Loitsch, "Printing floating-point numbers quickly and accurately with integers", 2010).
It finds the shortest digits, except for one double in a thousand, and of those with equally many digits mostly, but not
always, the closest: for bytes equal to Redis's it has to be this algorithm, with a table of every eighth power of ten.

Read as C's strtod reads them, hexadecimal digits and exponents included, which is what Redis does; the usual short
decimal numbers are read here, and exactly: both the digits and the power of ten are doubles without an error.
"""

from libc cimport errno as c_errno
from libc.math cimport isinf, isnan, signbit
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport strtod
from libc.string cimport memcpy, memset

from streamd.numbers cimport POWERS_OF_TEN, leading_zeros, put_int64, put_uint64

__all__ = []

cdef extern from *:
    """
    static inline unsigned long long streamd_upper_product(unsigned long long a, unsigned long long b) {
        return (unsigned long long)(((unsigned __int128)a * b + (1ull << 63)) >> 64);
    }
    static inline unsigned long long streamd_bits_of(double value) {
        unsigned long long bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    """
    # The upper half of a product of 128 bits, rounded.
    uint64_t upper_product "streamd_upper_product"(uint64_t a, uint64_t b) noexcept nogil
    uint64_t bits_of "streamd_bits_of"(double value) noexcept nogil


# --- Powers of ten --------------------------------------------------------------------------------------------------

cdef enum:
    FIRST_POWER = -348
    POWER_STEP = 8
    POWERS = 87
    # The binary exponent of a scaled number: its integral part then fits into 32 bits.
    LEAST_SCALED = -60
    GREATEST_SCALED = -32
    FRACTION_BITS = 52
    EXPONENT_BIAS = 1023 + FRACTION_BITS

cdef struct Scaled:
    # fraction * 2**exponent
    uint64_t fraction
    int exponent

cdef Scaled powers[POWERS]     # 10**(FIRST_POWER + i * POWER_STEP), with the highest bit set


cdef int fill_powers() except -1:
    """Compute the table: 64 bits of each power, rounded to nearest."""
    cdef int i
    for i in range(POWERS):
        power = FIRST_POWER + i * POWER_STEP
        whole = 10 ** abs(power)
        if power >= 0:
            exponent = whole.bit_length() - 64
            doubled = whole << 65 >> (exponent + 64)
        else:
            exponent = -63 - whole.bit_length()
            doubled = (1 << (1 - exponent)) // whole
        fraction = (doubled + 1) >> 1
        if fraction >> 64:
            fraction >>= 1
            exponent += 1
        powers[i].fraction = fraction
        powers[i].exponent = exponent
    return 0

fill_powers()


cdef inline const Scaled *power_for(int exponent, int *power) noexcept nogil:
    """The cached power of ten that scales a normalized number with this binary exponent."""
    cdef int guess = <int>(-(exponent + POWERS) * 0.30102999566398114)
    cdef int i = (guess - FIRST_POWER) / POWER_STEP
    cdef int scaled
    while True:
        scaled = exponent + powers[i].exponent + 64
        if scaled < LEAST_SCALED:
            i += 1
        elif scaled > GREATEST_SCALED:
            i -= 1
        else:
            power[0] = FIRST_POWER + i * POWER_STEP
            return &powers[i]


# --- Digits ---------------------------------------------------------------------------------------------------------


cdef inline void round_down(
    char *last, uint64_t delta, uint64_t rest, uint64_t unit, uint64_t distance
) noexcept nogil:
    """Lower the last digit while this brings it closer to the exact number, which is `distance` below the top."""
    while rest < distance and delta - rest >= unit and (
        rest + unit < distance or distance - rest > rest + unit - distance
    ):
        last[0] -= 1
        rest += unit


cdef size_t shortest_digits(double value, char *digits, int *power) noexcept nogil:
    """Digits, at most 18, and a power of ten that together are a positive finite double; returns how many digits."""
    cdef uint64_t bits = bits_of(value)
    cdef uint64_t fraction = bits & ((<uint64_t>1 << FRACTION_BITS) - 1)
    cdef int exponent = <int>(bits >> FRACTION_BITS & 0x7FF)
    cdef uint64_t top, bottom, exact, delta, distance, one, whole, rest, digit, unit
    cdef const Scaled *scale
    cdef int shift, lower_shift, kappa, cached = 0
    cdef size_t count = 0
    if exponent:
        fraction |= <uint64_t>1 << FRACTION_BITS
        exponent -= EXPONENT_BIAS
    else:
        exponent = 1 - EXPONENT_BIAS
    # Halfway to the neighbours. The lower one is closer at a power of two.
    top = (fraction << 1) + 1
    shift = leading_zeros(top)
    top <<= shift
    lower_shift = 2 if fraction == <uint64_t>1 << FRACTION_BITS else 1
    bottom = ((fraction << lower_shift) - 1) << (shift + 1 - lower_shift)
    exact = fraction << leading_zeros(fraction)
    scale = power_for(exponent - 1 - shift, &cached)
    power[0] = -cached
    exact = upper_product(exact, scale.fraction)
    top = upper_product(top, scale.fraction) - 1
    bottom = upper_product(bottom, scale.fraction) + 1
    shift = -(exponent - 1 - shift + scale.exponent + 64)     # bits after the point
    distance = top - exact
    delta = top - bottom
    one = <uint64_t>1 << shift
    whole = top >> shift
    rest = top & (one - 1)
    kappa = 10
    while kappa > 0:
        kappa -= 1
        unit = POWERS_OF_TEN[kappa]
        digit = whole / unit
        if digit or count:
            digits[count] = <char>(c'0' + digit)
            count += 1
        whole -= digit * unit
        if (whole << shift) + rest <= delta:
            power[0] += kappa
            round_down(digits + count - 1, delta, (whole << shift) + rest, unit << shift, distance)
            return count
    unit = 1
    while True:
        rest *= 10
        delta *= 10
        unit *= 10
        kappa -= 1
        digit = rest >> shift
        if digit or count:
            digits[count] = <char>(c'0' + digit)
            count += 1
        rest &= one - 1
        if rest < delta:
            power[0] += kappa
            round_down(digits + count - 1, delta, rest, one, distance * unit)
            return count


# --- Writing --------------------------------------------------------------------------------------------------------


cdef size_t put_double(char *p, double value) noexcept nogil:
    cdef size_t sign
    if not is_integral(value):
        return put_shortest(p, value)
    sign = signbit(value) != 0
    if sign:
        p[0] = c'-'
    return sign + put_int64(p + sign, <int64_t>(-value if sign else value))


cdef size_t put_shortest(char *p, double value) noexcept nogil:
    cdef char digits[20]
    cdef char *start = p
    cdef size_t count
    cdef int power, first
    if isnan(value):
        memcpy(p, "nan", 3)
        return 3
    if signbit(value):
        p[0] = c'-'
        p += 1
        value = -value
    if isinf(value):
        memcpy(p, "inf", 3)
        return p - start + 3
    if value == 0:
        p[0] = c'0'
        return p - start + 1
    count = shortest_digits(value, digits, &power)
    first = power + <int>count - 1           # the exponent of the first digit
    if power >= 0 and first < <int>count + 7:
        memcpy(p, digits, count)
        memset(p + count, c'0', <size_t>power)
        return p - start + count + <size_t>power
    if power < 0 and (power > -7 or -4 < first < 4):
        return p - start + put_with_point(p, digits, count, <int>count + power)
    p[0] = digits[0]
    p += 1
    if count > 1:
        p[0] = c'.'
        memcpy(p + 1, digits + 1, count - 1)
        p += count
    p[0] = c'e'
    p[1] = c'-' if first < 0 else c'+'
    return p + 2 - start + put_uint64(p + 2, <uint64_t>(-first if first < 0 else first))


cdef inline size_t put_with_point(char *p, const char *digits, size_t count, int whole) noexcept nogil:
    """Write digits with a point after the first `whole` of them; none or less: after a zero, and before more zeros."""
    cdef size_t zeros
    if whole > 0:
        memcpy(p, digits, <size_t>whole)
        p[whole] = c'.'
        memcpy(p + whole + 1, digits + whole, count - <size_t>whole)
        return count + 1
    zeros = <size_t>-whole
    p[0] = c'0'
    p[1] = c'.'
    memset(p + 2, c'0', zeros)
    memcpy(p + 2 + zeros, digits, count)
    return 2 + zeros + count


# --- Reading --------------------------------------------------------------------------------------------------------


cdef inline bint read_short(const char *p, size_t n, double *out) noexcept nogil:
    """Read digits with a sign and a point, if they are so few that the result is exact; False: they are not."""
    cdef const char *end = p + n
    cdef uint64_t number = 0
    cdef size_t after_point = 0
    cdef bint negative = False, has_point = False
    cdef unsigned int digit
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        p += 1
    if not 1 <= end - p <= 16 or not c'0' <= p[0] <= c'9':
        return False
    while p < end:
        digit = <unsigned int><unsigned char>p[0] - c'0'
        if digit <= 9:
            number = number * 10 + digit
            after_point += has_point
        elif p[0] == c'.' and not has_point:
            has_point = True
        else:
            return False
        p += 1
    if number > <uint64_t>1 << 53:
        return False
    out[0] = <double>number / <double>POWERS_OF_TEN[after_point]
    if negative:
        out[0] = -out[0]
    return True


cdef bint read_double(const char *p, size_t n, double *out) noexcept nogil:
    cdef char *end
    if read_short(p, n, out):
        return True
    if n == 0 or starts_blank(p):
        return False
    c_errno.errno = 0
    out[0] = strtod(p, &end)
    if end != p + n or isnan(out[0]):
        return False
    return c_errno.errno != c_errno.ERANGE or (not isinf(out[0]) and out[0] != 0)


cdef bint read_float(const char *p, size_t n, double *out) noexcept nogil:
    cdef char *end
    if read_short(p, n, out):
        return True
    if n == 0 or starts_blank(p):
        return False
    out[0] = strtod(p, &end)
    return end == p + n


cdef inline bint starts_blank(const char *p) noexcept nogil:
    """Whether strtod would skip something."""
    return p[0] == c' ' or c'\t' <= p[0] <= c'\r'
