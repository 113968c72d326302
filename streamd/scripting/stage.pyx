# cython: language_level=3
"""Stage: a place to run a unit from which the event loop can be left and come back to.

Most scripts end within microseconds, but of few is that known beforehand (short_scripts.py). So every other unit that
may run one is run in a greenlet: a stack of its own, that of the player. When a script has run for too long,
`interrupt` switches from within Lua's hook back to the loop, with the unit in the middle of its work; the loop serves
clients, and calls `resume`, which switches back until the next interruption.

                    loop                                     player
        run ────────▶│── switch ────────────────────────────▶│ Dispatcher.run
                     │                                       │   the script ... the hook: interrupt
        returns ◀────│◀────────────────────────────── switch ─│
        ... other clients ...                                │
        resume ─────▶│── switch ────────────────────────────▶│   the script ... its end
                     │◀────────────────────────────── switch ─│ waits for the next unit

Greenlets share one stack and copy what overlaps aside. The player begins `DEPTH` bytes below the loop's frames, so that
nothing of the loop is ever copied: libraries keep pointers into their frames.
"""

from cpython.pycapsule cimport PyCapsule_Import
from cpython.ref cimport PyObject
from libc.string cimport memchr, memset

from streamd.core.client cimport Client
from streamd.core.dispatch cimport UnitState
from streamd.core.route cimport Route

cdef enum:
    DEPTH = 65536
    SWITCH = 6          # the place of greenlet.switch among greenlet's functions for C

ctypedef object (*Switch)(object greenlet, PyObject *args, PyObject *kwargs)

cdef Switch switch_to = NULL    # valid after `make_greenlets`


cdef class Stage:
    """Runs units of one dispatcher."""

    def __init__(self, host not None):
        self.host = host
        self.dispatcher = host.dispatcher
        self.loop = self.dispatcher.loop

    cdef int run(self, Client client, Route route, list args) except -1:
        """Run a checked request. It may return before the end: then the client's `postponed` is set."""
        cdef char depth[DEPTH]
        if self.is_playing or self.is_closed:
            return self.dispatcher.run(client, route, args)
        self.client = client
        self.route = route
        self.args = args
        if self.player is None:
            self.audience, self.player = make_greenlets(self.play)
            if self.player is None:
                return self.dispatcher.run(client, route, args)     # which refuses to run a script
            memset(depth, 0, DEPTH)
            self.enter()
            return memchr(depth, 1, DEPTH) is not NULL      # the frame stays until here
        return self.enter()

    cdef int enter(self) except -1:
        """Switch to the player, until the unit has ended or is interrupted."""
        self.is_playing = True
        switch_to(self.player, NULL, NULL)
        self.is_playing = False
        if self.is_interrupted:
            self.client.postponed = self.args
            return self.go_on_later()
        self.client = None
        self.route = None
        self.args = None
        if self.failure is not None:
            failure = self.failure
            self.failure = None
            raise failure
        return 0

    cdef int go_on_later(self) except -1:
        self.loop.call_soon(self.resume)
        return 0

    def play(self):
        """The player: runs one unit after the other."""
        while True:
            try:
                self.dispatcher.run(self.client, self.route, self.args)
            except BaseException as error:
                self.failure = error
            switch_to(self.audience, NULL, NULL)

    def interrupt(self):
        """Called by the running unit: let the loop serve others, and return when it is this unit's turn again."""
        cdef UnitState unit
        if not self.is_playing or self.is_closed:
            return
        unit = self.dispatcher.put_aside()
        self.is_interrupted = True
        try:
            switch_to(self.audience, NULL, NULL)
        finally:
            self.is_interrupted = False
            self.dispatcher.take_up(unit)
            if self.is_closed:
                self.dispatcher.effects.discard()

    def resume(self):
        """Go on with the unit that was interrupted."""
        cdef Client client = self.client
        if not self.is_interrupted:
            return
        self.enter()
        if not self.is_interrupted:
            client.postponed = None
            for capability in self.host.capabilities:
                capability.pause_ended()
            self.dispatcher.serve_held_back()
            self.dispatcher.look_at_clocks()
            self.dispatcher.process(client)

    def close(self):
        """The server is stopping: an interrupted unit comes to its end, and what it has done is not propagated."""
        self.is_closed = True
        if self.is_interrupted:
            self.client.close()
            self.enter()


cdef tuple make_greenlets(play):
    """The running greenlet, and a new one that runs `play`; None, if there is no package greenlet."""
    global switch_to
    try:
        import greenlet
    except ImportError:
        return None, None
    switch_to = <Switch>(<void **>PyCapsule_Import("greenlet._C_API", 0))[SWITCH]
    return greenlet.getcurrent(), greenlet.greenlet(play)
