# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyRecord: one key of a database, with its value, expiry and accesses."""

cimport cython

from streamd.keyspace.value_type cimport type_at

__all__ = ["ACCESS_MODES", "KeyRecord"]

ACCESS_MODES = {"time": ACCESS_TIME, "frequency": ACCESS_FREQUENCY, "changes": ACCESS_CHANGES}
"""AccessMode, for Python."""


@cython.final
@cython.no_gc
cdef class KeyRecord:
    """One key of a database with its value, expiry and accesses. Read-only for Python; owned by its database."""

    def __cinit__(self):
        self.expire_at_ms = -1
        self.deadline_at = -1
        self.uses = NEW_USES

    @property
    def type(self):
        """The type of the value."""
        return type_at(self.type_number)

    @property
    def encoding(self):
        """How Redis would store the value, as OBJECT ENCODING says it."""
        return type_at(self.type_number).encoding(self.key, self.value, self.hint)
