# cython: language_level=3, boundscheck=False, wraparound=False
"""EventSet and Poller: the kernel watches all plain sockets of a server in one set (epoll; kqueue on macOS and BSD).

    kernel ─▶ EventSet.take ─▶ EventSet.handle ─┬─▶ Watched.happened, for each socket with events
                                                ├─▶   ...
                                                └─▶ the end of the turn

So an event costs neither an object nor a callback of the loop, and everything else stays the loop's: timers, TLS, child
processes, and the program that a server is embedded in. There are two ways to wait:

    wait   a `ServerLoop` has the descriptors of the loop in the set, too, and waits there. It gets its turn only when
           it has something to do, so a request costs no turn of the loop.
    poll   any other loop watches the descriptor of the set, and calls this when there are events.

Events are level-triggered: what is not handled is reported again, so a socket that wants no input for a while has to
leave the set only if input arrives (see `SocketTransport`).

Invariant: a descriptor leaves the set before it is closed. A forked child may hold it open, and then the kernel would
go on to report its events.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, errno
from libc.limits cimport INT_MAX
from libc.stdint cimport uintptr_t

from streamd.core.client cimport Client, ClientHost
from streamd.core.clock cimport monotonic_us
from streamd.heap cimport free, malloc

import os

__all__ = ["BROKEN_EVENT", "EventSet", "Poller", "Watched", "is_supported"]

BROKEN_EVENT = <int>BROKEN

cdef extern from *:
    """
    #if defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__)
    #include <fcntl.h>
    #include <sys/types.h>
    #include <sys/event.h>
    #include <sys/time.h>
    #define HAS_POLLER 1

    static int set_open(void) {
        int set = kqueue();
        if (set >= 0) fcntl(set, F_SETFD, FD_CLOEXEC);
        return set;
    }

    static int set_change(int set, int fd, void *owner, int old, int wanted) {
        struct kevent changes[2];
        int count = 0, before = old < 0 ? 0 : old, after = wanted < 0 ? 0 : wanted;
        if ((before ^ after) & 1)
            EV_SET(&changes[count++], fd, EVFILT_READ, after & 1 ? EV_ADD : EV_DELETE, 0, 0, owner);
        if ((before ^ after) & 2)
            EV_SET(&changes[count++], fd, EVFILT_WRITE, after & 2 ? EV_ADD : EV_DELETE, 0, 0, owner);
        return count ? kevent(set, changes, count, NULL, 0, NULL) : 0;
    }

    static int set_take(int set, Happening *found, int most, int ms) {
        struct kevent events[256];
        struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
        int count = kevent(set, NULL, 0, events, most < 256 ? most : 256, ms < 0 ? NULL : &time);
        for (int i = 0; i < count; i++) {
            found[i].owner = (void *)events[i].udata;
            if (events[i].filter == EVFILT_READ)
                found[i].events = 1;    /* the end of input is read, too */
            else
                found[i].events = 2 | (events[i].flags & EV_EOF ? 4 : 0);
        }
        return count;
    }
    #elif defined(__linux__)
    #include <sys/epoll.h>
    #define HAS_POLLER 1

    static int set_open(void) { return epoll_create1(EPOLL_CLOEXEC); }

    /* Watch for `wanted` instead of `old`; -1: not in the set. */
    static int set_change(int set, int fd, void *owner, int old, int wanted) {
        struct epoll_event event = {0};
        event.events = wanted < 0 ? 0 : (wanted & 1 ? EPOLLIN : 0) | (wanted & 2 ? EPOLLOUT : 0);
        event.data.ptr = owner;
        return epoll_ctl(set, old < 0 ? EPOLL_CTL_ADD : wanted < 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, fd, &event);
    }

    /* What has happened, at most `most`, after waiting for at most `ms`; -1: without end. */
    static int set_take(int set, Happening *found, int most, int ms) {
        struct epoll_event events[256];
        int count = epoll_wait(set, events, most < 256 ? most : 256, ms);
        for (int i = 0; i < count; i++) {
            unsigned bits = events[i].events;
            found[i].owner = events[i].data.ptr;
            found[i].events = (bits & EPOLLIN ? 1 : 0) | (bits & EPOLLOUT ? 2 : 0)
                | (bits & (EPOLLERR | EPOLLHUP) ? 4 : 0);
        }
        return count;
    }
    #else
    #include <errno.h>
    #define HAS_POLLER 0
    static int set_open(void) { errno = ENOSYS; return -1; }
    static int set_change(int set, int fd, void *owner, int old, int wanted) { errno = ENOSYS; return -1; }
    static int set_take(int set, Happening *found, int most, int ms) { errno = ENOSYS; return -1; }
    #endif
    """
    int HAS_POLLER
    int set_open() noexcept
    int set_change(int set, int fd, void *owner, int old, int wanted) noexcept
    int set_take(int set, Happening *found, int most, int ms) noexcept nogil


def is_supported():
    """Whether this system has a set of descriptors that an event loop can watch."""
    return HAS_POLLER != 0


cdef OSError last_error():
    return OSError(errno, os.strerror(errno))


cdef double FAR_S = 1e12            # later than any deadline; times are counted in microseconds


cdef inline void *owner_of(int fd) noexcept:
    """That of a descriptor of the loop; a Watched, which is an address, has no lowest bit."""
    return <void *>((<uintptr_t>fd << 1) | 1)


cdef class Crew:
    """See poller.pxd."""

    cdef int adopt(self, Client client, object sock) except -1:
        raise NotImplementedError

    cdef int serve(self) except -1:
        raise NotImplementedError

    cdef int dispatch(self) except -1:
        raise NotImplementedError

    cdef bint doze(self) noexcept:
        return True

    cdef int rouse(self) noexcept:
        return 0

    cdef int ring(self) noexcept:
        return 0

    cdef bint is_idle(self) noexcept:
        return True

    cdef int disband(self) except -1:
        raise NotImplementedError


cdef class EventSet:
    """A set of descriptors: those of pollers, and of a `ServerLoop` that waits here.

    Raises NotImplementedError where the system cannot do it, OSError without a descriptor.
    """

    def __cinit__(self):
        self.fd = -1
        if not HAS_POLLER:
            raise NotImplementedError("neither epoll nor kqueue")
        self.pollers = []
        self.gone = []
        self.set_timers([])
        self.fd = set_open()
        if self.fd < 0:
            raise last_error()

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def change(self, int fd, int old, int wanted):
        """Watch a descriptor of the loop for `wanted` instead of `old`.

        Both are sets of READABLE (1) and WRITABLE (2); -1: it is not in the set.
        """
        if set_change(self.fd, fd, owner_of(fd), old, wanted) < 0:
            raise last_error()

    cdef int take(self, int ms) except -1:
        """Fill `happenings`; returns how many. Waits for at most `ms`, -1: without end."""
        cdef int count
        if self.crews is not None and ms:
            count = self.take_beside(ms)
        elif ms:
            with nogil:
                count = set_take(self.fd, self.happenings, MOST_EVENTS, ms)
        else:
            count = set_take(self.fd, self.happenings, MOST_EVENTS, 0)
        if count < 0:
            if errno != EINTR:
                raise last_error()
            PyErr_CheckSignals()
            return 0
        return count

    cdef int take_beside(self, int ms) except -2:
        """As `set_take`, but threads wake the loop, too."""
        cdef Crew crew
        cdef int count
        for crew in self.crews:
            if not crew.doze():
                ms = 0
        with nogil:
            count = set_take(self.fd, self.happenings, MOST_EVENTS, ms)
        for crew in self.crews:
            crew.rouse()
        return count

    cdef list handle(self, int count):
        """Handle what has happened to sockets of pollers; returns the rest.

        That is what has happened to the loop's own descriptors, as [(descriptor, events)]; None: nothing.
        """
        cdef Poller poller
        cdef Crew crew
        cdef Watched watched
        cdef list found = None
        cdef uintptr_t owner
        cdef Py_ssize_t i
        self.is_handling = True
        try:
            for i in range(PyList_GET_SIZE(self.pollers)):
                (<Poller>PyList_GET_ITEM(self.pollers, i)).host.events_begin()
            if self.crews is not None:
                for crew in self.crews:
                    crew.serve()
            for i in range(count):
                owner = <uintptr_t>self.happenings[i].owner
                if owner & 1:
                    if found is None:
                        found = []
                    found.append((<int>(owner >> 1), self.happenings[i].events))
                    continue
                watched = <Watched>self.happenings[i].owner
                if watched.wanted >= 0:
                    try:
                        watched.happened(self.happenings[i].events)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        watched.failed(error)
        finally:
            try:
                for i in range(PyList_GET_SIZE(self.pollers)):
                    (<Poller>PyList_GET_ITEM(self.pollers, i)).host.events_end()
            finally:
                self.is_handling = False
                if PyList_GET_SIZE(self.gone):
                    self.gone.clear()
                if self.crews is not None:
                    for crew in self.crews:
                        crew.dispatch()
            if self.has_closing:
                self.has_closing = False
                for poller in list(self.pollers):
                    poller.close_if_empty()
        return found

    def poll(self):
        """Handle what has happened. Called by a loop that watches the set's descriptor."""
        cdef Crew crew
        if self.crews is not None:
            for crew in self.crews:
                crew.rouse()
        try:
            self.handle(self.take(0))
        finally:
            if self.crews is not None:
                for crew in self.crews:
                    if not crew.doze():
                        crew.ring()

    def wait(self, object loop, object timeout):
        """Wait, and handle what happens, until `loop` has something to do.

        Returns what has happened to the loop's own descriptors, as [(descriptor, events)].

        timeout  in seconds, until the loop has something to do; None: without end
        """
        cdef object ready = loop._ready
        cdef long long now_us = monotonic_us(), until_us
        cdef list found
        cdef int count
        self.deadline_us = -1 if timeout is None else now_us + <long long>(min(timeout, FAR_S) * 1e6)
        while True:
            until_us = self.deadline_us
            if self.timer_us >= 0 and (until_us < 0 or self.timer_us < until_us):
                until_us = self.timer_us
            count = self.take(-1 if until_us < 0 else <int>min((max(until_us - now_us, 0) + 999) // 1000, INT_MAX))
            if count or self.crews is not None:
                try:
                    found = self.handle(count)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    loop.call_exception_handler({"message": "Ending a turn failed.", "exception": error})
                    found = None
                if found is not None:
                    return found
            if until_us >= 0:
                now_us = monotonic_us()
                if self.timer_us >= 0 and self.timer_us <= now_us:
                    self.run_timers(loop, now_us)
            if ready or (self.deadline_us >= 0 and self.deadline_us <= now_us):
                return ()

    def wait_until(self, double when):
        """A timer of the loop has been set: `wait` returns at that time, at the latest."""
        cdef long long us = <long long>(min(when, FAR_S) * 1e6)
        if self.deadline_us < 0 or us < self.deadline_us:
            self.deadline_us = us

    def call_later(self, double seconds, object callback):
        """Call back, once, while the loop waits: as timers of the loop do, which cost three times as much."""
        self.set_timers([*self.timers, (monotonic_us() + <long long>(seconds * 1e6), callback)])

    def cancel(self, object callback):
        self.set_timers([each for each in self.timers if each[1] != callback])

    cdef int set_timers(self, list timers) except -1:
        self.timers = timers
        self.timer_us = min([each[0] for each in timers]) if timers else -1
        return 0

    cdef int run_timers(self, object loop, long long now_us) except -1:
        cdef list due = [each for each in self.timers if each[0] <= now_us]
        self.set_timers([each for each in self.timers if each[0] > now_us])
        for _, callback in due:
            try:
                callback()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                loop.call_exception_handler({"message": f"{callback!r} failed.", "exception": error})
        return 0


cdef class Poller:
    """The plain sockets of a server.

    loop    its event loop
    host    the server, which ends a turn after events
    events  the set that the loop waits in; None: the poller has a set of its own, and `loop` has to have `add_reader`
    Raises NotImplementedError where system or loop cannot do it, OSError without a descriptor.
    """

    def __cinit__(self, object loop, ClientHost host not None, EventSet events):
        self.loop = loop
        self.host = host
        self.events = EventSet() if events is None else events
        self.input = <char *>malloc(INPUT_SIZE)
        if self.input is NULL:
            raise MemoryError("no memory for input")
        if events is None:
            loop.add_reader(self.events.fd, self.events.poll)
            self.owns_events = True
        self.events.pollers.append(self)

    def __dealloc__(self):
        free(self.input)

    def close(self):
        """Leave the set as soon as nothing is watched any more."""
        self.is_closing = True
        self.close_if_empty()

    cdef int take_crew(self, Crew crew) except -1:
        """From now on these threads serve new connections."""
        self.crew = crew
        self.events.crews = [crew] if self.events.crews is None else [*self.events.crews, crew]
        return 0

    cdef int close_if_empty(self) except -1:
        cdef Crew crew = self.crew
        if not self.is_closing:
            return 0
        if self.events.is_handling:
            self.events.has_closing = True
            return 0
        if crew is not None and crew.is_idle():
            self.crew = None
            self.events.crews = [each for each in self.events.crews if each is not crew] or None
            crew.disband()
        if self.crew is not None or self.size:
            self.events.has_closing = True
        elif self in self.events.pollers:
            self.events.pollers.remove(self)
            if self.owns_events:
                self.loop.remove_reader(self.events.fd)
                self.events.close()
        return 0


cdef class Watched:
    """A descriptor in the set of a poller."""

    def __cinit__(self, *args):
        self.fd = self.wanted = -1

    cdef int watch(self, int events) except -1:
        """Watch for these events only: a set of Event; BROKEN is always reported."""
        if events == self.wanted:
            return 0
        if set_change(self.poller.events.fd, self.fd, <void *>self, self.wanted, events) < 0:
            raise last_error()
        if self.wanted < 0:
            Py_INCREF(self)
            self.poller.size += 1
        self.wanted = events
        return 0

    cdef int leave(self) except -1:
        """Leave the set."""
        if self.wanted >= 0:
            set_change(self.poller.events.fd, self.fd, <void *>self, self.wanted, -1)
            self.wanted = -1
            self.poller.size -= 1
            if self.poller.events.is_handling:
                self.poller.events.gone.append(self)
            Py_DECREF(self)
        return 0

    cdef int happened(self, int events) except -1:
        """Handle events."""
        raise NotImplementedError

    cdef int failed(self, object error) except -1:
        """Handling events has raised an error."""
        raise NotImplementedError
