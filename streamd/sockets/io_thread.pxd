# cython: language_level=3
"""A thread that receives and sends for the loop. See io_thread.pyx."""

from libc.stdint cimport int64_t
from posix.uio cimport iovec

from streamd.shared_bytes cimport SharedBytes
from streamd.sockets.ring cimport Ring


cdef enum Inward:
    # Records from a thread to the loop.
    INPUT = 1       # received bytes
    ARGUMENT        # a Collected, which belongs to the loop from now on: what follows INPUT
    COLLECTING      # a Collected as far as it is received, without its block
    AT_END          # the peer sends no more
    FAILED          # the connection is broken, the bytes are its errno; 0: everything before CLOSE is sent
    ALL_SENT        # the answer to ASK
    GONE            # the answer to ABORT and LEAVE, the last one about a line: the thread does not know it any more


cdef enum Outward:
    # Records from the loop to a thread.
    OUTPUT = 1      # bytes to send
    SHARED          # a SharedPart to send
    PAUSE           # receive no more
    READ_ON         # receive again
    HAND_OVER       # ARGUMENT, complete or not: the loop needs its bytes
    ASK             # report when everything before this is sent
    CLOSE           # FAILED, as soon as everything is sent
    ABORT           # GONE; the last one about a line
    LEAVE           # as ABORT, but the rest is kept, and `has_left` is set
    STOP            # the thread ends; without a line


cdef enum LineState:
    # What a thread knows of a line; a set.
    HAS_INPUT = 1 << 0      # the kernel may have bytes
    PEER_ENDED = 1 << 1     # the end of input is near: receive until it is found
    IS_PAUSED = 1 << 2
    IS_DEAF = 1 << 3        # nothing is received any more: the end has been found, or the line is closing
    IS_MUTE = 1 << 4        # nothing can be sent any more
    IS_CLOSING = 1 << 5     # CLOSE has come
    IS_QUEUED = 1 << 6      # in the queue of its thread
    IS_GONE = 1 << 7        # not in the set of its thread


cdef struct Collected:
    # A long argument, which a thread receives where it stays: into memory for a bytes object.
    char *block             # owned, or NULL: the head of the object, which the loop fills in, then its bytes
    size_t size             # bytes of the argument and its line end
    size_t filled           # of which these are received
    size_t room             # ... and this many have a place


cdef struct Line:
    # A connection on a thread. Allotted and freed by the loop.
    int fd                  # the loop's, which closes it after GONE
    void *transport         # the loop's: its ThreadTransport, which counts a reference
    int state               # the thread's, as all that follows: set of LineState
    int owed                # set of 1 << Inward: records that the loop still has to get
    int error               # errno of FAILED
    bint wants_sent         # ASK has come
    Collected argument
    int64_t missing         # arguments of the request after this one, if input goes on with them; else 0
    char *rest              # bytes that the kernel did not accept; owned, or NULL
    size_t rest_at          # of which these are sent
    size_t rest_size
    size_t rest_room
    Line *next              # in the queue of its thread
    long long sent          # atomic: bytes of OUTPUT that are sent, or dropped
    long long has_left      # atomic: LEAVE is done; from then on the line is the loop's
    size_t counted          # the loop's: bytes of `argument` that it knows of


cdef struct SharedPart:
    SharedBytes *bytes      # held for the thread
    size_t at               # what is to be sent of them
    size_t size


cdef enum:
    MOST_PARTS = 64         # pieces sent with one call


cdef extern from "<pthread.h>":
    ctypedef struct pthread_t:
        pass


cdef struct IoThread:
    pthread_t id
    Ring inward
    Ring outward
    int poll_fd             # its epoll set
    int number              # from 1
    bint collects           # long arguments
    Line *first             # the queue: lines that have something to do now
    Line *last
    bint is_stopping        # STOP has come
    Line *sending           # what follows is to be sent there
    int part_count
    iovec parts[MOST_PARTS]
    SharedBytes *held[MOST_PARTS]      # of each part; NULL: it is in the ring
    long long reads         # atomic: successful calls of recv
    long long writes        # atomic: ... of send


cdef bint threads_are_supported() noexcept
cdef int io_thread_open(IoThread *thread, int number, int wake_loop_fd) noexcept
cdef bytes finish_argument(Collected *argument)
cdef const char *bytes_of(Collected *argument) noexcept nogil
cdef void drop_argument(Collected *argument) noexcept nogil
cdef int io_thread_start(IoThread *thread) noexcept
cdef void io_thread_stop(IoThread *thread) noexcept nogil
cdef void io_thread_close(IoThread *thread) noexcept
cdef int io_thread_add(IoThread *thread, Line *line) noexcept
cdef void post(IoThread *thread, Line *line, Outward kind, const char *data, size_t size) noexcept nogil
cdef int open_bell() noexcept
cdef void quiet_bell(int fd) noexcept
