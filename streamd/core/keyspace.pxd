# cython: language_level=3
"""What the server does when keys change. See keyspace.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport ClientHost
from streamd.core.effects cimport Effects
from streamd.engine.listener cimport KeyspaceListener


cdef class Keyspace(KeyspaceListener):
    cdef ClientHost host
    cdef Effects effects
    cdef public Capability publisher      # receives the events of classes in `wanted`; None: there is none
    cdef readonly tuple observers         # of Capability: those that want to know of changed keys now, in order
    cdef bytes removed                    # the key that was removed last, until it is reported as touched
