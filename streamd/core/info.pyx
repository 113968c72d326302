# cython: language_level=3, boundscheck=False, wraparound=False
"""What a capability contributes to INFO: lines of sections, as `Capability.info` declares them.

    info = {
        "clients": (
            Field("connected_clients", lambda self: len(self.host.clients)),     a name and its getter
            Field("cluster_connections", 0),                                     a fixed value
        ),
        "hotkeys": (
            Fields(lambda self: self.session, (Field(...), ...)),                fields of one object, looked up once;
        ),                                                                       without that object they are left out
        "commandstats": (Lines("commands", lambda self: self.command_lines()),), any number of lines
    }

observe/info.py combines the sections of all capabilities, in Redis's order. Exporters and job libraries request INFO
all the time, so the lines of a section are written here, into one buffer: an integer without a Python string, and a
line with a fixed value as it was formatted when it was declared.
"""

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Free
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.protocol.reply cimport ReplyWriter

from types import GenericAlias

__all__ = ["Field", "Fields", "Item", "Lines", "Section", "human_size", "ratio"]

cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char form, int precision, int flags, int *kind) except NULL
    bint PyUnicode_IS_ASCII(object text)
    object PyUnicode_FromFormat(const char *form, ...)


cdef class Item:
    """What INFO shows in one place of a section, of a subject: a capability, or what it has for a group of fields."""

    cdef readonly str name

    def __class_getitem__(cls, parameters):
        return GenericAlias(cls, parameters)

    cdef int write(self, subject, ReplyWriter out) except -1:
        raise NotImplementedError


cdef class Field(Item):
    """A line of INFO: name and value. `value` is called with the subject; a fixed value is used as it is."""

    cdef object value
    cdef bytes head         # the line up to the value; with a fixed value, the line
    cdef bint is_fixed

    def __init__(self, str name, value):
        self.name = name
        self.value = value
        self.is_fixed = not callable(value)
        self.head = f"{name}:{value}\r\n".encode() if self.is_fixed else f"{name}:".encode()

    cdef int write(self, subject, ReplyWriter out) except -1:
        cdef int is_too_large
        cdef long long number
        cdef char *p
        if self.is_fixed:
            return out.raw(self.head)
        value = self.value(subject)
        if type(value) is not int:
            out.raw(self.head)
            return write_line(value if type(value) is str else str(value), out)
        number = PyLong_AsLongLongAndOverflow(value, &is_too_large)
        if is_too_large:
            out.raw(self.head)
            return write_line(str(value), out)
        out.raw(self.head)
        p = out.grow(INT64_ROOM + 2)
        n = put_int64(p, number)
        p[n] = c'\r'
        p[n + 1] = c'\n'
        out.length += n + 2
        return 0


cdef class Lines(Item):
    """Lines whose names and number are not known in advance. `read` is called with the subject.

    name  represents them in the order of the section
    """

    cdef object read

    def __init__(self, str name, read):
        self.name = name
        self.read = read

    cdef int write(self, subject, ReplyWriter out) except -1:
        for line in self.read(subject):
            write_line(line, out)
        return 0


cdef class Fields:
    """Fields of an object that is looked up once for all of them.

    find    called with the capability; returns the object that the fields are called with, or None to leave them out
    fields  the fields
    """

    cdef readonly object find
    cdef readonly tuple fields

    def __init__(self, find, tuple fields):
        self.find = find
        self.fields = fields

    def __class_getitem__(cls, parameters):
        return GenericAlias(cls, parameters)


cdef class Section:
    """A section: its title, and what its lines are read from.

    subjects  each is called once, and returns what items are called with; None leaves them out
    items     (index of the subject, item), in the order of INFO
    """

    cdef readonly str title
    cdef readonly str name      # the title in lower case, as requests have it
    cdef list subjects
    cdef list items

    def __init__(self, str title, list subjects, list items):
        self.title = title
        self.name = title.lower()
        self.subjects = subjects
        self.items = items

    cpdef bytes text(self):
        """The section as INFO shows it."""
        # Subjects first: what they report of memory is without this text.
        cdef Item item
        cdef Py_ssize_t at
        cdef list subjects = [find() for find in self.subjects]
        cdef ReplyWriter out = ReplyWriter()
        write_line(f"# {self.title}", out)
        for at, item in self.items:
            subject = subjects[at]
            if subject is not None:
                item.write(subject, out)
        return out.take()

    def lines(self):
        """The lines, without their ends."""
        return self.text().decode("utf-8", "surrogateescape").removesuffix("\r\n").split("\r\n")


cdef int write_line(str text, ReplyWriter out) except -1:
    cdef Py_ssize_t size
    cdef const char *p
    if PyUnicode_IS_ASCII(text):
        p = PyUnicode_AsUTF8AndSize(text, &size)
        return out.raw_parts(p, <size_t>size, "\r\n", 2)
    out.raw(text.encode("utf-8", "surrogateescape"))
    return out.raw_c("\r\n", 2)


def human_size(size):
    """Human-readable bytes: `512B`, `1.50K`, `2.00G`."""
    cdef const char *units = "BKMGTP"
    cdef double value
    cdef int power = 0
    cdef char *digits
    if size < 1024:
        return f"{size}B"
    value = size
    while value >= 1024 and power < 5:
        value /= 1024
        power += 1
    digits = PyOS_double_to_string(value, c'f', 2, 0, NULL)
    try:
        return PyUnicode_FromFormat("%s%c", digits, <int>units[power])
    finally:
        PyMem_Free(digits)


def ratio(double part, double whole):
    """part / whole; 0 if `whole` is zero."""
    return part / whole if whole else 0.0
