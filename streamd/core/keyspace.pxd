# cython: language_level=3
"""Notifications about changed keys. See keyspace.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport ClientHost
from streamd.core.effects cimport Effects
from streamd.engine.listener cimport KeyspaceListener


cdef class Keyspace(KeyspaceListener):
    cdef ClientHost host
    cdef Effects effects
    cdef public Capability publisher      # receives the events of classes in `wanted`; None: there is none
    cdef readonly tuple observers         # of Capability: those currently notified of changed keys, in order
    cdef bytes removed                    # the most recently removed key, until it is reported as touched
