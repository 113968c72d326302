# cython: language_level=3, boundscheck=False, wraparound=False
"""Poller: the kernel watches all plain sockets of a server in one set (epoll; kqueue on macOS and BSD).

    kernel ─▶ set ─▶ event loop ─▶ poll ─┬─▶ Watched.happened, for each socket with events
              (its descriptor is         ├─▶   ...
               all that the loop sees)   └─▶ the end of the turn

So an event costs neither an object nor a callback of the loop, and everything else stays the loop's: timers, TLS, child
processes, and the program that a server is embedded in. Events are level-triggered: what is not handled is reported
again, so a socket that wants no input for a while has to leave the set only if input arrives (see `SocketTransport`).

Invariant: a descriptor leaves the set before it is closed. A forked child may hold it open, and then the kernel would
go on to report its events.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, errno

from streamd.core.client cimport ClientHost
from streamd.heap cimport free, malloc

import os

__all__ = ["Poller", "Watched", "is_supported"]

cdef extern from *:
    """
    #if defined(__linux__)
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

    /* What has happened, at most `most`; does not wait. */
    static int set_take(int set, Happening *found, int most) {
        struct epoll_event events[256];
        int count = epoll_wait(set, events, most < 256 ? most : 256, 0);
        for (int i = 0; i < count; i++) {
            unsigned bits = events[i].events;
            found[i].owner = events[i].data.ptr;
            found[i].events = (bits & EPOLLIN ? 1 : 0) | (bits & EPOLLOUT ? 2 : 0)
                | (bits & (EPOLLERR | EPOLLHUP) ? 4 : 0);
        }
        return count;
    }
    #elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__)
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

    static int set_take(int set, Happening *found, int most) {
        struct kevent events[256];
        struct timespec now = {0, 0};
        int count = kevent(set, NULL, 0, events, most < 256 ? most : 256, &now);
        for (int i = 0; i < count; i++) {
            found[i].owner = (void *)events[i].udata;
            if (events[i].filter == EVFILT_READ)
                found[i].events = 1;    /* the end of input is read, too */
            else
                found[i].events = 2 | (events[i].flags & EV_EOF ? 4 : 0);
        }
        return count;
    }
    #else
    #include <errno.h>
    #define HAS_POLLER 0
    static int set_open(void) { errno = ENOSYS; return -1; }
    static int set_change(int set, int fd, void *owner, int old, int wanted) { errno = ENOSYS; return -1; }
    static int set_take(int set, Happening *found, int most) { errno = ENOSYS; return -1; }
    #endif
    """
    int HAS_POLLER
    int set_open() noexcept
    int set_change(int set, int fd, void *owner, int old, int wanted) noexcept
    int set_take(int set, Happening *found, int most) noexcept


def is_supported():
    """Whether this system has a set of descriptors that an event loop can watch."""
    return HAS_POLLER != 0


cdef OSError last_error():
    return OSError(errno, os.strerror(errno))


cdef class Poller:
    """A set of sockets, watched by an event loop.

    loop  the loop; it has to have `add_reader`
    host  the server, which ends a turn after the events of one call
    Raises NotImplementedError where system or loop cannot do it, OSError without a descriptor.
    """

    def __cinit__(self, object loop, ClientHost host not None):
        self.fd = -1
        if not HAS_POLLER:
            raise NotImplementedError("neither epoll nor kqueue")
        self.loop = loop
        self.host = host
        self.gone = []
        self.input = <char *>malloc(INPUT_SIZE)
        if self.input is NULL:
            raise MemoryError("no memory for input")
        self.fd = set_open()
        if self.fd < 0:
            raise last_error()
        loop.add_reader(self.fd, self.poll)

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)
        free(self.input)

    def close(self):
        """Close the set as soon as nothing is watched any more."""
        self.is_closing = True
        self.close_if_empty()

    cdef int close_if_empty(self) except -1:
        if self.is_closing and not self.size and self.fd >= 0 and not self.is_polling:
            self.loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1
        return 0

    def poll(self):
        """Handle what has happened. Called by the loop when the set has events."""
        cdef Watched watched
        cdef int count = set_take(self.fd, self.happenings, MOST_EVENTS)
        cdef int i
        if count < 0:
            if errno == EINTR:
                return
            raise last_error()
        self.is_polling = True
        self.host.events_begin()
        try:
            for i in range(count):
                watched = <Watched>self.happenings[i].owner
                if watched.wanted >= 0:
                    try:
                        watched.happened(self.happenings[i].events)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        watched.failed(error)
        finally:
            self.is_polling = False
            self.host.events_end()
            self.gone.clear()
            self.close_if_empty()


cdef class Watched:
    """A descriptor in the set of a poller."""

    def __cinit__(self, *args):
        self.fd = self.wanted = -1

    cdef int watch(self, int events) except -1:
        """Watch for these events only: a set of Event; BROKEN is always reported."""
        if events == self.wanted:
            return 0
        if set_change(self.poller.fd, self.fd, <void *>self, self.wanted, events) < 0:
            raise last_error()
        if self.wanted < 0:
            Py_INCREF(self)
            self.poller.size += 1
        self.wanted = events
        return 0

    cdef int leave(self) except -1:
        """Leave the set."""
        if self.wanted >= 0:
            set_change(self.poller.fd, self.fd, <void *>self, self.wanted, -1)
            self.wanted = -1
            self.poller.size -= 1
            if self.poller.is_polling:
                self.poller.gone.append(self)
            Py_DECREF(self)
        return 0

    cdef int happened(self, int events) except -1:
        """Handle events."""
        raise NotImplementedError

    cdef int failed(self, object error) except -1:
        """Handling events has raised an error."""
        raise NotImplementedError
