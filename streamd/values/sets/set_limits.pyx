# cython: language_level=3
"""SetLimits: the settings of sets, copied for quick access. What changes the form of a set is in set_value.pyx."""

cimport cython

from streamd.core.context cimport Context

from streamd.settings.declarations import declare, integer

__all__ = ["SetLimits"]

MAX_INTEGERS = 512
MAX_MEMBERS = 128
MAX_BYTES = 64

declare(
    "Sets",
    integer(
        "set-max-intset-entries", MAX_INTEGERS, apply="refresh",
        doc="A set of more integers is a hash table; up to that it is sorted integers, which take less memory.",
    ),
    integer(
        "set-max-listpack-entries", MAX_MEMBERS, apply="refresh",
        doc="A set of more members, not all of them integers, is a hash table; up to that it is one listpack.",
    ),
    integer(
        "set-max-listpack-value", MAX_BYTES, apply="refresh",
        doc="In bytes; a set with a longer member is a hash table, too.",
    ),
)  # fmt: skip


@cython.final
cdef class SetLimits(Capability):
    """How large sets may be that are not hash tables."""

    def __init__(self, host):
        self.host = host
        self.max_integers = MAX_INTEGERS
        self.max_members = MAX_MEMBERS
        self.max_bytes = MAX_BYTES

    def apply_settings(self):
        self.max_integers = self.host.config.set_max_intset_entries
        self.max_members = self.host.config.set_max_listpack_entries
        self.max_bytes = self.host.config.set_max_listpack_value


cdef SetLimits BUILT_IN = SetLimits(None)


cdef SetLimits limits_in(object context):
    cdef object found
    if context is None:
        return BUILT_IN
    found = (<Context?>context).parts.get(SetLimits)
    return BUILT_IN if found is None else <SetLimits>found
