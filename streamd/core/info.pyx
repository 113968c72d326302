# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a capability contributes to INFO: lines of sections, as `Capability.info` declares them.

    info = {
        "clients": (
            Field("connected_clients", lambda self: len(self.host.clients)),    a name and its getter
            Field("cluster_connections", 0),                                    a fixed value
        ),
        "stats": (
            Fields("sync_full sync_partial_ok", lambda self: (self.full, self.ok)),     names, and one getter of
        ),                                                                              all values; None: not shown
        "commandstats": (Lines("commands", lambda self: self.command_lines()),),        any number of lines
    }

observe/info_report.py combines the sections of all capabilities, in Redis's order. A value is an integer (a bool is 0
or 1), a float, shown with two decimals, or a text. Names of `Fields` may be followed by how a number is shown:

    used_memory_peak_perc:percent       with two decimals and a percent sign
    used_cpu_sys:us                     microseconds, as seconds with six decimals
    used_memory_human:size              bytes, as `512B` or `1.50K`

Compiled capabilities have numbers without objects: a function that fills in C integers, see `numbers`. There `percent`
is given hundredths, and so is another form:

    mem_fragmentation_ratio:hundredths  with two decimals

Exporters and job libraries request INFO all the time: a call of Python for each of some 250 lines, and a string for
each number, were most of what it cost. Most values stay the same: a section keeps its text, and writes only values that
are not the objects of last time, or not the same numbers. Values must therefore be immutable.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.math cimport llrint
from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from streamd.numbers cimport INT64_ROOM, put_digits, put_int64, put_pair
from streamd.protocol.reply cimport ReplyWriter

from types import GenericAlias

__all__ = ["Field", "Fields", "Lines", "Section", "human_size", "ratio", "render"]

cdef extern from "Python.h":
    # Borrowed references.
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t at)
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t at)


cdef class Part:
    """What INFO shows in places of a section.

    names  of its lines, or one name for the place of all
    forms  how their numbers are shown; "": as they are
    read   called with the capability; None: `fixed` is shown
    """

    def __class_getitem__(cls, parameters):
        return GenericAlias(cls, parameters)


cdef class Field(Part):
    """A line: name and value. `value` is called with the capability; a fixed value is used as it is."""

    def __init__(self, str name, value):
        self.names, self.forms = (name,), ("",)
        if callable(value):
            self.read = value
        else:
            self.fixed = value


cdef class Fields(Part):
    """Lines whose values are read together: their names, and what returns a tuple of so many values, or None."""

    def __init__(self, str names, read):
        self.names, _, self.forms = zip(*[name.partition(":") for name in names.split()])
        self.read = read


cdef class Lines(Part):
    """Lines whose names and number are not known in advance. `read` returns them; `name` is their place."""

    def __init__(self, str name, read):
        self.names, self.forms = (name,), ("",)
        self.read = read


@cython.final
cdef class Numbers(Part):
    """Lines of numbers that compiled code reads together, as C integers."""

    cdef ReadNumbers read_numbers


cdef Part numbers(str names, ReadNumbers read):
    """Lines of numbers: their names with forms, as for `Fields`, and what fills in so many integers.

    A number HIDDEN is not shown.
    """
    cdef Numbers part = Numbers.__new__(Numbers)
    part.names, _, part.forms = zip(*[name.partition(":") for name in names.split()])
    part.read_numbers = read
    return part


cdef int64_t hundredths(double value) noexcept nogil:
    """A number that is not negative, for the forms `hundredths` and `percent`."""
    return llrint(100 * value)


cdef double MOST_EXACT = 1e15    # a hundred times as much is an integer of 64 bits, and of a double
cdef int64_t UNWRITTEN = INT64_MIN + 1

cdef enum:
    VALUE_ROOM = INT64_ROOM + 8     # of a number with its point, unit and line end

cdef enum Kind:
    # What is shown in a line.
    FIXED           # nothing is read
    WHOLE           # what was read,
    PLACE           # ... one of the values that were,
    LINES           # ... or lines of a name of their own
    NUMBER          # one of the section's numbers

cdef enum Form:
    # How a number is shown.
    PLAIN
    PERCENT
    SECONDS         # from microseconds
    SIZE            # from bytes
    HUNDREDTHS      # from hundredths

FORMS = {"": PLAIN, "percent": PERCENT, "us": SECONDS, "size": SIZE, "hundredths": HUNDREDTHS}

cdef struct Line:
    const char *head        # up to the value, in `heads`
    Py_ssize_t size
    Kind kind
    Py_ssize_t source       # which of the sources has the value
    Py_ssize_t at           # ... and where; of a number: where in `numbers`
    Form form
    PyObject *value         # what is shown, owned by `shown`; NULL: to be written in any case
    int64_t number          # ... of a number; UNWRITTEN: to be written in any case
    Py_ssize_t length       # bytes in `text`; 0: the line is not shown


@cython.final
cdef class Source:
    """What values of a section are read from."""

    cdef object read
    cdef object capability
    cdef Py_ssize_t count       # how many are read together; 0: one
    cdef bint has_lines         # what is read are lines
    cdef ReadNumbers read_numbers   # in place of `read`
    cdef Py_ssize_t first       # of its numbers in those of the section


cdef class Section:
    """A section: its title, what its lines are read from, and the lines.

    title, name  the name is the title in lower case, as requests have it
    """

    cdef readonly str title
    cdef readonly str name
    cdef list sources       # of objects
    cdef object read        # reads them all: a list
    cdef list number_sources
    cdef int64_t *numbers   # what those have filled in
    cdef bytes heads        # all lines up to their values
    cdef Line *table
    cdef Py_ssize_t count
    cdef list shown         # the values in `text`
    cdef char *text         # what was written last: the lines, one after the other
    cdef Py_ssize_t length
    cdef Py_ssize_t room    # bytes allocated for it

    def __init__(self, str title, order, parts):
        """`parts`: (capability, part). `order`: names in order; others come last."""
        cdef Part part
        cdef Source source
        cdef Kind kind
        cdef Py_ssize_t at, first, count = 0
        self.title = title
        self.name = title.lower()
        self.sources, self.number_sources, self.shown = [], [], []
        places = {name: place for place, name in enumerate(order)}
        found = []
        for capability, part in parts:
            kind = kind_of(part)
            first = count if kind == NUMBER else 0
            for at, (name, form) in enumerate(zip(part.names, part.forms)):
                text = "" if kind == LINES else f"{name}:{part.fixed}\r\n" if kind == FIXED else f"{name}:"
                found.append((
                    places.get(name, len(places)), text.encode(), kind, len(self.sources), first + at, FORMS[form]
                ))
            if kind == FIXED:
                continue
            source = Source.__new__(Source)
            source.read, source.capability = part.read, capability
            source.has_lines = kind == LINES
            source.count = len(part.names) if kind == PLACE else 0
            if kind == NUMBER:
                source.read_numbers, source.first = (<Numbers>part).read_numbers, first
                self.number_sources.append(source)
                count += len(part.names)
            else:
                self.sources.append(source)
        self.read = reader_of(self.sources)
        self.numbers = <int64_t *>PyMem_Malloc(<size_t>(count + 1) * sizeof(int64_t))
        if self.numbers is NULL:
            raise MemoryError
        found.sort(key=lambda line: line[0])
        self.lay_out([(f"# {title}\r\n".encode(), FIXED, 0, 0, PLAIN), *(line[1:] for line in found)])

    cdef int lay_out(self, list found) except -1:
        """Fill the table; fixed lines that follow each other are one."""
        cdef Py_ssize_t at
        cdef const char *p
        rows = [found[0]]
        for row in found[1:]:
            if row[1] == FIXED == rows[len(rows) - 1][1]:
                row = (rows.pop()[0] + row[0], FIXED, 0, 0, PLAIN)
            rows.append(row)
        self.heads = b"".join([row[0] for row in rows])
        p = PyBytes_AS_STRING(self.heads)
        self.table = <Line *>PyMem_Malloc(len(rows) * sizeof(Line))
        if self.table is NULL:
            raise MemoryError
        self.count = len(rows)
        for at, (head, kind, source, place, form) in enumerate(rows):
            self.table[at] = Line(p, PyBytes_GET_SIZE(head), kind, source, place, form, NULL, UNWRITTEN, 0)
            p += PyBytes_GET_SIZE(head)
        return 0

    def __dealloc__(self):
        PyMem_Free(self.table)
        PyMem_Free(self.text)
        PyMem_Free(self.numbers)

    cdef list values(self):
        """What the sources say; numbers are kept. Nothing is written before: memory is reported without the text."""
        cdef list values = self.read()
        cdef Source source
        cdef object value
        cdef Py_ssize_t at
        for at in range(PyList_GET_SIZE(self.sources)):
            source = <Source>PyList_GET_ITEM(self.sources, at)
            if source.has_lines:
                values[at] = tuple(values[at])    # it may be an iterator
            elif source.count:
                value = values[at]
                if value is not None and len(<tuple?>value) != source.count:
                    raise ValueError(f"INFO: {len(value)} values for {source.count} names of {source.capability!r}")
        for at in range(PyList_GET_SIZE(self.number_sources)):
            source = <Source>PyList_GET_ITEM(self.number_sources, at)
            source.read_numbers(source.capability, self.numbers + source.first)
        return values

    cdef int write(self, list values, ReplyWriter out) except -1:
        try:
            self.update(values)
        except BaseException:
            self.forget()
            raise
        self.shown = values
        return out.raw_c(self.text, <size_t>self.length)

    cdef int update(self, list values) except -1:
        """Bring `text` up to date: only the values that have changed are written."""
        cdef Line *line = self.table
        cdef const Line *end = line + self.count
        cdef PyObject *read
        cdef Py_ssize_t place = 0
        while line != end:
            if line.kind == NUMBER:
                if line.number != self.numbers[line.at]:
                    self.write_number(place, line, self.numbers[line.at])
            elif line.kind == FIXED:
                if line.value is NULL:
                    self.splice(place, line, 0, line.head, line.size)
                    line.value = <PyObject *>None
            else:
                read = PyList_GET_ITEM(values, line.source)
                if line.kind == PLACE and read is not <PyObject *>None:
                    read = PyTuple_GET_ITEM(<object>read, line.at)
                if read is not line.value:
                    self.write_value(place, line, <object>read)
            place += line.length
            line += 1
        return 0

    cdef int write_number(self, Py_ssize_t place, Line *line, int64_t number) except -1:
        cdef char[VALUE_ROOM] text
        cdef char *end
        if number == HIDDEN:
            self.splice(place, line, 0, NULL, 0)
        else:
            if line.length == 0:
                self.splice(place, line, 0, line.head, line.size)
            end = put_line_end(put_number(text, line.form, number))
            self.splice(place, line, line.size, text, end - text)
        line.number = number
        return 0

    cdef int write_value(self, Py_ssize_t place, Line *line, object read) except -1:
        cdef char[VALUE_ROOM] number
        cdef char *end
        cdef bytes text
        if line.kind == LINES:
            if line.value is NULL or <tuple>read != <tuple>line.value:
                text = b"".join([encoded(each) for each in <tuple>read])
                self.splice(place, line, 0, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        elif line.kind == PLACE and read is None:
            self.splice(place, line, 0, NULL, 0)
        else:
            if line.length == 0:
                self.splice(place, line, 0, line.head, line.size)
            end = put_value(number, line.form, read)
            if end is not NULL:
                self.splice(place, line, line.size, number, end - number)
            else:
                text = encoded(as_text(read))
                self.splice(place, line, line.size, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        line.value = <PyObject *>read
        return 0

    cdef int splice(self, Py_ssize_t place, Line *line, Py_ssize_t kept, const char *p, Py_ssize_t size) except -1:
        """Replace what follows the first `kept` bytes of a line, which starts at `place` of `text`."""
        cdef Py_ssize_t grown = kept + size - line.length
        cdef char *moved
        if grown:
            if self.length + grown > self.room:
                moved = <char *>PyMem_Realloc(self.text, <size_t>(self.length + grown) * 2)
                if moved is NULL:
                    raise MemoryError
                self.text, self.room = moved, (self.length + grown) * 2
            moved = self.text + place + line.length
            memmove(moved + grown, moved, <size_t>(self.length - place - line.length))
            self.length += grown
            line.length += grown
        if size:
            memcpy(self.text + place + kept, p, <size_t>size)
        return 0

    cdef void forget(self) noexcept:
        """Have everything written next time."""
        cdef Py_ssize_t at
        for at in range(self.count):
            self.table[at].value, self.table[at].number = NULL, UNWRITTEN

    def lines(self):
        """The lines, without their ends."""
        return render([self]).decode("utf-8", "surrogateescape").removesuffix("\r\n").split("\r\n")


def render(list sections not None):
    """Sections as INFO shows them."""
    cdef ReplyWriter out = ReplyWriter()
    cdef Section section
    cdef Py_ssize_t at
    cdef list values = [(<Section?>section).values() for section in sections]
    for at in range(PyList_GET_SIZE(sections)):
        if at:
            out.raw_c("\r\n", 2)
        (<Section>PyList_GET_ITEM(sections, at)).write(<list>PyList_GET_ITEM(values, at), out)
    return out.take()


cdef object reader_of(list sources):
    """A function that returns what the sources say, as a list.

    Python calls Python at half of what a call from compiled code costs: `[read0(capability0), read1(capability1)]`.
    """
    cdef Source source
    names = {}
    calls = []
    for at, source in enumerate(sources):
        names[f"read{at}"], names[f"capability{at}"] = source.read, source.capability
        calls.append(f"read{at}(capability{at})")
    return eval(f"lambda: [{', '.join(calls)}]", names)


cdef Kind kind_of(Part part) noexcept:
    if type(part) is Numbers:
        return NUMBER
    if part.read is None:
        return FIXED
    return PLACE if type(part) is Fields else LINES if type(part) is Lines else WHOLE


cdef char *put_value(char *p, Form form, value) except? NULL:
    """A number and the end of its line; returns where they end, or NULL for what is a text, or too large."""
    cdef int is_too_large = 0
    cdef long long number
    cdef double exact
    if PyLong_Check(value):
        number = PyLong_AsLongLongAndOverflow(value, &is_too_large)
        if is_too_large and form != SIZE:
            return NULL
        p = put_size(p, value) if form == SIZE else put_number(p, form, number)
    elif type(value) is float:
        exact = value
        if not 0 <= exact < MOST_EXACT:
            return NULL
        p = put_number(p, PERCENT if form == PERCENT else HUNDREDTHS, hundredths(exact))
    else:
        return NULL
    return put_line_end(p)


cdef inline char *put_line_end(char *p) noexcept nogil:
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline char *put_number(char *p, Form form, int64_t number) noexcept nogil:
    if form == PLAIN:
        if 0 <= number <= 9:      # as most are
            p[0] = <char>(c'0' + number)
            return p + 1
        return p + put_int64(p, number)
    if form == SECONDS:
        p += put_int64(p, number // 1_000_000)
        p[0] = c'.'
        put_digits(p + 1, <uint64_t>(number % 1_000_000), 6)
        return p + 7
    if form == SIZE:
        return put_size(p, <double>number)
    p = put_hundredths(p, number)
    if form == PERCENT:
        p[0] = c'%'
        p += 1
    return p


cdef inline char *put_hundredths(char *p, int64_t number) noexcept nogil:
    """A number that is not negative, with two decimals; returns the end."""
    p += put_int64(p, number // 100)
    p[0] = c'.'
    put_pair(p + 1, <uint32_t>(number % 100))
    return p + 3


cdef char *put_size(char *p, double size) noexcept nogil:
    """Human-readable bytes: `512B`, `1.50K`, `2.00G`; returns the end."""
    cdef const char *units = "BKMGTP"
    cdef int power = 0
    if size < 1024:
        p += put_int64(p, <int64_t>size)
    else:
        while size >= 1024 and power < 5:
            size /= 1024
            power += 1
        p = put_hundredths(p, llrint(100 * size))
    p[0] = units[power]
    return p + 1


cdef str as_text(value):
    """What is shown of a value that `put_value` leaves."""
    return value if type(value) is str else f"{value:.2f}" if type(value) is float else str(value)


cdef bytes encoded(str line):
    """A text and the end of its line."""
    return line.encode("utf-8", "surrogateescape") + b"\r\n"


def human_size(double size):
    """Human-readable bytes: `512B`, `1.50K`, `2.00G`."""
    cdef char[VALUE_ROOM] text
    return text[:put_size(text, size) - text].decode("ascii")


def ratio(double part, double whole):
    """part / whole; 0 if `whole` is zero."""
    return part / whole if whole else 0.0
