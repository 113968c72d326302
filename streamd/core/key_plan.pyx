# cython: language_level=3, boundscheck=False, wraparound=False
"""Plan: where the keys of a command's requests are, and how they are accessed, compiled from its declaration.

Most specifications are a fixed place; the others are evaluated for each request. Asked before a request runs: by the
permissions of restricted users, and by the routing of a cluster.
"""

from libc.stdlib cimport calloc, free

__all__ = ["Plan"]

cdef dict known_flags = {}       # cache of access_of: one entry per spelling in declarations


cdef int access_of(str flags) except -1:
    """The access that the flags of a key specification need: a set of READ and WRITE."""
    cdef object known = known_flags.get(flags)
    cdef set words
    if known is None:
        words = set(flags.split())
        known = (READ if "access" in words else 0) | (WRITE if words & {"insert", "update", "delete"} else 0)
        known_flags[flags] = known
    return known


cdef class Plan:
    """Keys and channels of one command.

    shard_channels  whether shard channels count as keys: they belong to slots, too
    """

    def __cinit__(self, command, bint shard_channels=False):
        cdef KeyRange *each
        self.specs = [spec for spec in command.keys if spec.names_keys or shard_channels]
        self.key_flags = command.key_flags
        if command.channels is not None:
            self.first_channel = command.channels.first
            self.last_channel = command.channels.last
            self.channels_are_patterns = command.channels.are_patterns
        if not self.specs:
            return
        self.ranges = <KeyRange *>calloc(len(self.specs), sizeof(KeyRange))
        if self.ranges is NULL:
            raise MemoryError("no memory for the keys of a command")
        for spec in self.specs:
            each = &self.ranges[self.count]
            self.count += 1
            if spec.is_fixed:
                each.first = spec.begin
            each.last = spec.last
            each.step = spec.step
            is_variable = self.key_flags is not None and "variable_flags" in spec.flags.split()
            each.access = ASKED_EACH_TIME if is_variable else access_of(spec.flags)
        if self.count == 1 and not self.ranges.last and not self.first_channel:
            self.only = self.ranges.first

    def __dealloc__(self):
        free(self.ranges)

    cdef int find_keys(self, list args) except -1:
        """Find the keys of a request; return how many ranges were found: all, or none when it does not match them.

        The same keys as those of spec.keys_of. A request of the wrong form fails before it reaches a key.
        """
        cdef Py_ssize_t argc = len(args), first, last
        cdef KeyRange *each
        cdef int at
        for at in range(self.count):
            each = &self.ranges[at]
            if each.first:
                first = each.first
                last = first + each.last if each.last >= 0 else argc + each.last
                if first > last or last >= argc:
                    return 0
                each.found_first = first
                each.found_last = last
                each.found_step = each.step
            else:
                positions = self.specs[at].positions(args)
                if positions is None:
                    return 0
                each.found_first = positions.start
                each.found_last = positions.stop - 1
                each.found_step = positions.step
            each.found_access = each.access
            if each.access == ASKED_EACH_TIME:
                each.found_access = access_of(self.key_flags(args))
        return self.count
