# cython: language_level=3, boundscheck=False, wraparound=False
"""Monitors: the connections that have sent MONITOR, and what they receive.

The dispatcher calls `show_request` for each request that has been run, provided that there are monitors (ServerState
HAS_MONITORS): otherwise they cost nothing. A line is encoded once and added to the output of each.

    +1700000000.123456 [0 127.0.0.1:50000] "XADD" "s" "*" "field" "a \"quoted\" value"

What must hold: a client is in `clients` exactly when its state has MONITORING, and HAS_MONITORS is set exactly when
there is one.
"""

from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from streamd.errors import REPLICAS_READ_NO_KEYS
from streamd.numbers cimport put_digits, put_int64
from streamd.protocol.reply cimport ReplyWriter
from streamd.core.client cimport MONITORING, Client
from streamd.core.capability cimport Capability
from streamd.core.dispatch cimport HAS_MONITORS
from streamd.core.route cimport MAY_REPLICATE, READ_ONLY, WRITE, Route

__all__ = ["Monitors"]

cdef const char *HEX = b"0123456789abcdef"

cdef enum:
    MOST_PER_BYTE = 4      # `\x00`
    HEADER = 64            # time, brackets, database


cdef class Monitors(Capability):
    """The monitors of a server."""

    refusal_rank = 50

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.dispatcher.monitor = self
        self.client_bits = MONITORING
        self.clients = {}
        self.line = ReplyWriter()

    def __len__(self):
        return len(self.clients)

    def add(self, Client client not None):
        """MONITOR: show this client every request from now on."""
        client.change_state(MONITORING, True)
        self.clients[client] = None
        self.dispatcher.change_state(HAS_MONITORS, True)

    def client_gone(self, Client client not None):
        self.remove(client)

    def client_reset(self, Client client not None):
        self.remove(client)

    cpdef str find_refusal(self, Client client, Route route, list args):
        if route.flags & (WRITE | READ_ONLY | MAY_REPLICATE):
            return REPLICAS_READ_NO_KEYS
        return None

    def remove(self, Client client not None):
        """Stop showing it requests; a client that is not a monitor is not changed."""
        if client.state & MONITORING:
            client.change_state(MONITORING, False)
            del self.clients[client]
            self.dispatcher.change_state(HAS_MONITORS, len(self.clients) > 0)

    cdef int show_request(self, Client source, list args) except -1:
        """Show all monitors a request of `source`; secrets have been redacted."""
        cdef Client client
        cdef bytes arg
        cdef str address = source.address
        if source.is_unix:
            address = "unix:" + address.removesuffix(":0")
        cdef bytes place = b" [%d %s] " % (source.db.index, address.encode("utf-8", "surrogateescape"))
        self.line.release()
        write_head(self.line, place)
        for arg in args:
            write_quoted(self.line, arg, len(arg))
        # The last argument is followed by a blank, which becomes the end of the line.
        self.line.data[self.line.length - 1] = c'\r'
        self.line.raw_c(b"\n", 1)
        for client in self.clients:
            client.deliver(self.line.data, self.line.length)
        self.line.release()
        return 0

    def check_invariants(self):
        """Assert that the states of clients agree."""
        cdef Client client
        for client in self.dispatcher.clients.values():
            assert (client in self.clients) == bool(client.state & MONITORING), client.id
        assert bool(self.clients) == bool(self.dispatcher.state & HAS_MONITORS)


cdef int write_head(ReplyWriter line, bytes place) except -1:
    """The start of a line: the time in seconds with six decimals, and where the request came from."""
    cdef timespec now
    cdef char *out = line.grow(HEADER)
    cdef size_t used
    clock_gettime(CLOCK_REALTIME, &now)
    out[0] = c'+'
    used = 1 + put_int64(out + 1, now.tv_sec)
    out[used] = c'.'
    put_digits(out + used + 1, <unsigned long long>now.tv_nsec // 1000, 6)
    line.length += used + 7
    return line.raw_c(<const char *>place, len(place))


cdef int write_quoted(ReplyWriter line, const char *text, size_t length) except -1:
    """One argument in quotes followed by a blank, with unprintable bytes escaped."""
    cdef char *start = line.grow(MOST_PER_BYTE * length + 3)
    cdef char *out = start
    cdef size_t at
    cdef unsigned char c
    out[0] = c'"'
    out += 1
    for at in range(length):
        c = <unsigned char>text[at]
        if 0x20 <= c <= 0x7e and c != c'"' and c != c'\\':
            out[0] = <char>c
            out += 1
            continue
        out[0] = c'\\'
        if c == c'"' or c == c'\\':
            out[1] = <char>c
        elif c == c'\n':
            out[1] = c'n'
        elif c == c'\r':
            out[1] = c'r'
        elif c == c'\t':
            out[1] = c't'
        elif c == 7:
            out[1] = c'a'
        elif c == 8:
            out[1] = c'b'
        else:
            out[1] = c'x'
            out[2] = HEX[c >> 4]
            out[3] = HEX[c & 15]
            out += 2
        out += 2
    out[0] = c'"'
    out[1] = c' '
    line.length += <size_t>(out - start) + 2
    return 0
