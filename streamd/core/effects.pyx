# cython: language_level=3, boundscheck=False, wraparound=False
"""Effects: the changes of a command or a transaction, as requests that have the same effect wherever they are run.

Handlers say what is propagated (`Context.propagate`); the dispatcher collects it here until the unit ends. Then the
sinks get all effects of the unit together: the append-only file, the increments of a backup, replicas. Each effect
says where it goes. The changes of a server that is a primary leave it in no other way. A replica passes the bytes that
its primary sends on to its own replicas unchanged (replication/apply.pyx); only its files get effects.
"""

cimport cython

from streamd.core.client cimport ClientHost
from streamd.core.context cimport Context

__all__ = ["Effect", "EffectSink", "Effects"]


@cython.final
@cython.freelist(256)
cdef class Effect:
    """One request to be propagated.

    db_index     index of its database
    args         the request; must not be changed any more
    """

    def __init__(self, int db_index, list args not None, bint is_for_replicas=False):
        self.db_index = db_index
        self.args = args
        self.destination = REPLICAS if is_for_replicas else EVERYWHERE


cdef class EffectSink:
    """A receiver of effects."""

    cpdef int take_effects(self, list effects, long long now_ms) except -1:
        """Receive the effects of one unit (a command or a transaction), in order. All of them, or none."""
        raise NotImplementedError


@cython.final
cdef class Effects:
    """The effects of the running unit, and the sinks that get them when it ends."""

    def __cinit__(self, ClientHost host not None, Context context not None):
        self.host = host
        self.context = context
        self.pending = []
        self.files = self.replicas = ()

    def set_files(self, sinks):
        """Set the sinks for effects that go to files."""
        self.files = tuple(sinks)
        self.follow_sinks()

    def set_replicas(self, sinks):
        """Set the sinks for effects that go to replicas."""
        self.replicas = tuple(sinks)
        self.follow_sinks()

    def follow_sinks(self):
        """Tell handlers whether effects are needed: if not, they need not declare any."""
        self.context.is_propagating = len(self.files) > 0 or len(self.replicas) > 0

    cdef int add(self, int db_index, list args, Destination destination) except -1:
        """Add an effect of the running unit."""
        cdef Effect effect
        if self.context.is_propagating and (destination == EVERYWHERE or self.replicas):
            effect = Effect.__new__(Effect)
            effect.db_index = db_index
            effect.args = args
            effect.destination = destination
            self.pending.append(effect)
            if destination != EVERYWHERE:
                self.has_redirected = True
        return 0

    def announce(self, list args not None, bint is_for_replicas=False):
        """Propagate a request of the server itself, about database 0: it is not part of what a client has requested.

        is_for_replicas  it does not go to files
        """
        self.add(0, args, REPLICAS if is_for_replicas else EVERYWHERE)
        if self.host.executing is None:
            self.finish_unit()

    cdef int redirect(self, Py_ssize_t first, Destination destination) except -1:
        """Let the effects of the running unit from the given one on go nowhere else than `destination`."""
        cdef Effect effect
        for effect in self.pending[first:]:
            if effect.destination == EVERYWHERE:
                effect.destination = destination
            elif effect.destination != destination:
                effect.destination = NOWHERE
            self.has_redirected = True
        return 0

    cdef int discard(self) except -1:
        """Drop the effects of the running unit, and those that it still has."""
        self.pending = []
        self.files = self.replicas = ()
        self.follow_sinks()
        return 0

    cdef int finish_unit(self) except -1:
        """The unit has ended: pass its effects to the sinks."""
        cdef list effects = self.pending
        if effects:
            self.pending = []
            self.hand_over(effects)
        return 0

    cdef int hand_over(self, list effects) except -1:
        cdef EffectSink sink
        cdef Effect effect
        cdef list for_replicas = effects
        if self.has_redirected:
            self.has_redirected = False
            for_replicas = [effect for effect in effects if effect.destination in (EVERYWHERE, REPLICAS)]
            effects = [effect for effect in effects if effect.destination in (EVERYWHERE, FILES)]
        if for_replicas:
            for sink in self.replicas:
                sink.take_effects(for_replicas, self.context.now_ms)
        if effects:
            for sink in self.files:
                sink.take_effects(effects, self.context.now_ms)
            if self.counter is not None:
                self.data_offset = self.counter.offset
        self.is_unflushed = True
        return self.host.schedule()
