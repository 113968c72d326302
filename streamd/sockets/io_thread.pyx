# cython: language_level=3, boundscheck=False, wraparound=False
"""IoThread: a thread without Python that receives and sends for the loop's thread.

    outward ring ─▶ obey ─▶ send                     one round of `run`
    queue        ─▶ serve ─▶ receive ─▶ inward ring
    epoll        ─▶ notice ─▶ queue, send

It owns the sockets of its lines; docs/architecture.md has the rules. Its set is edge-triggered, so a socket is added
once and costs no further call: HAS_INPUT keeps what the kernel has reported until it is received. A line that has
something to do and can do it now is in the queue. When the inward ring is full, the queue waits until the loop has made
room.

Long arguments are received where they stay: into a block that becomes a bytes object. The thread guesses where one
begins (`find_cut`), and reports what it collects; the loop, whose parser knows, has it handed over as input if the
guess was wrong.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.errno cimport EAGAIN, EINTR, ECONNRESET, ENOMEM, errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
from posix.uio cimport iovec

from streamd.heap cimport free, malloc
from streamd.shared_bytes cimport SharedBytes, shared_drop
from streamd.sockets.ring cimport (
    Record, ring_commit, ring_doze, ring_next, ring_open, ring_position, ring_publish, ring_release,
    ring_release_to, ring_room, ring_rouse, ring_starve, sched_yield, streamd_store,
)

cdef enum:
    RING_SIZE = 1 << 19         # bytes, each way
    LEAST_INPUT = 1024          # room in the ring with which it is worth to receive
    MOST_INPUT = 32768          # bytes received at a time
    LEAST_LONG = 32768          # bytes of an argument that is received where it stays; as in the parser
    FIRST_ROOM = 1 << 20        # bytes of the first block for it
    MOST_COLLECTED = 1 << 18    # bytes of it received at a time

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)

cdef extern from *:
    """
    #include <stddef.h>

    #define OBJECT_HEAD offsetof(PyBytesObject, ob_sval)

    /* Whether the interpreter frees large objects as blocks of PyMem_RawMalloc: unless something watches its memory. */
    static int streamd_frees_raw(void) {
    #ifdef Py_GIL_DISABLED
        return 0;
    #else
        PyMemAllocatorEx objects, raw;
        PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &objects);
        PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw);
        return objects.ctx == NULL && raw.ctx == NULL;
    #endif
    }
    /* Make such a block, with one byte to spare after `size`, a bytes object. */
    static PyObject *streamd_to_bytes(char *block, Py_ssize_t size) {
        PyBytesObject *made = (PyBytesObject *)PyObject_InitVar((PyVarObject *)block, &PyBytes_Type, size);
    #pragma GCC diagnostic push
    #pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        made->ob_shash = -1;
    #pragma GCC diagnostic pop
        made->ob_sval[size] = 0;
        return (PyObject *)made;
    }
    """
    const size_t OBJECT_HEAD
    bint streamd_frees_raw() noexcept
    bytes streamd_to_bytes(char *block, Py_ssize_t size)

cdef extern from *:
    """
    #include <pthread.h>
    #if defined(__linux__)
    #include <signal.h>
    #include <stdio.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <unistd.h>
    #define HAS_THREADS 1
    #define SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)

    typedef struct { void *line; unsigned events; } streamd_event;

    static int bell_open(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
    static void bell_quiet(int fd) { uint64_t rings; if (read(fd, &rings, sizeof rings) < 0) { /* it has not rung */ } }
    static int edges_open(int bell) {
        struct epoll_event event = {0};
        int set = epoll_create1(EPOLL_CLOEXEC);
        event.events = EPOLLIN;
        if (set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, bell, &event) < 0) { close(set); return -1; }
        return set;
    }
    static int edges_add(int set, int fd, void *line) {
        struct epoll_event event = {0};
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        event.data.ptr = line;
        return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    }
    static void edges_remove(int set, int fd) {
        struct epoll_event event = {0};
        epoll_ctl(set, EPOLL_CTL_DEL, fd, &event);
    }
    /* 1: input, 2: output, 4: the peer sends no more, 8: broken */
    static int edges_take(int set, streamd_event *found, int ms) {
        struct epoll_event events[128];
        int count = epoll_wait(set, events, 128, ms);
        for (int i = 0; i < count; i++) {
            unsigned bits = events[i].events;
            found[i].line = events[i].data.ptr;
            found[i].events = (bits & EPOLLIN ? 1 : 0) | (bits & EPOLLOUT ? 2 : 0) | (bits & EPOLLRDHUP ? 4 : 0)
                | (bits & (EPOLLERR | EPOLLHUP) ? 8 : 0);
        }
        return count;
    }
    /* No signal is handled there: Python expects them on its own threads. */
    static int thread_start(pthread_t *id, void *(*run)(void *), void *arg, int number) {
        sigset_t all, before;
        char name[16];
        int failed;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        failed = pthread_create(id, NULL, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!failed) { snprintf(name, sizeof name, "io_thd_%d", number); pthread_setname_np(*id, name); }
        return failed;
    }
    static void thread_join(pthread_t id) { pthread_join(id, NULL); }
    #else
    #include <errno.h>
    #include <unistd.h>
    #define HAS_THREADS 0
    #define SEND_FLAGS 0
    typedef struct { void *line; unsigned events; } streamd_event;
    static int bell_open(void) { errno = ENOSYS; return -1; }
    static void bell_quiet(int fd) { (void)fd; }
    static int edges_open(int bell) { (void)bell; errno = ENOSYS; return -1; }
    static int edges_add(int set, int fd, void *line) { (void)set; (void)fd; (void)line; return -1; }
    static void edges_remove(int set, int fd) { (void)set; (void)fd; }
    static int edges_take(int set, streamd_event *found, int ms) { (void)set; (void)found; (void)ms; return -1; }
    static int thread_start(pthread_t *id, void *(*run)(void *), void *arg, int number) { return ENOSYS; }
    static void thread_join(pthread_t id) { (void)id; }
    #endif
    """
    bint HAS_THREADS
    int SEND_FLAGS
    ctypedef struct Edge "streamd_event":
        void *line
        unsigned int events
    int bell_open() noexcept nogil
    void bell_quiet(int fd) noexcept nogil
    int edges_open(int bell) noexcept nogil
    int edges_add(int set, int fd, void *line) noexcept nogil
    void edges_remove(int set, int fd) noexcept nogil
    int edges_take(int set, Edge *found, int ms) noexcept nogil
    int thread_start(pthread_t *id, void *(*run)(void *) noexcept nogil, void *arg, int number) noexcept nogil
    void thread_join(pthread_t id) noexcept nogil
    int c_close "close"(int fd) noexcept nogil

cdef enum EdgeEvent:
    EDGE_INPUT = 1
    EDGE_OUTPUT = 2
    EDGE_END = 4
    EDGE_BROKEN = 8


# --- The thread ------------------------------------------------------------------------------------------------------

cdef void *run(void *arg) noexcept nogil:
    """The whole life of a thread."""
    cdef IoThread *thread = <IoThread *>arg
    cdef Edge[128] edges
    cdef int count, i, ms
    cdef bint is_starved = False
    while True:
        obey(thread)
        is_starved = not serve(thread)
        ring_publish(&thread.inward)
        if thread.is_stopping:
            return NULL
        ms = 0
        if thread.first is NULL or (is_starved and ring_starve(&thread.inward)):
            if ring_doze(&thread.outward):
                ms = -1
        count = edges_take(thread.poll_fd, edges, ms)
        ring_rouse(&thread.outward)
        for i in range(count):
            if edges[i].line is NULL:
                bell_quiet(thread.outward.wake_fd)
            else:
                notice(thread, <Line *>edges[i].line, edges[i].events)


cdef void obey(IoThread *thread) noexcept nogil:
    """Do what the loop has posted."""
    cdef SharedPart *shared
    cdef Record *record
    cdef Line *line
    cdef size_t before
    while True:
        before = ring_position(&thread.outward)
        record = ring_next(&thread.outward)
        if record is NULL:
            break
        line = <Line *>record.line
        if thread.part_count and (
            line is not thread.sending or record.kind > SHARED or thread.part_count == MOST_PARTS
        ):
            send_parts(thread)
            ring_release_to(&thread.outward, before)
        if record.kind == OUTPUT:
            add_part(thread, line, <char *>(record + 1), record.size, NULL)
            continue
        if record.kind == SHARED:
            shared = <SharedPart *>(record + 1)
            add_part(thread, line, shared.bytes.data + shared.at, shared.size, shared.bytes)
            continue
        if record.kind == PAUSE:
            line.state |= IS_PAUSED
        elif record.kind == READ_ON:
            line.state &= ~IS_PAUSED
            queue(thread, line)
        elif record.kind == HAND_OVER:
            hand_over(thread, line)
        elif record.kind == ASK:
            if line.rest is NULL:
                owe(thread, line, ALL_SENT)
            else:
                line.wants_sent = True
        elif record.kind == CLOSE:
            line.state |= IS_CLOSING | IS_DEAF
            if line.rest is NULL:
                fail(thread, line, 0)
        elif record.kind == ABORT:
            drop_rest(line)
            drop_argument(&line.argument)
            part(thread, line)
        elif record.kind == LEAVE:
            part(thread, line)
            streamd_store(&line.has_left, 1)
        elif record.kind == STOP:
            thread.is_stopping = True
        ring_release(&thread.outward)
    if thread.part_count:
        send_parts(thread)
        ring_release(&thread.outward)


cdef void notice(IoThread *thread, Line *line, unsigned int events) noexcept nogil:
    """The kernel has reported something."""
    if events & EDGE_OUTPUT and line.rest is not NULL:
        send_rest(thread, line)
    if events & EDGE_END:
        line.state |= PEER_ENDED
    if line.state & IS_GONE:
        return
    if events & EDGE_BROKEN and line.state & (IS_PAUSED | IS_DEAF):
        fail(thread, line, ECONNRESET)
    elif events & ~<unsigned int>EDGE_OUTPUT:
        line.state |= HAS_INPUT
        queue(thread, line)


cdef inline bint can_receive(Line *line) noexcept nogil:
    return line.state & (HAS_INPUT | IS_PAUSED | IS_DEAF | IS_GONE) == HAS_INPUT


cdef void queue(IoThread *thread, Line *line) noexcept nogil:
    """Put a line into the queue, if it has something to do."""
    if line.state & IS_QUEUED or not (line.owed or can_receive(line)):
        return
    line.state |= IS_QUEUED
    line.next = NULL
    if thread.first is NULL:
        thread.first = line
    else:
        thread.last.next = line
    thread.last = line


cdef bint serve(IoThread *thread) noexcept nogil:
    """Give each line in the queue one chance; False: the ring is full."""
    cdef Line *line = thread.first
    cdef Line *following
    thread.first = thread.last = NULL
    while line is not NULL:
        following = line.next
        line.state &= ~IS_QUEUED
        if not (report(thread, line) and receive(thread, line)):
            put_back(thread, line)
            return False
        line = following
    return True


cdef void put_back(IoThread *thread, Line *line) noexcept nogil:
    """Those from this one on go first in the next round, before the lines queued in this one."""
    cdef Line *last = line
    line.state |= IS_QUEUED
    while last.next is not NULL:
        last = last.next
    last.next = thread.first
    if thread.first is NULL:
        thread.last = last
    thread.first = line


cdef bint report(IoThread *thread, Line *line) noexcept nogil:
    """Pay what is owed, GONE last of all; False: the ring is full."""
    cdef char *data
    cdef size_t room
    cdef int kind
    for kind in range(ARGUMENT, GONE + 1):
        if line.owed & (1 << kind):
            data = ring_room(&thread.inward, sizeof(Collected), sizeof(Collected), &room)
            if data is NULL:
                return False
            if kind <= COLLECTING:
                memcpy(data, &line.argument, sizeof(Collected))
                ring_commit(&thread.inward, line, kind, sizeof(Collected))
            else:
                memcpy(data, &line.error, sizeof(int))
                ring_commit(&thread.inward, line, kind, sizeof(int))
            if kind == ARGUMENT:
                line.argument.block = NULL
            line.owed &= ~(1 << kind)
    return True


cdef void owe(IoThread *thread, Line *line, Inward kind) noexcept nogil:
    """Report something as soon as there is room."""
    line.owed |= 1 << <int>kind
    queue(thread, line)


cdef bint receive(IoThread *thread, Line *line) noexcept nogil:
    """Receive once, if that is possible; False: the ring is full."""
    cdef size_t room, cut, length = 0
    cdef char *data
    cdef ssize_t size
    if not can_receive(line):
        return True
    if line.argument.block is not NULL:
        collect(thread, line)
        return True
    data = ring_room(&thread.inward, LEAST_INPUT, MOST_INPUT, &room)
    if data is NULL:
        return False
    size = c_recv(line.fd, data, room, 0)
    if size > 0:
        cut = find_cut(line, data, <size_t>size, &length) if thread.collects else 0
        if cut and begin_argument(&line.argument, data + cut, <size_t>size - cut, length):
            ring_commit(&thread.inward, line, INPUT, cut)
            line.owed |= 1 << COLLECTING
            report(thread, line)
        else:
            ring_commit(&thread.inward, line, INPUT, <size_t>size)
    follow_receiving(thread, line, size, room)
    return True


cdef void follow_receiving(IoThread *thread, Line *line, ssize_t size, size_t room) noexcept nogil:
    """The kernel has been asked for `room` bytes, with this result."""
    if size > 0:
        streamd_store(&thread.reads, thread.reads + 1)
        if <size_t>size < room and not line.state & PEER_ENDED:
            line.state &= ~HAS_INPUT
    elif size == 0:
        line.state |= IS_DEAF
        owe(thread, line, AT_END)
    elif errno == EAGAIN:
        line.state &= ~HAS_INPUT
    elif errno != EINTR:
        fail(thread, line, errno)
    queue(thread, line)


cdef size_t find_cut(Line *line, const char *data, size_t size, size_t *length) noexcept nogil:
    """Where in input the bytes of a long argument begin that is not complete, and their number; 0: nowhere."""
    cdef const char *end = data + size
    cdef const char *p = end - 1
    cdef int64_t missing = line.missing, number
    line.missing = 0
    if p[0] == c'\n':            # what ends with a line is complete, unless that is the head of an argument
        p -= 2
        while p > data and c'0' <= p[0] <= c'9':
            p -= 1
        if p < data or p[0] != c'$':
            return 0
    p = data
    while p < end:
        if p[0] != (c'$' if missing else c'*'):
            return 0
        number = 0
        p += 1
        while p < end and c'0' <= p[0] <= c'9' and number < 100000000:
            number = 10 * number + (p[0] - c'0')
            p += 1
        if end - p < 2 or p[0] != c'\r':
            return 0
        p += 2
        if not missing:
            missing = number
            if not missing:
                return 0
        elif end - p >= number + 2:
            p += number + 2
            missing -= 1
        elif number >= LEAST_LONG:
            line.missing = missing - 1
            length[0] = <size_t>number
            return <size_t>(p - data)
        else:
            return 0
    return 0


# --- Long arguments --------------------------------------------------------------------------------------------------

cdef bint begin_argument(Collected *argument, const char *data, size_t size, size_t length) noexcept nogil:
    """Collect an argument of `length` bytes, of which these are the first; False: no memory."""
    argument.size = length + 2
    argument.filled = size
    argument.room = min(argument.size, <size_t>FIRST_ROOM)
    argument.block = <char *>PyMem_RawMalloc(OBJECT_HEAD + argument.room)
    if argument.block is NULL:
        return False
    memcpy(argument.block + OBJECT_HEAD, data, size)
    return True


cdef void collect(IoThread *thread, Line *line) noexcept nogil:
    """Receive more of an argument."""
    cdef Collected *argument = &line.argument
    cdef size_t room
    cdef ssize_t size
    cdef char *block
    if argument.filled == argument.room:
        room = min(argument.size, 2 * argument.room)
        block = <char *>PyMem_RawRealloc(argument.block, OBJECT_HEAD + room)
        if block is NULL:
            hand_over(thread, line)
            return
        argument.block = block
        argument.room = room
    room = min(argument.room - argument.filled, <size_t>MOST_COLLECTED)
    size = c_recv(line.fd, argument.block + OBJECT_HEAD + argument.filled, room, 0)
    if size > 0:
        argument.filled += <size_t>size
        if argument.filled < argument.size:
            line.owed |= 1 << COLLECTING
        else:
            line.owed = (line.owed | 1 << ARGUMENT) & ~(1 << COLLECTING)
        report(thread, line)
    follow_receiving(thread, line, size, room)


cdef void hand_over(IoThread *thread, Line *line) noexcept nogil:
    """The loop gets what there is of an argument, and all that follows as input."""
    if line.argument.block is not NULL:
        line.missing = 0
        line.owed &= ~(1 << COLLECTING)
        owe(thread, line, ARGUMENT)


cdef bytes finish_argument(Collected *argument):
    """A complete argument as an object, which owns the block from now on."""
    cdef char *block = argument.block
    argument.block = NULL
    return streamd_to_bytes(block, <Py_ssize_t>argument.size - 2)


cdef const char *bytes_of(Collected *argument) noexcept nogil:
    return argument.block + OBJECT_HEAD


cdef void drop_argument(Collected *argument) noexcept nogil:
    PyMem_RawFree(argument.block)
    argument.block = NULL


cdef inline void add_part(IoThread *thread, Line *line, char *data, size_t size, SharedBytes *held) noexcept nogil:
    """Send bytes to a line, together with those before and after them. They have to stay until `send_parts`."""
    thread.sending = line
    thread.parts[thread.part_count].iov_base = data
    thread.parts[thread.part_count].iov_len = size
    thread.held[thread.part_count] = held
    thread.part_count += 1


cdef void send_parts(IoThread *thread) noexcept nogil:
    """Send the parts, or keep what the kernel does not accept."""
    cdef Line *line = thread.sending
    cdef iovec *part = thread.parts
    cdef msghdr message
    cdef size_t size = 0
    cdef ssize_t sent = 0
    cdef int error = 0, i
    for i in range(thread.part_count):
        size += part[i].iov_len
    if line.state & (IS_MUTE | IS_GONE):
        sent = <ssize_t>size
    elif line.rest is NULL:
        if thread.part_count == 1:
            sent = c_send(line.fd, part.iov_base, size, SEND_FLAGS)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = part
            message.msg_iovlen = <size_t>thread.part_count
            sent = c_sendmsg(line.fd, &message, SEND_FLAGS)
        if sent >= 0:
            streamd_store(&thread.writes, thread.writes + 1)
        elif errno == EAGAIN or errno == EINTR:
            sent = 0
        else:
            error = errno
            sent = <ssize_t>size
    streamd_store(&line.sent, line.sent + sent)
    for i in range(thread.part_count):
        if <size_t>sent < part[i].iov_len and not error:
            if not keep_rest(line, <char *>part[i].iov_base + sent, part[i].iov_len - <size_t>sent):
                error = ENOMEM
            sent = 0
        else:
            sent -= <ssize_t>part[i].iov_len
        if thread.held[i] is not NULL:
            shared_drop(thread.held[i])
    thread.part_count = 0
    if error:
        fail(thread, line, error)


cdef bint keep_rest(Line *line, const char *data, size_t size) noexcept nogil:
    """Append bytes to the rest; False: no memory."""
    cdef size_t left = line.rest_size - line.rest_at
    cdef char *rest
    if size > line.rest_room - line.rest_size:
        rest = <char *>malloc(2 * (left + size))    # twice: each byte moves a bounded number of times
        if rest is NULL:
            return False
        if left:
            memcpy(rest, line.rest + line.rest_at, left)
        free(line.rest)
        line.rest = rest
        line.rest_at = 0
        line.rest_size = left
        line.rest_room = 2 * (left + size)
    memcpy(line.rest + line.rest_size, data, size)
    line.rest_size += size
    return True


cdef void send_rest(IoThread *thread, Line *line) noexcept nogil:
    """The kernel accepts bytes again."""
    cdef ssize_t sent = c_send(line.fd, line.rest + line.rest_at, line.rest_size - line.rest_at, SEND_FLAGS)
    if sent < 0:
        if errno != EAGAIN and errno != EINTR:
            fail(thread, line, errno)
        return
    streamd_store(&thread.writes, thread.writes + 1)
    streamd_store(&line.sent, line.sent + sent)
    line.rest_at += <size_t>sent
    if line.rest_at < line.rest_size:
        return
    drop_rest(line)
    if line.wants_sent:
        line.wants_sent = False
        owe(thread, line, ALL_SENT)
    if line.state & IS_CLOSING:
        fail(thread, line, 0)


cdef void drop_rest(Line *line) noexcept nogil:
    streamd_store(&line.sent, line.sent + <long long>(line.rest_size - line.rest_at))
    free(line.rest)
    line.rest = NULL
    line.rest_at = line.rest_size = line.rest_room = 0


cdef void fail(IoThread *thread, Line *line, int error) noexcept nogil:
    """The connection is broken, or everything is sent that there was to send (0): the loop decides."""
    drop_rest(line)
    if not line.state & IS_MUTE:
        line.error = error
        line.state |= IS_MUTE | IS_DEAF
        owe(thread, line, FAILED)


cdef void part(IoThread *thread, Line *line) noexcept nogil:
    """Remove a line from the set; nothing but what it has received and GONE is reported of it from here on."""
    if not line.state & IS_GONE:
        line.state |= IS_GONE
        edges_remove(thread.poll_fd, line.fd)
        line.owed = 0
        hand_over(thread, line)
        owe(thread, line, GONE)


# --- For the loop ----------------------------------------------------------------------------------------------------

cdef bint threads_are_supported() noexcept:
    return HAS_THREADS


cdef int io_thread_open(IoThread *thread, int number, int wake_loop_fd) noexcept:
    """Open what a thread needs; -1 and errno if that fails. To be closed in any case."""
    cdef char *inward = <char *>malloc(RING_SIZE)
    cdef char *outward = <char *>malloc(RING_SIZE)
    cdef int bell = bell_open()
    ring_open(&thread.inward, inward, RING_SIZE, wake_loop_fd)
    ring_open(&thread.outward, outward, RING_SIZE, bell)
    thread.number = number
    thread.first = thread.last = NULL
    thread.is_stopping = False
    thread.reads = thread.writes = 0
    thread.part_count = 0
    thread.collects = streamd_frees_raw()
    thread.poll_fd = edges_open(bell) if bell >= 0 else -1
    if inward is NULL or outward is NULL:
        return -1
    return 0 if thread.poll_fd >= 0 else -1


cdef int io_thread_start(IoThread *thread) noexcept:
    """Begin to run; else the number of the error."""
    return thread_start(&thread.id, run, thread, thread.number)


cdef void io_thread_stop(IoThread *thread) noexcept nogil:
    """End a thread that runs, as soon as it has done all that has been posted."""
    post(thread, NULL, STOP, NULL, 0)
    ring_publish(&thread.outward)
    thread_join(thread.id)


cdef void io_thread_close(IoThread *thread) noexcept:
    """Give back what `io_thread_open` has taken. The thread does not run."""
    if thread.poll_fd >= 0:
        c_close(thread.poll_fd)
    if thread.outward.wake_fd >= 0:
        c_close(thread.outward.wake_fd)
    free(thread.inward.data)
    free(thread.outward.data)


cdef int io_thread_add(IoThread *thread, Line *line) noexcept:
    """Hand over a connection; -1 and errno if the kernel refuses."""
    return edges_add(thread.poll_fd, line.fd, line)


cdef void post(IoThread *thread, Line *line, Outward kind, const char *data, size_t size) noexcept nogil:
    """Write a record, which the thread sees after `ring_publish`. Waits for room: a thread never waits for the loop."""
    cdef size_t room = 0
    cdef char *place
    while True:
        place = ring_room(&thread.outward, size, size, &room)
        if place is not NULL:
            break
        ring_publish(&thread.outward)
        sched_yield()
    if size:
        memcpy(place, data, size)
    ring_commit(&thread.outward, line, kind, size)


cdef int open_bell() noexcept:
    """A descriptor that wakes the loop; -1 and errno."""
    return bell_open()


cdef void quiet_bell(int fd) noexcept:
    bell_quiet(fd)
