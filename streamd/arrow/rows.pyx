# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Entries as rows of a table: wherever the strings of an entry come from, they are put into columns here.

    EntryDecoder (decode.pyx)   replies of a server   --+
                                                        +-->  Entry  -->  RowBuilder  -->  record batch
    RowCaster (recast.pyx)      rows of an archive    --+

So a user's schema means the same for what is archived and for what is on the server: one set of casts, one rule for
fields that come twice, one column for what does not fit. The row of an entry is built column by column; in mode
DROPMALFORMED a row that did not fit is dropped again.

Always: between entries all builders have the same number of rows.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memset
from streamd.heap cimport free, malloc
from streamd.arrow.casts cimport uint128_t
from streamd.arrow.columns cimport (
    BOOLEAN, DATE, DECIMAL, DONE, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, MISFIT, MORE, NO_MEMORY, PAIRS, TEXT,
    TIMESTAMP, TOO_LARGE, Builder, append_cast, append_int64, append_null, append_text, append_unsigned,
    append_value, check_builder, drop_row, free_builder, mark_valid, start_builder, take_column,
)
from streamd.arrow.memory cimport add_int32, add_reserved, reserve

import json

from streamd.client.client_errors import MalformedError
from streamd.printable import key_text

__all__ = ["RowBuilder"]

cdef enum Mode:
    PERMISSIVE
    DROP
    FAIL

SOURCES = {
    "id": FROM_ID, "ms": FROM_MS, "seq": FROM_SEQ, "time": FROM_TIME, "stream": FROM_STREAM, "fields": FROM_FIELDS,
    "field": FROM_FIELD, "corrupt": FROM_FAULT,
}
KINDS = {
    "string": TEXT, "binary": TEXT, "boolean": BOOLEAN, "tinyint": INT8, "smallint": INT16, "int": INT32,
    "bigint": INT64, "float": FLOAT32, "double": FLOAT64, "decimal": DECIMAL, "timestamp": TIMESTAMP, "date": DATE,
    "pairs": PAIRS, "map": PAIRS,
}
MODES = {"PERMISSIVE": PERMISSIVE, "DROPMALFORMED": DROP, "FAILFAST": FAIL}


@cython.final
cdef class RowBuilder:

    def __cinit__(self, table, bytes stream not None):
        cdef Py_ssize_t i
        self.width = len(table.columns)
        self.mode = MODES[table.mode]
        self.stream = key_text(stream.decode("utf-8", "surrogateescape")).encode()
        self.stream_text = self.stream
        self.stream_length = len(self.stream)
        self.schema = table.schema
        self.types = [table.schema.field(i).type for i in range(self.width)]
        self.names = [column.name.encode() for column in table.columns]
        self.fault_column = -1
        for i in range(64):
            self.guesses[i] = -1
        self.builders = <Builder *>malloc((self.width + 1) * sizeof(Builder))
        self.columns = <Column *>malloc((self.width + 1) * sizeof(Column))
        self.found = <Span *>malloc((self.width + 1) * sizeof(Span))
        if self.builders is NULL or self.columns is NULL or self.found is NULL:
            free(self.builders)
            self.builders = NULL
            raise MemoryError
        memset(self.builders, 0, (self.width + 1) * sizeof(Builder))
        for i in range(self.width):
            column = table.columns[i]
            self.columns[i].source = SOURCES[column.source]
            self.columns[i].name = <bytes>self.names[i]
            self.columns[i].name_length = len(<bytes>self.names[i])
            self.builders[i].kind = KINDS[column.kind]
            self.builders[i].precision = column.precision
            self.builders[i].scale = column.scale
            if self.columns[i].source == FROM_FIELD:
                self.has_fields = True
            if self.columns[i].source == FROM_FAULT:
                self.fault_column = i
            if not start_builder(&self.builders[i]):
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.builders is not NULL:
            for i in range(self.width):
                free_builder(&self.builders[i])
        free(self.builders)
        free(self.columns)
        free(self.found)

    def take(self):
        import pyarrow

        cdef int i
        arrays = []
        for i in range(self.width):
            arrays.append(take_column(pyarrow, &self.builders[i], self.types[i]))
            if not start_builder(&self.builders[i]):
                raise MemoryError
        self.rows = 0
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def check_invariants(self):
        """Assert what must hold between entries."""
        cdef int i
        for i in range(self.width):
            assert self.builders[i].rows == self.rows
            check_builder(&self.builders[i])

    # --- Building a row ---------------------------------------------------------------------------------------------

    cdef int add(self, const Entry *entry) noexcept nogil:
        """Append the row of an entry. DONE, MISFIT, TOO_LARGE or NO_MEMORY."""
        cdef Builder *b
        cdef Source source
        cdef int i, outcome = DONE, fits = True
        cdef uint128_t wide
        if self.has_fields:
            self.find_fields(entry)
        for i in range(self.width):
            b = &self.builders[i]
            source = self.columns[i].source
            if source == FROM_FIELD:
                if self.found[i].length == <size_t>-1:
                    outcome = append_null(b)
                else:
                    outcome = append_cast(b, entry.values + self.found[i].at, self.found[i].length)
                    if outcome == MORE:
                        fits = False
                        if self.mode == FAIL:
                            return MISFIT
                        outcome = append_null(b)
            elif source == FROM_ID:
                outcome = append_text(b, entry.id, entry.id_length)
            elif source == FROM_MS or source == FROM_SEQ:
                if b.kind == DECIMAL:
                    wide = entry.ms if source == FROM_MS else entry.seq
                    outcome = append_value(b, &wide, 16)
                else:
                    outcome = append_unsigned(b, entry.ms if source == FROM_MS else entry.seq)
            elif source == FROM_TIME:
                if entry.ms <= <uint64_t>9223372036854775LL:
                    outcome = append_int64(b, <int64_t>entry.ms * 1000)
                else:
                    outcome = append_null(b)
            elif source == FROM_STREAM:
                outcome = append_text(b, self.stream_text, self.stream_length)
            elif source == FROM_FIELDS:
                outcome = append_pairs(b, entry)
            if outcome != DONE:
                return outcome
        if self.fault_column >= 0:
            b = &self.builders[self.fault_column]
            outcome = append_null(b) if fits else append_fault(b, entry)
            if outcome != DONE:
                return outcome
        if not fits and self.mode == DROP:
            for i in range(self.width):
                drop_row(&self.builders[i])
        else:
            self.rows += 1
        return DONE

    cdef void find_fields(self, const Entry *entry) noexcept nogil:
        """Fill `found`: for each column the value of its field, the last one when there are several.

        Entries are alike: `guesses` has, for each position in an entry, the column that its field filled last.
        """
        cdef const char *name
        cdef size_t k, length
        cdef int column
        for column in range(self.width):
            self.found[column].length = <size_t>-1
        for k in range(entry.pairs):
            column = self.guesses[k & 63]
            name = entry.names + entry.spans[2 * k].at
            length = entry.spans[2 * k].length
            if column < 0 or not is_named(&self.columns[column], name, length):
                column = self.column_named(name, length)
                if column < 0:
                    continue
                self.guesses[k & 63] = column
            self.found[column] = entry.spans[2 * k + 1]

    cdef int column_named(self, const char *p, size_t n) noexcept nogil:
        cdef int column
        for column in range(self.width):
            if self.columns[column].source == FROM_FIELD and is_named(&self.columns[column], p, n):
                return column
        return -1

    # --- Failures ---------------------------------------------------------------------------------------------------

    cdef object failure(self, int outcome, const Entry *entry):
        """The exception for an entry that could not be added."""
        if outcome == NO_MEMORY:
            return MemoryError()
        if outcome == TOO_LARGE:
            return MalformedError(f"an entry of {self.stream!r} is too large for one Arrow batch (2 GB)")
        return self.misfit(entry)

    cdef object misfit(self, const Entry *entry):
        """The exception for an entry with a value that does not fit."""
        cdef int i
        cdef Builder trial
        for i in range(self.width):
            if self.columns[i].source != FROM_FIELD or self.found[i].length == <size_t>-1:
                continue
            # On a separate builder, so that the real one is not changed.
            memset(&trial, 0, sizeof(Builder))
            trial.kind = self.builders[i].kind
            trial.precision = self.builders[i].precision
            trial.scale = self.builders[i].scale
            value = text_of(entry.values, self.found[i])
            outcome = append_cast(&trial, value, len(value))
            free_builder(&trial)
            if outcome == MORE:
                return MalformedError(
                    f"entry {entry.id[:entry.id_length].decode()} of stream "
                    f"{self.stream.decode(errors='backslashreplace')}: "
                    f"field {self.names[i].decode()} is not of type {self.types[i]}: {value[:100]!r}"
                )
        return MalformedError("an entry does not fit the schema")


cdef inline bint is_named(Column *column, const char *p, size_t n) noexcept nogil:
    return column.name_length == n and memcmp(column.name, p, n) == 0


# --- Parts of rows that hold a whole entry ---------------------------------------------------------------------------

cdef int append_pairs(Builder *b, const Entry *entry) noexcept nogil:
    """All fields and values."""
    cdef size_t k
    b.undo_names = b.names.length
    b.undo_values = b.values.length
    b.undo_pairs = b.name_offsets.length // sizeof(int32_t)
    b.undo_data = b.data.length
    if not reserve(&b.name_offsets, entry.pairs * 4) or not reserve(&b.value_offsets, entry.pairs * 4):
        return NO_MEMORY
    # One check and one reservation for all.
    if b.names.length + b.values.length + entry.size > INT32_MAX:
        return TOO_LARGE
    if not reserve(&b.names, entry.size) or not reserve(&b.values, entry.size):
        return NO_MEMORY
    for k in range(entry.pairs):
        add_reserved(&b.names, &b.name_offsets, entry.names + entry.spans[2 * k].at, entry.spans[2 * k].length)
        add_reserved(
            &b.values, &b.value_offsets, entry.values + entry.spans[2 * k + 1].at, entry.spans[2 * k + 1].length
        )
    if not add_int32(&b.offsets, <int32_t>(b.name_offsets.length // sizeof(int32_t) - 1)) or not mark_valid(b):
        return NO_MEMORY
    return DONE


cdef int append_fault(Builder *b, const Entry *entry) noexcept nogil:
    """The fields as a JSON object, in order and with duplicates; bytes that are not UTF-8 as `\\xff`."""
    cdef size_t k
    with gil:
        try:
            pairs = []
            for k in range(entry.pairs):
                name = quoted(text_of(entry.names, entry.spans[2 * k]))
                value = quoted(text_of(entry.values, entry.spans[2 * k + 1]))
                pairs.append(f"{name}:{value}")
            text = ("{" + ",".join(pairs) + "}").encode()
            return append_text(b, <const char *><bytes>text, len(text))
        except MemoryError:
            return NO_MEMORY


cdef bytes text_of(const char *base, Span span):
    return base[span.at:span.at + span.length]


cdef quoted(bytes text):
    return json.dumps(text.decode("utf-8", "backslashreplace"), ensure_ascii=False)
