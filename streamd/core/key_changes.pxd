# cython: language_level=3
"""Notifications about changed keys. See key_changes.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport ClientHost
from streamd.core.effects cimport Effects
from streamd.keyspace.listener cimport KeyspaceListener


cdef class KeyChanges(KeyspaceListener):
    cdef ClientHost host
    cdef Effects effects
    cdef public Capability publisher      # receives the events of classes in `wanted`; None: there is none
    cdef readonly tuple observers         # of Capability: those currently notified of changed keys, in order
    cdef bytes removed                    # the most recently removed key, until it is reported as touched
