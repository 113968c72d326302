# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reading RDB: a stream of bytes into databases, a RESTORE payload into a value.

What is read was written by Redis 5 to 8.10, or by streamd, or by an attacker: every byte is checked
before it is relied on, and the first error ends the read with a CorruptFileError.

    reader = RdbReader(file, databases, options=LoadOptions(...), name="dump.rdb", size=...)
    for done in reader.steps():       # bytes read so far; between two steps there is time for clients
        ...
    reader.aux, reader.keys_loaded, reader.end_offset ...

    window.pyx         the bytes at hand; lengths and strings
    value_loader.pyx   the value of a key, read by its type
    module_data.pyx    skipping what modules of Redis have written
    this module        the parts of a file, keys into databases; payloads

Values of types that streamd does not support make the load fail (UnsupportedValueError). Those of modules have a known
layout: they are skipped with `skip_unsupported`, which logs their keys, and when they have expired. Other data of
modules and cluster hints are always skipped. Libraries of functions are collected, for the caller to load. The
databases may be half filled after an error: the caller discards them.

Callers: snapshot.load_file, the loading of an AOF's base, `streamd check-rdb`, RESTORE.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord, new_record, put_value, set_accessed
from streamd.persistence.rdb.codes cimport (
    OP_AUX, OP_END, OP_EXPIRE, OP_EXPIRE_MS, OP_FREQUENCY, OP_FUNCTION, OP_FUNCTION_PRERELEASE, OP_HASH_TEMPLATE,
    OP_IDLE, OP_KEY_METADATA, OP_MODULE_AUX, OP_RESIZE, OP_SELECT, OP_SLOT_INFO, TYPE_MODULE,
)
from streamd.persistence.rdb.module_data cimport module_name, skip_module_data
from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.persistence.rdb.window cimport Window, load_le

from streamd.errors import UnsupportedValueError, one_line
from streamd.keyspace.value_type import registered_types
from streamd.persistence.rdb.crc64 import crc64
from streamd.persistence.rdb.format import NEWEST_VERSION, TYPE_NAMES, LoadOptions

__all__ = ["PayloadError", "PayloadReader", "RdbReader", "restore_libraries", "restore_value"]

cdef enum:
    FOOTER = 10                # bytes after the value in a payload: version and checksum
    DEFAULT_BUDGET = 1 << 20
    SLOTS = 16384


class PayloadError(Exception):
    """A payload whose version or checksum is wrong."""


@cython.final
cdef class RdbReader:
    """Reads one RDB stream.

    source     an object with `readinto(buffer) -> int`, such as a file opened without buffering, or bytes
    databases  Database objects, by index, that get the keys; None: everything is checked and nothing is kept
    options    LoadOptions
    name       of the file, for errors
    size       upper bound of the source's bytes, if known: a length beyond it is detected at once
    """

    # --- What is being read
    cdef Window window
    cdef list loaders                         # ValueLoader by type byte; None: a type that is not supported
    cdef object options
    cdef int64_t now_ms                       # of the options
    cdef readonly list databases
    cdef uint64_t database_count              # those that there are; 0: any, since nothing is kept
    cdef Database db
    cdef int db_index
    # --- What was read
    cdef readonly int version                 # of the format
    cdef readonly dict aux                    # auxiliary fields: name -> value, both text
    cdef readonly list libraries              # code of the libraries of functions, as bytes
    cdef readonly uint64_t keys_loaded
    cdef readonly uint64_t keys_expired       # left out because they had expired
    cdef readonly uint64_t keys_skipped       # left out because of their type
    cdef readonly uint64_t keys_with_expiry   # all of them, including expired ones
    cdef uint64_t counts[256]                 # of keys, by type byte
    cdef readonly int64_t end_offset          # where the RDB stream ended; -1: not yet
    cdef readonly object checksum             # "ok", "none" (not written, or not verified); None: not yet
    cdef readonly bytes key                   # the key being read, or the last one read

    def __cinit__(self):
        self.end_offset = -1

    def __init__(self, source, databases=None, *, options=None, str name="", size=None):
        self.options = LoadOptions() if options is None else options
        self.databases = None if databases is None else list(databases)
        if self.databases is not None and not self.databases:
            raise ValueError("at least one database")
        self.database_count = self.options.database_count if self.databases is None else len(self.databases)
        self.window = Window(source, name, size)
        self.loaders = [None] * 256
        for type in registered_types():
            loader = type.loader(self.window, self.options) if type.rdb_types else None
            for number in type.rdb_types:
                self.loaders[number] = loader
        self.aux = {}
        self.libraries = []
        self.now_ms = self.options.now_ms

    @property
    def offset(self):
        """Bytes read so far."""
        return self.window.position()

    @property
    def types(self):
        """How many keys there are of each type, by its name."""
        found = {}
        for number in range(256):
            if self.counts[number]:
                loader = self.loaders[number]
                name = TYPE_NAMES[number] if loader is None else loader.type.name.decode()
                found[name] = found.get(name, 0) + self.counts[number]
        return found

    @property
    def rest(self):
        """What has been taken from the source but not read: at the end, some of what follows the RDB stream."""
        return PyBytes_FromStringAndSize(<const char *>self.window.at, self.window.end - self.window.at)

    @property
    def size(self):
        """Bytes of the stream, or more; -1: not known."""
        return self.window.size

    @property
    def name(self):
        """The name of the file, for errors."""
        return self.window.name

    def take_over(self, context not None):
        """What was loaded apart is now the data of the server with this context, see LoadOptions."""
        for loader in {id(each): each for each in self.loaders if each is not None}.values():
            loader.take_over(context)

    # --- The parts of a file ------------------------------------------------------------------------------------------

    def load(self):
        """Read all of it in one go."""
        for _ in self.steps():
            pass

    def steps(self, uint64_t budget=DEFAULT_BUDGET):
        """Read all of it: an iterator over the number of bytes read so far, one after each `budget` of them or so.

        Raises CorruptFileError, below it UnsupportedValueError, MemoryError, and what the source raises.
        """
        cdef int opcode
        cdef ValueLoader loader
        cdef int64_t expire_at_ms = -1
        cdef int64_t idle_s = -1
        cdef int uses = -1
        cdef int64_t offset
        cdef uint64_t number
        cdef bint expired
        self.window.sums = self.options.checksum
        self.window.pause_at = self.window.position() + budget
        self.read_head()
        self.select(0)
        while True:
            offset = <int64_t>self.window.position()
            opcode = self.window.get_byte()
            if opcode == OP_EXPIRE_MS:
                expire_at_ms = as_expiry(<int64_t>self.window.get_le(8))
            elif opcode == OP_EXPIRE:
                expire_at_ms = as_expiry(<int64_t><int32_t>self.window.get_le(4) * 1000)
            elif opcode == OP_IDLE:
                idle_s = <int64_t>self.window.get_small(INT64_MAX // 1000, "an idle time")
            elif opcode == OP_FREQUENCY:
                uses = self.window.get_byte()
            elif opcode == OP_SELECT:
                number = self.window.get_count()
                if self.database_count and number >= self.database_count:
                    self.window.corrupt(f"a database below {self.database_count}", str(number), offset)
                self.select(<int>(number & 0x7FFFFFFF))
            elif opcode == OP_RESIZE:
                self.window.get_count()
                self.window.get_count()
            elif opcode == OP_AUX:
                name = self.window.get_bytes()
                self.aux[name.decode("latin-1")] = self.window.get_bytes().decode("latin-1")
            elif opcode == OP_FUNCTION:
                self.libraries.append(self.window.get_bytes())
            elif opcode == OP_FUNCTION_PRERELEASE:
                self.window.corrupt(
                    "something that a release of Redis writes", "functions of a pre-release of 7.0", offset
                )
            elif opcode == OP_HASH_TEMPLATE:
                self.window.corrupt(names_of_types("s and ") + "s", "templates of hashes (Redis 8.10)", offset)
            elif opcode == OP_MODULE_AUX:
                number = self.window.get_count()
                skip_module_data(self.window)
                self.options.log(f"Data of module {module_name(number)} is left out")
            elif opcode == OP_SLOT_INFO:  # of the next keys: slot, how many, how many of them expire
                self.window.get_small(SLOTS - 1, "a slot")
                self.window.get_count()
                self.window.get_count()
            elif opcode == OP_KEY_METADATA:
                number = self.window.get_count()
                while number:
                    self.window.skip(4)
                    skip_module_data(self.window)
                    number -= 1
            elif opcode == OP_END:
                break
            else:
                self.key = self.window.get_bytes()
                loader = self.loaders[opcode]
                expired = expire_at_ms != -1 and expire_at_ms < self.now_ms
                if loader is None:
                    self.meet_unsupported(opcode, offset, expired)
                else:
                    steps = loader.begin(opcode)
                    if steps is not None:
                        for _ in steps:
                            yield self.window.position()
                            self.window.pause_at = self.window.position() + budget
                self.keep_key(opcode, loader, expire_at_ms, idle_s, uses, expired, offset)
                expire_at_ms = idle_s = uses = -1
                if self.window.is_step_over():
                    yield self.window.position()
                    self.window.pause_at = self.window.position() + budget
        self.read_end()
        yield self.window.position()

    cdef int read_head(self) except -1:
        cdef bytes head
        self.window.need(9)
        head = self.window.at[:9]
        if head[:5] != b"REDIS":
            self.window.corrupt("the magic REDIS", repr(head[:5]))
        if not head[5:].isdigit():
            self.window.corrupt("a version of four digits", repr(head[5:]), 5)
        self.version = int(head[5:])
        if not 1 <= self.version <= NEWEST_VERSION:
            self.window.corrupt(f"an RDB format version of 1 to {NEWEST_VERSION}", str(self.version), 5)
        self.window.at += 9
        return 0

    cdef int read_end(self) except -1:
        """Compare the checksum."""
        cdef uint64_t found
        cdef uint64_t expected
        self.window.sum_up()
        self.checksum = "none"
        if self.version >= 5:
            expected = self.window.crc
            found = self.window.get_le(8)
            self.window.summed = self.window.at
            if self.window.sums and found:
                if found != expected:
                    self.window.corrupt(
                        f"the checksum {expected:016x}", f"{found:016x}", <int64_t>self.window.position() - 8
                    )
                self.checksum = "ok"
        self.end_offset = <int64_t>self.window.position()
        return 0

    cdef int select(self, int index) except -1:
        self.db_index = index
        self.db = None if self.databases is None else <Database?>self.databases[index]
        return 0

    cdef int meet_unsupported(self, int type, int64_t offset, bint expired) except -1:
        """Skip a value of a type that streamd does not support, or refuse it."""
        name = TYPE_NAMES.get(type)
        if name is None:
            self.window.corrupt("a type or an opcode", str(type), offset)
        dropped = expired and self.options.drop_expired
        if type != TYPE_MODULE or not (self.options.skip_unsupported or dropped or self.database_count == 0):
            raise UnsupportedValueError(self.window.name, offset, self.db_index, self.key, name)
        self.window.get_count()
        skip_module_data(self.window)
        if self.databases is not None and not dropped:
            self.keys_skipped += 1
            self.options.log(f"Key '{one_line(self.key)}' of database {self.db_index} is left out: it is a {name}")
        return 0

    cdef int keep_key(
        self, int type, ValueLoader loader, int64_t expire_at_ms, int64_t idle_s, int uses, bint expired, int64_t offset
    ) except -1:
        """Put the value read into its database, unless it has expired. loader: None if its type is not supported."""
        cdef KeyRecord *record
        value = None
        if loader is not None:
            value = loader.value
            loader.value = None
        self.counts[type] += 1
        self.keys_with_expiry += expire_at_ms != -1
        if expired and (self.options.drop_expired or self.db is None):
            self.keys_expired += 1
            if self.db is not None:
                self.options.dropped(self.db.index, self.key)
                return 0
        if value is None:
            return 0
        self.keys_loaded += 1
        if self.db is None:
            return 0
        record = new_record(self.key)
        put_value(record, value, loader.type.number)
        try:
            self.db.insert(self.key, record)
        except KeyError:
            self.window.corrupt("another key", f"'{one_line(self.key)}' a second time", offset)
        set_accessed(record, max(<int64_t>0, self.now_ms - (idle_s * 1000 if idle_s > 0 else 0)))
        if uses >= 0:
            record.uses = <unsigned char>uses
        if expire_at_ms != -1:
            self.db.set_deadline(record, expire_at_ms)
        self.db.signal_ready(self.key)
        return 0

    # --- Payloads -----------------------------------------------------------------------------------------------------

    cdef object read_value(self):
        """The value that all of the bytes together represent."""
        cdef int type = self.window.get_byte()
        cdef ValueLoader loader = self.loaders[type]
        if loader is None:
            self.window.corrupt("a " + names_of_types(" or a "), TYPE_NAMES.get(type, f"type {type}"), 0)
        loader.is_strict = True
        for _ in loader.begin(type) or ():
            pass
        value = loader.value
        loader.value = None
        return value

    cdef list read_libraries(self):
        """The libraries of functions that all of the bytes together represent."""
        cdef int opcode
        while self.window.at < self.window.end:
            opcode = self.window.get_byte()
            if opcode != OP_FUNCTION:
                self.window.corrupt("a library of functions", f"type {opcode}", <int64_t>self.window.position() - 1)
            self.libraries.append(self.window.get_bytes())
        return self.libraries


cdef str names_of_types(str between):
    return between.join(sorted([type.name.decode() for type in registered_types() if type.rdb_types]))


cdef inline int64_t as_expiry(int64_t at_ms) noexcept:
    """An expiry as a database may hold it: -1 means none, and anything below has long passed."""
    return 0 if at_ms < -1 else at_ms


@cython.final
cdef class PayloadReader:
    """Reads payloads of DUMP.

    options  LoadOptions
    """

    cdef RdbReader reader      # of the payloads before; None: the first one, or the last one was damaged
    cdef object options

    def __init__(self, options=None):
        self.options = options

    def read(self, bytes payload not None):
        """The value of a payload. O(bytes).

        Raises PayloadError when the version or checksum is wrong, CorruptFileError for anything else. A checksum of
        zero means none, as in Redis 8.6.
        """
        cdef Py_ssize_t size = content_size(payload)
        cdef RdbReader reader = self.reader
        self.reader = None
        if reader is None:
            reader = RdbReader(b"", options=self.options)
        reader.window.show(payload, size)
        value = reader.read_value()
        reader.window.show(b"", 0)
        self.reader = reader
        return value


def restore_value(bytes payload not None, options=None):
    """The value of one payload: see PayloadReader."""
    return PayloadReader(options).read(payload)


def restore_libraries(bytes payload not None):
    """The code of the libraries in a payload of FUNCTION DUMP, as a list of bytes. O(bytes).

    Raises PayloadError when the version or checksum is wrong, CorruptFileError for anything else.
    """
    return RdbReader(payload[:content_size(payload)]).read_libraries()


cdef Py_ssize_t content_size(bytes payload) except -1:
    """The size of a payload without its footer, which is checked. Raises PayloadError."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef const uint8_t *footer = <const uint8_t *>PyBytes_AS_STRING(payload) + size - FOOTER
    cdef uint64_t crc
    if size < FOOTER:
        raise PayloadError("shorter than its footer")
    if load_le(footer, 2) > <uint64_t>NEWEST_VERSION:
        raise PayloadError(f"format version {load_le(footer, 2)}")
    crc = load_le(footer + 2, 8)
    if crc and crc != <uint64_t>crc64(memoryview(payload)[:size - 8]):
        raise PayloadError("wrong checksum")
    return size - FOOTER
