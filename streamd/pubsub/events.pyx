# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyEvents: publishes events of keys on channels named after key, event, or both (notify-keyspace-events)."""

from streamd.core.capability cimport Capability
from streamd.keyspace.listener cimport (
    EVENT_EVICTED, EVENT_EXPIRED, EVENT_GENERIC, EVENT_HASH, EVENT_KEY_MISS, EVENT_LIST, EVENT_NEW, EVENT_OVERWRITTEN,
    EVENT_SET, EVENT_SORTED_SET, EVENT_STREAM, EVENT_STRING, EVENT_TYPE_CHANGED,
)
from streamd.pubsub.hub import Hub

__all__ = ["KeyEvents"]

EVENT_LETTERS = {
    "g": EVENT_GENERIC, "$": EVENT_STRING, "t": EVENT_STREAM, "x": EVENT_EXPIRED, "e": EVENT_EVICTED,
    "m": EVENT_KEY_MISS, "n": EVENT_NEW, "o": EVENT_OVERWRITTEN, "c": EVENT_TYPE_CHANGED, "l": EVENT_LIST,
    "s": EVENT_SET, "h": EVENT_HASH, "z": EVENT_SORTED_SET,
}  # fmt: skip
"""Classes of events by their letters in the setting; the only other one, for modules, never happens here."""
APART = frozenset("mnoc")
"""Letters that `A` does not include."""


cdef class KeyEvents(Capability):
    """Publishes keyspace events."""

    def __init__(self, host not None):
        self.config = host.config
        self.hub = host.get(Hub)
        self.key_changes = host.dispatcher.key_changes
        self.key_changes.publisher = self

    def apply_settings(self):
        """Follow the setting notify-keyspace-events."""
        given = set(self.config.notify_keyspace_events)
        self.by_key = "K" in given
        self.by_event = "E" in given
        self.key_changes.wanted = 0
        if self.by_key or self.by_event:
            for letter, kind in EVENT_LETTERS.items():
                if letter in given or ("A" in given and letter not in APART):
                    self.key_changes.wanted |= kind

    cdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        """Publish an event of an enabled class."""
        if not self.hub.has_listeners():
            return 0
        if self.by_key:
            self.hub.publish(b"__keyspace@%d__:%b" % (db.index, key), event)
        if self.by_event:
            self.hub.publish(b"__keyevent@%d__:%b" % (db.index, event), key)
        return 0
