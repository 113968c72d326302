# cython: language_level=3, boundscheck=False, wraparound=False
"""OutputLimits: client-output-buffer-limit. Clients that do not read are closed at the end of the turn.

A limit is checked when a client's unsent replies exceed `output_watch` of its class. The hard limit is also checked
while a reply is written (`ReplyWriter.set_limit`), so that no reply takes more memory than that.
"""

from libc.stdint cimport INT64_MAX, SIZE_MAX

import logging

from streamd.core.client cimport CLASS_REPLICA, REPLY_BLOCK, STRANGER, Client
from streamd.core.clock cimport monotonic_us

__all__ = ["OutputLimits"]

log = logging.getLogger("streamd")

cdef enum:
    STRANGER_OUTPUT = 1024      # maximum bytes of unsent replies of an unauthenticated client


cdef class OutputLimits(ClientHost):
    """The limits of unsent replies, by client class, and the clients that have exceeded them."""

    def __cinit__(self, *args):
        self.doomed = []

    def set_output_limit(self, int output_class, hard, soft, long long soft_seconds):
        """client-output-buffer-limit of one class (OutputClass, in the order normal, replica, pubsub); 0: no limit.

        `hard` and `soft` may use all 64 bits, more than any memory.
        """
        hard, soft = min(hard, INT64_MAX), min(soft, INT64_MAX)
        self.output_hard[output_class] = hard
        self.output_soft[output_class] = soft
        self.output_soft_us[output_class] = soft_seconds * 1000000
        limits = [limit for limit in (hard, soft) if limit]
        self.output_watch[output_class] = min(limits) + REPLY_BLOCK if limits else SIZE_MAX
        self.output_most[output_class] = hard + REPLY_BLOCK if hard else SIZE_MAX
        for client in self.clients.values():
            if (<Client>client).output_class == output_class:
                (<Client>client).limit_output()

    @property
    def replica_output_limit(self):
        """The bytes of unsent output with which a replica is closed; 0: no limit."""
        return self.output_hard[<int>CLASS_REPLICA]

    cdef int check_output(self, Client client) except -1:
        cdef int kind = client.output_class
        cdef long long size, now_us
        if client.state & STRANGER and client.reply.length > STRANGER_OUTPUT:
            return self.doom(client)
        if self.output_watch[kind] == SIZE_MAX or client.reply.is_cut:
            return 0
        size = client.output_size() - REPLY_BLOCK
        now_us = monotonic_us()
        if not self.output_soft[kind] or size < self.output_soft[kind]:
            client.over_soft_limit_us = 0
        elif client.over_soft_limit_us == 0:
            client.over_soft_limit_us = now_us
        if (self.output_hard[kind] and size >= self.output_hard[kind]) or (
            client.over_soft_limit_us and now_us - client.over_soft_limit_us > self.output_soft_us[kind]
        ):
            self.close_for_output(client)
        return 0

    cdef int close_for_output(self, Client client) except -1:
        log.warning("Client id=%d addr=%s closed for overcoming of output buffer limits.", client.id, client.address)
        self.closed_for_output += 1
        return self.doom(client)

    cdef int doom(self, Client client) except -1:
        """Close a client at the end of the turn, dropping its unsent output.

        Safe to call while iterating over clients.
        """
        client.close_after_reply = True
        client.reply.cut()
        self.doomed.append(client)
        return self.schedule()
