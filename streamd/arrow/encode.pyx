# cython: language_level=3, boundscheck=False, wraparound=False
"""XAddEncoder: Arrow record batches in, XADD requests out, with no Python object per row.

    XADD key [options] [IDMP producer[:number] id] <* | ID> field value ...

A batch is read through views of its columns (column_views.pyx).

Always: nothing of a batch is kept after `encode`; the output block is the encoder's, reused and copied out.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from streamd.arrow.column_views cimport (
    ArrowArray, ArrowSchema, ListView, View, is_null, list_start, look_at, look_at_list, start_of
)
from streamd.heap cimport free, realloc
from streamd.numbers cimport count_digits, put_line

__all__ = ["XAddEncoder"]

cdef enum:
    MAX_HEADER = 24         # `$`, 20 digits, CR LF
    MAX_PREFIX = 256        # headers of one request without those of its fields

# Results of writing a row. Negative: why it failed.
cdef enum Outcome:
    NO_FIELDS = -6
    NULL_NAME = -5
    NULL_VALUE = -4
    NULL_ID = -3
    NULL_KEY = -2
    NO_MEMORY = -1
    DONE = 1

cdef enum Nulls:
    OMIT
    EMPTY
    FAIL

NULLS = {"omit": OMIT, "empty": EMPTY, "fail": FAIL}


# --- Writing ---------------------------------------------------------------------------------------------------------

cdef inline char *put_string(char *p, const char *text, int64_t n) noexcept nogil:
    p += put_line(p, c'$', n)
    if n > 0:
        memcpy(p, text, n)
    p += n
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline char *put_producer(
    char *p, const char *producer, int64_t n, const char *token, int64_t token_length, int64_t producers
) noexcept nogil:
    """Write a producer's ID: with several of them, `<producer>:<number>`, the number from the token's FNV-1a hash."""
    cdef uint64_t hashed = 0xcbf29ce484222325ULL
    cdef uint64_t number
    cdef int64_t i
    if producers == 1:
        return put_string(p, producer, n)
    for i in range(token_length):
        hashed = (hashed ^ <uint8_t>token[i]) * 0x100000001b3ULL
    # The low bits of FNV alone depend on the low bits of the bytes alone.
    hashed ^= hashed >> 32
    number = hashed % <uint64_t>producers
    p += put_line(p, c'$', n + 1 + <int64_t>count_digits(number))
    memcpy(p, producer, n)
    p += n
    return p + put_line(p, c':', <int64_t>number)     # a colon, the digits, and CR LF


@cython.final
cdef class XAddEncoder:

    cdef bytes key                  # of all rows; None: each row has its own
    cdef const char *key_text       # its bytes
    cdef int64_t key_length
    cdef int key_column
    cdef int id_column
    cdef int fields_column
    cdef int idempotency_column
    cdef int64_t producers          # how many the keys are spread over; 1: no number behind the producer's ID
    cdef int nulls
    cdef list names                 # encoded: `$4\r\nname\r\n`
    cdef list columns               # where their values are
    cdef bytes options              # encoded
    cdef int64_t option_count
    cdef char *out                  # owned
    cdef size_t length
    cdef size_t room
    cdef View *views                # owned: of the columns while a batch is written
    cdef const char **name_texts    # owned array; the texts are of `names`
    cdef size_t *name_lengths       # owned
    cdef int width                  # how many these are

    def __cinit__(
        self, *, key, key_column=-1, id_column=-1, fields_column=-1, field_names=(), field_columns=(), options=(),
        idempotency_column=-1, int64_t producers=1, null_values="omit",
    ):
        cdef int i
        if producers < 1:
            raise ValueError("producers must be at least 1")
        if key is None and key_column < 0:
            raise ValueError("a key, or a column of keys, is needed")
        if len(field_names) != len(field_columns):
            raise ValueError("there must be as many field names as columns")
        self.key = key
        if key is not None:
            self.key_text = self.key
            self.key_length = len(key)
        self.key_column = key_column
        self.id_column = id_column
        self.fields_column = fields_column
        self.idempotency_column = idempotency_column
        self.producers = producers
        self.nulls = NULLS[null_values]
        self.names = [encoded(name) for name in field_names]
        self.columns = list(field_columns)
        self.options = b"".join([encoded(option) for option in options])
        self.option_count = len(options)
        self.width = len(self.names)
        self.views = <View *>realloc(NULL, (self.width + 1) * sizeof(View))
        self.name_texts = <const char **>realloc(NULL, (self.width + 1) * sizeof(char *))
        self.name_lengths = <size_t *>realloc(NULL, (self.width + 1) * sizeof(size_t))
        if self.views is NULL or self.name_texts is NULL or self.name_lengths is NULL:
            raise MemoryError
        for i in range(self.width):
            self.name_texts[i] = <bytes>self.names[i]
            self.name_lengths[i] = len(<bytes>self.names[i])

    def __dealloc__(self):
        free(self.out)
        free(self.views)
        free(self.name_texts)
        free(self.name_lengths)

    def encode(self, batch, int64_t start=0, int64_t stop=-1, bytes producer_id=b""):
        cdef ArrowSchema *schema
        cdef ArrowArray *array
        cdef View keys, ids, idempotency
        cdef ListView fields
        cdef int64_t row = 0
        cdef int i, outcome = DONE
        cdef const char *producer = producer_id
        cdef int64_t producer_length = len(producer_id)
        capsules = batch.__arrow_c_array__()        # kept until the end: they own the structs
        schema = <ArrowSchema *>PyCapsule_GetPointer(capsules[0], b"arrow_schema")
        array = <ArrowArray *>PyCapsule_GetPointer(capsules[1], b"arrow_array")
        if schema.format != b"+s":
            raise TypeError("a record batch is needed")
        if stop < 0 or stop > array.length:
            stop = array.length
        if self.key is None:
            self.column_of(&keys, schema, array, self.key_column)
        if self.id_column >= 0:
            self.column_of(&ids, schema, array, self.id_column)
        if self.idempotency_column >= 0:
            self.column_of(&idempotency, schema, array, self.idempotency_column)
        if self.fields_column >= 0:
            self.check_column(schema, self.fields_column)
            look_at_list(
                &fields, schema.children[self.fields_column], array.children[self.fields_column], array.offset
            )
        for i in range(self.width):
            self.column_of(&self.views[i], schema, array, self.columns[i])
        self.length = 0
        with nogil:
            for row in range(start, stop):
                outcome = self.write_row(row, &keys, &ids, &idempotency, &fields, producer, producer_length)
                if outcome != DONE:
                    break
        if outcome != DONE:
            raise self.refusal(outcome, row)
        return PyBytes_FromStringAndSize(self.out, self.length)

    cdef check_column(self, ArrowSchema *schema, int64_t column):
        if not 0 <= column < schema.n_children:
            raise IndexError(f"the batch has no column {column}")

    cdef column_of(self, View *view, ArrowSchema *schema, ArrowArray *array, int64_t column):
        self.check_column(schema, column)
        look_at(view, schema.children[column], array.children[column], array.offset)

    cdef refusal(self, int outcome, row):
        if outcome == NO_MEMORY:
            return MemoryError()
        return ValueError({
            NULL_KEY: f"row {row}: the name of the stream is null",
            NULL_ID: f"row {row}: the ID or the idempotency key is null",
            NULL_VALUE: f"row {row}: a value is null",
            NULL_NAME: f"row {row}: the name of a field is null",
            NO_FIELDS: f"row {row}: an entry needs at least one field",
        }[outcome])

    cdef inline bint reserve(self, size_t more) noexcept nogil:
        """Make room behind what is written. May move. False when out of memory."""
        cdef size_t room
        cdef char *moved
        if self.length + more <= self.room:
            return True
        room = self.room * 2 if self.room * 2 > self.length + more else self.length + more
        moved = <char *>realloc(self.out, room)
        if moved is NULL:
            return False
        self.out = moved
        self.room = room
        return True

    cdef int write_row(
        self, int64_t row, View *keys, View *ids, View *idempotency, ListView *fields, const char *producer,
        int64_t producer_length,
    ) noexcept nogil:
        cdef const char *key = self.key_text
        cdef const char *id = b"*"
        cdef const char *token = NULL
        cdef int64_t key_length = self.key_length, id_length = 1, token_length = 0, at = 0
        cdef int64_t pairs = 0, first = 0, last = 0, i
        cdef size_t size
        cdef char *p
        if key is NULL:
            if is_null(keys, row):
                return NULL_KEY
            at = start_of(keys, row)
            key = keys.data + at
            key_length = start_of(keys, row + 1) - at
        if self.id_column >= 0:
            if is_null(ids, row):
                return NULL_ID
            at = start_of(ids, row)
            id = ids.data + at
            id_length = start_of(ids, row + 1) - at
        if self.idempotency_column >= 0:
            if is_null(idempotency, row):
                return NULL_ID
            at = start_of(idempotency, row)
            token = idempotency.data + at
            token_length = start_of(idempotency, row + 1) - at
        size = MAX_PREFIX + key_length + id_length + token_length + producer_length + <size_t>len_of(self.options)
        # How many fields there are, and their bytes at most.
        if self.fields_column >= 0 and not (
            fields.valid is not NULL
            and not (fields.valid[(row + fields.offset) >> 3] >> ((row + fields.offset) & 7)) & 1
        ):
            first = list_start(fields, row)
            last = list_start(fields, row + 1)
            for i in range(first, last):
                if is_null(&fields.names, i):
                    return NULL_NAME
                if is_null(&fields.values, i):
                    if self.nulls == FAIL:
                        return NULL_VALUE
                    if self.nulls == OMIT:
                        continue
                pairs += 1
            if last > first:    # without any pair in the batch there may be no offsets either
                size += <size_t>(last - first) * 2 * (MAX_HEADER + 2)
                size += start_of(&fields.names, last) - start_of(&fields.names, first)
                size += start_of(&fields.values, last) - start_of(&fields.values, first)
        for i in range(self.width):
            if is_null(&self.views[i], row):
                if self.nulls == FAIL:
                    return NULL_VALUE
                if self.nulls == OMIT:
                    continue
            pairs += 1
            size += self.name_lengths[i] + MAX_HEADER + 2
            size += start_of(&self.views[i], row + 1) - start_of(&self.views[i], row)
        if pairs == 0:
            return NO_FIELDS
        if not self.reserve(size):
            return NO_MEMORY
        p = self.out + self.length
        p += put_line(p, c'*', 3 + self.option_count + (3 if token is not NULL else 0) + 2 * pairs)
        p = put_string(p, b"XADD", 4)
        p = put_string(p, key, key_length)
        memcpy(p, text_of(self.options), len_of(self.options))
        p += len_of(self.options)
        if token is not NULL:
            p = put_string(p, b"IDMP", 4)
            p = put_producer(p, producer, producer_length, token, token_length, self.producers)
            p = put_string(p, token, token_length)
        p = put_string(p, id, id_length)
        for i in range(first, last):
            if is_null(&fields.values, i) and self.nulls == OMIT:
                continue
            p = put_cell(p, &fields.names, i)
            p = put_cell(p, &fields.values, i)
        for i in range(self.width):
            if is_null(&self.views[i], row) and self.nulls == OMIT:
                continue
            memcpy(p, self.name_texts[i], self.name_lengths[i])
            p += self.name_lengths[i]
            p = put_cell(p, &self.views[i], row)
        self.length = p - self.out
        return DONE


cdef inline char *put_cell(char *p, View *view, int64_t row) noexcept nogil:
    """Write a string of a column; nothing for a null."""
    cdef int64_t at = start_of(view, row)
    # The bytes below a null are undefined.
    return put_string(p, view.data + at, 0 if is_null(view, row) else start_of(view, row + 1) - at)


cdef extern from "Python.h":
    Py_ssize_t len_of "PyBytes_GET_SIZE"(bytes held) nogil
    const char *text_of "PyBytes_AS_STRING"(bytes held) nogil


cdef bytes encoded(bytes text):
    return b"$%d\r\n%b\r\n" % (len(text), text)
