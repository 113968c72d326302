# cython: language_level=3, boundscheck=False, wraparound=False
"""StreamType: streams as a type of value."""

cimport cython

from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.streams.loading cimport StreamLoader
from streamd.values.streams.recreation cimport rewrite_stream
from streamd.values.streams.saving cimport put_stream
from streamd.values.streams.stream cimport Stream

from streamd.digests import chain
from streamd.integers import UINT64_MAX
from streamd.values.streams.forms import RDB_TYPES, rdb_type_of

__all__ = ["StreamType"]

cdef enum:
    STREAM_BYTES = 512  # what a stream has beside the blocks that it counts itself: Python objects of fixed size
    ENTRIES_AT_A_TIME = 1000


@cython.final
cdef class StreamType(ValueType):
    """Streams. Most of a stream's memory is counted where it is allocated."""

    def __init__(self):
        super().__init__(
            b"stream", Stream, frees_slowly=True, rdb_types=RDB_TYPES, annotations=(b"consumer", b"iids"),
            families=tuple([
                "streamd.values.streams." + name for name in (
                    "xadd_xtrim", "xdel", "xrange", "xread", "xgroup", "xack", "xpending", "xclaim", "streamd_split",
                    "streamd_counts", "streamd_history", "streamd_redrive", "xinfo",
                )
            ]),
        )

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = 0  # all in one class: they are only counted
        return STREAM_BYTES

    cpdef Py_ssize_t weight(self, object value) except -1:
        return STREAM_BYTES

    cpdef long long memory(self, object value) except -1:
        return (<Stream?>value).memory_usage()

    cpdef object copy(self, object value):
        return (<Stream?>value).copy()

    cpdef int rdb_type(self, object value, int version) except -1:
        return rdb_type_of(version)

    cpdef int save(self, object writer, object value) except -1:
        return put_stream(<RdbWriter?>writer, rdb_type_of((<RdbWriter>writer).version), <Stream?>value)

    cpdef object loader(self, object window, object options):
        return StreamLoader(self, window, options)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        return rewrite_stream(<CommandWriter?>writer, key, <Stream?>value)

    cpdef object restore_state(self, object db, list args, bytes kind, list numbers):
        """Annotations: `consumer 1700000000000 -1`: its seen and active time; `iids 5 2`: IIDs given, duplicates.

        The command is XCLAIM or XGROUP CREATECONSUMER for a consumer, any command on the stream for the other.
        """
        cdef Py_ssize_t at = 2 if args and args[0].upper() == b"XGROUP" else 1     # where the key is
        if len(args) <= at or len(numbers) != 2:
            return
        stream = db.peek(args[at])
        if type(stream) is not Stream:
            return
        if kind == b"iids":
            stream.iids_added, stream.iids_duplicates = numbers
            return
        if len(args) < at + 3:
            return
        group_name, name = args[at + 1], args[at + 2]
        group = stream.groups.get(group_name)
        consumer = None if group is None else group.consumers.get(name)
        if consumer is not None:
            consumer.seen_ms, consumer.active_ms = numbers

    def metrics(self, host):
        from streamd.values.streams.stream_metrics import StreamMetrics

        return StreamMetrics(host)

    def history(self, host):
        from streamd.values.streams.stream_samples import StreamHistory

        return StreamHistory(host)

    cpdef bytes digest(self, object value, bytes digest):
        cdef Stream stream = <Stream?>value
        digest = chain(digest, b"\0\0\0\x06")
        first = (0, 0)
        while entries := stream.range(first, count=ENTRIES_AT_A_TIME):
            for (ms, seq), fields in entries:
                digest = chain(digest, b"%d.%d" % (ms, seq))
                for name, content in fields:
                    digest = chain(chain(digest, name), content)
            if len(entries) < ENTRIES_AT_A_TIME or (ms, seq) == (UINT64_MAX, UINT64_MAX):
                break
            first = (ms, seq + 1) if seq < UINT64_MAX else (ms + 1, 0)
        return digest
