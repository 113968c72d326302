# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Texts to values: integers, floating-point numbers, booleans, decimals, dates and timestamps.

Each function reads the whole text, ignoring white space around it (except for dates), and is false when it is not such
a value. The short ones that other modules call for every entry are in casts.pxd.
"""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

__all__ = []

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *s, char **endptr, void *overflow) except? -1.0

cdef enum:
    MAX_NUMBER = 512                # longest text that is read as a floating-point or decimal number


cdef bint read_integer(const char *p, size_t n, int64_t low, int64_t high, int64_t *out) noexcept nogil:
    cdef uint64_t size
    cdef bint is_negative = False
    trim(&p, &n)
    if n > 0 and (p[0] == c'-' or p[0] == c'+'):
        is_negative = p[0] == c'-'
        p += 1
        n -= 1
    if not read_unsigned(p, n, &size):
        return False
    if is_negative:
        # low is negative: -(low + 1) + 1 is its magnitude, without overflow.
        if size > <uint64_t>(-(low + 1)) + 1:
            return False
        out[0] = <int64_t>(0 - size)
    else:
        if size > <uint64_t>high:
            return False
        out[0] = <int64_t>size
    return True


cdef bint matches(const char *p, size_t n, const char *word, size_t word_length) noexcept nogil:
    """Whether the text is the (lower-case) word, ignoring case."""
    cdef size_t i
    if n != word_length:
        return False
    for i in range(n):
        if (p[i] | 32) != word[i]:
            return False
    return True


cdef bint read_exponent(const char *p, const char *end, int *out) noexcept nogil:
    """Nothing, or `e` and a whole number, up to `end`. Values beyond 100000 are capped."""
    cdef int value = 0
    cdef bint is_negative = False
    out[0] = 0
    if p == end:
        return True
    if p[0] != c'e' and p[0] != c'E':
        return False
    p += 1
    if p < end and (p[0] == c'-' or p[0] == c'+'):
        is_negative = p[0] == c'-'
        p += 1
    if p == end:
        return False
    while p < end:
        if not is_digit(p[0]):
            return False
        if value < 100000:
            value = value * 10 + (p[0] - c'0')
        p += 1
    out[0] = -value if is_negative else value
    return True


cdef double[23] POWERS
for _exponent in range(23):
    POWERS[_exponent] = float(f"1e{_exponent}")      # all exact


cdef int read_double(const char *p, size_t n, double *out) noexcept nogil:
    cdef uint64_t mantissa = 0
    cdef int digits = 0, seen = 0, exponent = 0, written = 0
    cdef bint is_negative = False
    cdef const char *q
    cdef const char *end
    trim(&p, &n)
    if n == 0 or n > MAX_NUMBER:
        return False
    q = p
    end = p + n
    if q[0] == c'-' or q[0] == c'+':
        is_negative = q[0] == c'-'
        q += 1
    if q < end and not is_digit(q[0]) and q[0] != c'.':
        if matches(q, end - q, b"nan", 3):
            out[0] = NAN
        elif matches(q, end - q, b"inf", 3) or matches(q, end - q, b"infinity", 8):
            out[0] = -INFINITY if is_negative else INFINITY
        else:
            return False
        return True
    while q < end and is_digit(q[0]):
        seen += 1
        if digits or q[0] != c'0':
            digits += 1
            if digits <= 19:
                mantissa = mantissa * 10 + <uint64_t>(q[0] - c'0')
        q += 1
    if q < end and q[0] == c'.':
        q += 1
        while q < end and is_digit(q[0]):
            seen += 1
            exponent -= 1
            if digits or q[0] != c'0':
                digits += 1
                if digits <= 19:
                    mantissa = mantissa * 10 + <uint64_t>(q[0] - c'0')
            q += 1
    if seen == 0:
        return False
    if not read_exponent(q, end, &written):
        return False
    exponent += written
    # Both are exact as doubles, so that one multiplication or division rounds correctly.
    if digits <= 19 and mantissa <= (<uint64_t>1 << 53) and -22 <= exponent <= 22:
        out[0] = <double>mantissa
        if exponent < 0:
            out[0] /= POWERS[-exponent]
        else:
            out[0] *= POWERS[exponent]
        if is_negative:
            out[0] = -out[0]
        return True
    return slow_double(p, n, out)


cdef bint slow_double(const char *p, size_t n, double *out) noexcept nogil:
    """The same by Python, which ignores the locale."""
    cdef char copy[MAX_NUMBER + 1]
    memcpy(copy, p, n)
    copy[n] = 0
    with gil:
        try:
            out[0] = PyOS_string_to_double(copy, NULL, NULL)     # above the largest: infinity
        except ValueError:
            return False
    return True


cdef bint read_boolean(const char *p, size_t n, int *out) noexcept nogil:
    trim(&p, &n)
    if matches(p, n, b"true", 4) or matches(p, n, b"t", 1) or matches(p, n, b"yes", 3) or matches(p, n, b"y", 1):
        out[0] = True
    elif matches(p, n, b"false", 5) or matches(p, n, b"f", 1) or matches(p, n, b"no", 2) or matches(p, n, b"n", 1):
        out[0] = False
    elif n == 1 and (p[0] == c'0' or p[0] == c'1'):
        out[0] = p[0] == c'1'
    else:
        return False
    return True


cdef bint read_decimal(const char *p, size_t n, int precision, int scale, uint128_t *out) noexcept nogil:
    """A number as `value * 10^scale`, rounded half away from zero; at most `precision` digits."""
    cdef const char *q
    cdef const char *end
    cdef const char *first
    cdef bint is_negative = False, seen_point = False, rounds_up = False
    cdef int exponent = 0
    cdef long before_point = 0, count = 0, cut, index = 0, digits = 0
    cdef uint128_t value = 0
    cdef uint128_t limit = 1
    trim(&p, &n)
    if n == 0 or n > MAX_NUMBER:
        return False
    q = p
    end = p + n
    if q[0] == c'-' or q[0] == c'+':
        is_negative = q[0] == c'-'
        q += 1
    first = q
    while q < end and (is_digit(q[0]) or (q[0] == c'.' and not seen_point)):
        if q[0] == c'.':
            seen_point = True
        else:
            count += 1
            if not seen_point:
                before_point += 1
        q += 1
    if count == 0:
        return False
    if not read_exponent(q, end, &exponent):
        return False
    end = q
    # Digits before index `cut` are kept, the one there decides the rounding.
    cut = before_point + exponent + scale
    q = first
    while q < end:
        if q[0] != c'.':
            if index < cut:
                if value or q[0] != c'0':
                    digits += 1
                    if digits > precision:
                        return False
                value = value * 10 + <uint128_t>(q[0] - c'0')
            elif index == cut:
                rounds_up = q[0] >= c'5'
            index += 1
        q += 1
    while index < cut and value:
        digits += 1
        if digits > precision:
            return False
        value = value * 10
        index += 1
    value += <uint128_t>rounds_up
    while precision > 0:
        limit = limit * 10
        precision -= 1
    if value >= limit:
        return False
    out[0] = 0 - value if is_negative else value
    return True


cdef int two_digits(const char *p, int high) noexcept nogil:
    """A number of two digits up to `high`, or -1."""
    cdef int value
    if not is_digit(p[0]) or not is_digit(p[1]):
        return -1
    value = (p[0] - c'0') * 10 + (p[1] - c'0')
    return value if value <= high else -1


cdef int days_of_month(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint read_date(const char *p, size_t n, int64_t *days) noexcept nogil:
    """`YYYY-MM-DD` as days since 1970."""
    cdef int year, month, day, high, low, era, of_era, of_year
    if n != 10 or p[4] != c'-' or p[7] != c'-':
        return False
    high = two_digits(p, 99)
    low = two_digits(p + 2, 99)
    month = two_digits(p + 5, 12)
    day = two_digits(p + 8, 31)
    if high < 0 or low < 0 or month < 1 or day < 1:
        return False
    year = high * 100 + low
    if year == 0 or day > days_of_month(year, month):
        return False
    # Years that start in March end with their leap day; 400 of them have 146097 days.
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days[0] = <int64_t>era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return True


cdef bint read_timestamp(const char *p, size_t n, int64_t *micros) noexcept nogil:
    """Unix time in ms, or ISO 8601 with day, or day and time; UTC if it has no zone. As microseconds."""
    cdef int64_t number, days, seconds
    cdef int hours, minutes, second = 0, digits = 0, sign
    cdef int64_t fraction = 0
    cdef const char *end
    trim(&p, &n)
    if read_integer(p, n, -9223372036854775, 9223372036854775, &number):
        micros[0] = number * 1000
        return True
    if n < 10 or not read_date(p, 10, &days):
        return False
    micros[0] = days * 86400000000LL
    if n == 10:
        return True
    end = p + n
    p += 10
    if (p[0] != c'T' and p[0] != c't' and p[0] != c' ') or end - p < 6 or p[3] != c':':
        return False
    hours = two_digits(p + 1, 23)
    minutes = two_digits(p + 4, 59)
    if hours < 0 or minutes < 0:
        return False
    p += 6
    if p < end and p[0] == c':':
        if end - p < 3:
            return False
        second = two_digits(p + 1, 59)
        if second < 0:
            return False
        p += 3
        if p < end and (p[0] == c'.' or p[0] == c','):
            p += 1
            while p < end and is_digit(p[0]):
                if digits < 6:
                    fraction = fraction * 10 + (p[0] - c'0')
                digits += 1
                p += 1
            if digits == 0:
                return False
            while digits < 6:
                fraction *= 10
                digits += 1
    seconds = <int64_t>hours * 3600 + minutes * 60 + second
    if p < end:
        if (p[0] == c'Z' or p[0] == c'z') and end - p == 1:
            p += 1
        elif (p[0] == c'+' or p[0] == c'-') and (end - p == 3 or end - p == 5 or end - p == 6):
            sign = -1 if p[0] == c'-' else 1
            hours = two_digits(p + 1, 18)
            minutes = 0
            if end - p > 3:
                if end - p == 6 and p[3] != c':':
                    return False
                minutes = two_digits(end - 2, 59)
            if hours < 0 or minutes < 0:
                return False
            seconds -= sign * (hours * 3600 + minutes * 60)
        else:
            return False
    micros[0] += seconds * 1000000 + fraction
    return True
