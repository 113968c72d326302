/* The load generator: requests prepared beforehand, many connections, replies counted and not looked at.
 *
 * A benchmark is worth what its load generator leaves to the server, so the loop that sends and reads is this one file,
 * compiled on first use (load.py) and called through ctypes, which releases the GIL. Nothing is allocated while it runs.
 *
 *   count_replies   counts the replies in a piece of what a server sends, cut anywhere: RESP2 and RESP3, nested
 *   run_loop        a closed loop: every connection sends `depth` requests and, when all are answered, the next `depth`
 *   run_fan         one connection sends, others listen: messages to subscribers, or to clients that are blocked, which
 *                   send their request again for each message
 *
 * Sockets are connected and non-blocking, and the caller's. All functions return 0 or one of the FAILED codes below, and
 * fill in a `struct outcome`. The first error reply ends a run: its text is in the outcome.
 */

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#else
#include <poll.h>
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    FAILED_SYSTEM = -1,
    FAILED_SILENCE = -2,
    FAILED_CLOSED = -3,
    FAILED_PROTOCOL = -4,
    FAILED_ERROR = -5,
    FAILED_OVERRUN = -6 /* a listener gets messages faster than its answers leave: what it measures is itself */
};
enum { MAX_DEPTH = 16, RECEIVE = 1 << 18, EVENTS = 512, ERROR_TEXT = 200, PATIENCE_MS = 500 };

/* --- Time ------------------------------------------------------------------------------------------------------- */

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Round trips are counted in a histogram of fixed relative width: values below 32 ns one by one, above that 32 buckets
 * for each power of two. Bucket b holds the values from lower_bound(b) on. */
enum { SUB_BITS = 5, SUB = 1 << SUB_BITS, BUCKETS = 59 * SUB };

static int bucket_of(int64_t ns)
{
    if (ns < SUB)
        return ns < 0 ? 0 : (int)ns;
    int shift = 63 - __builtin_clzll((uint64_t)ns) - SUB_BITS;
    return (shift + 1) * SUB + (int)((ns >> shift) & (SUB - 1));
}

int histogram_buckets(void) { return BUCKETS; }

int64_t histogram_lower_bound(int bucket)
{
    int shift = bucket / SUB - 1;
    return shift < 0 ? bucket : ((int64_t)(SUB + bucket % SUB)) << shift;
}

/* --- Counting replies --------------------------------------------------------------------------------------------- */

enum phase {
    AT_TYPE,   /* the next byte is the type of a reply or of an element */
    IN_NUMBER, /* digits of a length, up to the line's end */
    IN_LINE,   /* the rest of a line that nobody looks at, or an error's text */
    IN_BULK    /* `skip` bytes of a bulk string and the line end behind it */
};

struct counter {
    int64_t replies; /* whole replies seen */
    int64_t pushes;  /* whole pushes (RESP3) seen */
    int64_t errors;  /* error replies, nested ones included */
    int64_t number;  /* of the length that is being read */
    int64_t skip;
    struct {
        int64_t left; /* elements that it still waits for */
        char type;
    } open[MAX_DEPTH]; /* aggregates that have begun, outermost first */
    int depth;
    int phase;
    int negative;
    int is_bad; /* the bytes are no replies */
    char type;
    int error_size;
    char error[ERROR_TEXT + 1]; /* the first error's text */
};

/* An element of the type has ended, and with it the aggregates whose last one it was. */
static inline void end_element(struct counter *c, char type)
{
    for (;;) {
        if (!c->depth) {
            if (type == '>')
                c->pushes++;
            else
                c->replies++;
            return;
        }
        if (--c->open[c->depth - 1].left)
            return;
        type = c->open[--c->depth].type;
        if (type == '|') /* attributes stand before what they belong to, and are no element of anything */
            return;
    }
}

/* The line `<type><number>` has ended. */
static inline void end_number(struct counter *c)
{
    int64_t n = c->negative ? -1 : c->number;
    c->phase = AT_TYPE;
    switch (c->type) {
    case '$': case '=': case '!':
        if (n < 0) {
            end_element(c, c->type);
        } else {
            c->phase = IN_BULK;
            c->skip = n + 2;
        }
        return;
    case '%': case '|':
        n *= 2;
    }
    if (n > 0) {
        if (c->depth == MAX_DEPTH) {
            c->is_bad = 1;
            return;
        }
        c->open[c->depth].left = n;
        c->open[c->depth++].type = c->type;
    } else if (c->type != '|') {
        end_element(c, c->type);
    }
}

/* Count what ends in these bytes, and keep what has begun for the next ones. -1 when the bytes are no replies. */
int count_replies(struct counter *c, const char *p, int64_t size)
{
    const char *end = p + size;
    while (p < end && !c->is_bad) {
        switch (c->phase) {
        case AT_TYPE:
            c->type = *p++;
            switch (c->type) {
            case '!':
                c->errors++;
                if (!c->error_size)
                    c->error_size = (int)strlen(strcpy(c->error, "an error as a bulk string"));
                /* fall through */
            case '$': case '=': case '*': case '~': case '>': case '%': case '|':
                c->phase = IN_NUMBER;
                c->number = 0;
                c->negative = 0;
                break;
            case '-':
                c->errors++;
                /* fall through */
            case '+': case ':': case '_': case ',': case '#': case '(':
                c->phase = IN_LINE;
                break;
            default:
                c->is_bad = 1;
            }
            break;
        case IN_NUMBER:
            for (; p < end && *p != '\n'; p++) {
                if (*p >= '0' && *p <= '9')
                    c->number = c->number * 10 + (*p - '0');
                else if (*p == '-')
                    c->negative = 1;
                else if (*p != '\r')
                    c->is_bad = 1;
            }
            if (p < end) {
                p++;
                end_number(c);
            }
            break;
        case IN_LINE: {
            const char *stop = memchr(p, '\n', (size_t)(end - p));
            const char *behind = stop ? stop + 1 : end;
            if (c->type == '-' && c->errors == 1)
                for (; p < behind && *p != '\r' && *p != '\n' && c->error_size < ERROR_TEXT; p++)
                    c->error[c->error_size++] = *p;
            p = behind;
            if (stop) {
                c->phase = AT_TYPE;
                end_element(c, c->type);
            }
            break;
        }
        case IN_BULK: {
            int64_t take = end - p < c->skip ? end - p : c->skip;
            p += take;
            c->skip -= take;
            if (!c->skip) {
                c->phase = AT_TYPE;
                end_element(c, c->type);
            }
        }
        }
    }
    return c->is_bad ? -1 : 0;
}

int64_t counter_size(void) { return sizeof(struct counter); }

/* --- Connections, and waiting for them ------------------------------------------------------------------------------ */

struct outcome {
    double seconds;   /* of the clock */
    double cpu_s;     /* of this thread */
    int64_t replies;  /* of all connections */
    int64_t messages; /* of listeners: replies and pushes */
    int64_t bytes_in;
    int64_t bytes_out;
    int32_t system_error; /* errno, for FAILED_SYSTEM */
    char error[ERROR_TEXT + 1];
};

struct connection {
    int fd;
    int at;              /* its place among the connections */
    const char *out;     /* what is still to be sent; the caller's bytes */
    int64_t out_left;
    int64_t waiting_for; /* the replies it will have had when its requests are answered */
    int64_t sent_ns;
    int is_full;         /* the socket takes no more: watched for being writable too */
    struct counter count;
};

struct loop {
    struct connection *all;
    int size;
    char *buffer;
    int64_t silent_ms, patience_ms;
    struct outcome *result;
    int64_t *histogram; /* NULL: not wanted */
    int64_t began_ns, began_cpu_ns;
#ifdef __linux__
    int epoll;
    struct epoll_event events[EVENTS];
#else
    struct pollfd *polled;
    int next;
#endif
};

static int watch(struct loop *l, struct connection *c, int is_new)
{
#ifdef __linux__
    struct epoll_event e = {.events = EPOLLIN | (c->is_full ? EPOLLOUT : 0), .data.u32 = (uint32_t)c->at};
    return epoll_ctl(l->epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, c->fd, &e) ? FAILED_SYSTEM : 0;
#else
    (void)is_new;
    l->polled[c->at].fd = c->fd;
    l->polled[c->at].events = POLLIN | (c->is_full ? POLLOUT : 0);
    return 0;
#endif
}

static int open_loop(struct loop *l, const int *fds, int size, int timeout_ms, struct outcome *result)
{
    memset(l, 0, sizeof *l);
    memset(result, 0, sizeof *result);
    l->size = size;
    l->patience_ms = timeout_ms;
    l->result = result;
    l->all = calloc((size_t)size, sizeof *l->all);
    l->buffer = malloc(RECEIVE);
#ifdef __linux__
    l->epoll = epoll_create1(0);
    if (l->epoll < 0)
        return FAILED_SYSTEM;
#else
    l->polled = calloc((size_t)size, sizeof *l->polled);
    if (!l->polled)
        return FAILED_SYSTEM;
#endif
    if (!l->all || !l->buffer)
        return FAILED_SYSTEM;
    for (int i = 0; i < size; i++) {
        l->all[i].fd = fds[i];
        l->all[i].at = i;
        int failed = watch(l, &l->all[i], 1);
        if (failed)
            return failed;
    }
    l->began_cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    l->began_ns = now_ns(CLOCK_MONOTONIC);
    return 0;
}

static int close_loop(struct loop *l, int failed)
{
    l->result->seconds = (double)(now_ns(CLOCK_MONOTONIC) - l->began_ns) / 1e9;
    l->result->cpu_s = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - l->began_cpu_ns) / 1e9;
    if (failed == FAILED_SYSTEM)
        l->result->system_error = errno;
#ifdef __linux__
    close(l->epoll);
#else
    free(l->polled);
#endif
    for (int i = 0; l->all && i < l->size; i++)
        l->result->replies += l->all[i].count.replies;
    free(l->all);
    free(l->buffer);
    return failed;
}

/* Send as much of what is to be sent as the socket takes. */
static int flush(struct loop *l, struct connection *c)
{
    while (c->out_left) {
        ssize_t sent = send(c->fd, c->out, (size_t)c->out_left, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno == ECONNRESET || errno == EPIPE)
                return FAILED_CLOSED;
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                return FAILED_SYSTEM;
            if (!c->is_full) {
                c->is_full = 1;
                return watch(l, c, 0);
            }
            return 0;
        }
        c->out += sent;
        c->out_left -= sent;
        l->result->bytes_out += sent;
    }
    if (c->is_full) {
        c->is_full = 0;
        return watch(l, c, 0);
    }
    return 0;
}

/* Read what there is, once, and count it. */
static int receive(struct loop *l, struct connection *c)
{
    ssize_t size = recv(c->fd, l->buffer, RECEIVE, 0);
    if (size < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0
               : errno == ECONNRESET                                     ? FAILED_CLOSED
                                                                         : FAILED_SYSTEM;
    if (!size)
        return FAILED_CLOSED;
    l->result->bytes_in += size;
    int bad = count_replies(&c->count, l->buffer, size);
    if (c->count.errors) {
        memcpy(l->result->error, c->count.error, sizeof c->count.error);
        return FAILED_ERROR;
    }
    return bad ? FAILED_PROTOCOL : 0;
}

/* Wait until connections can be read or written; how many, or a FAILED code. */
static int wait_for_events(struct loop *l)
{
    for (;;) {
#ifdef __linux__
        int ready = epoll_wait(l->epoll, l->events, EVENTS, PATIENCE_MS);
#else
        int ready = poll(l->polled, (nfds_t)l->size, PATIENCE_MS);
        l->next = 0;
#endif
        if (ready > 0) {
            l->silent_ms = 0;
            return ready;
        }
        if (ready < 0 && errno != EINTR)
            return FAILED_SYSTEM;
        l->silent_ms += PATIENCE_MS;
        if (l->silent_ms > l->patience_ms)
            return FAILED_SILENCE;
    }
}

/* The connection of the i-th event; `wants` says whether it can be read (1) and written (2). */
static struct connection *event_at(struct loop *l, int i, int *wants)
{
#ifdef __linux__
    uint32_t e = l->events[i].events;
    *wants = (e & (EPOLLIN | EPOLLHUP | EPOLLERR) ? 1 : 0) | (e & EPOLLOUT ? 2 : 0);
    return &l->all[l->events[i].data.u32];
#else
    (void)i;
    while (!l->polled[l->next].revents)
        l->next++;
    short e = l->polled[l->next].revents;
    *wants = (e & (POLLIN | POLLHUP | POLLERR) ? 1 : 0) | (e & POLLOUT ? 2 : 0);
    return &l->all[l->next++];
#endif
}

/* Sleep, and the last bit of the time spin. */
static void wait_until(int64_t due_ns)
{
    int64_t left = due_ns - now_ns(CLOCK_MONOTONIC) - 200000;
    if (left > 0) {
        struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        nanosleep(&t, NULL);
    }
    while (now_ns(CLOCK_MONOTONIC) < due_ns)
        ;
}

static void note_time(struct loop *l, int64_t since_ns)
{
    if (l->histogram)
        l->histogram[bucket_of(now_ns(CLOCK_MONOTONIC) - since_ns)]++;
}

/* The connection of event i, when there is something to read; what waits to be sent on it is sent first. */
static struct connection *next_to_read(struct loop *l, int i, int *failed)
{
    int wants;
    struct connection *c = event_at(l, i, &wants);
    if (wants & 2)
        *failed = flush(l, c);
    return *failed || !(wants & 1) ? NULL : c;
}

/* --- The closed loop ------------------------------------------------------------------------------------------------ */

struct work {
    const char *bytes; /* the prepared requests, as run_loop has them */
    const int64_t *offsets;
    int64_t number;
    int64_t next;  /* the request of the ring that comes next */
    int64_t left;  /* requests that are still to be sent */
    int64_t depth;
};

/* Give a connection that has no requests under way its next batch, if there is one. */
static int give(struct loop *l, struct connection *c, struct work *w)
{
    int64_t size = w->left < w->depth ? w->left : w->depth;
    if (!size)
        return 0;
    if (w->next + size > w->number)
        w->next = 0;
    c->out = w->bytes + w->offsets[w->next];
    c->out_left = w->offsets[w->next + size] - w->offsets[w->next];
    c->waiting_for += size;
    w->next += size;
    w->left -= size;
    if (l->histogram)
        c->sent_ns = now_ns(CLOCK_MONOTONIC);
    return flush(l, c);
}

/* Send `total` requests over the connections, `depth` at a time on each, and wait for as many replies.
 *
 * bytes, offsets, number   the prepared requests: request i is bytes[offsets[i]..offsets[i + 1]), a ring; a batch is not
 *                          cut at its end but starts over, so number >= depth
 * histogram                of the time from a batch's sending to its last reply; BUCKETS counts, or NULL
 */
int run_loop(const int *fds, int connections, const char *bytes, const int64_t *offsets, int64_t number, int64_t total,
             int64_t depth, int timeout_ms, int64_t *histogram, struct outcome *result)
{
    struct loop l;
    int64_t answered = 0;
    int failed = open_loop(&l, fds, connections, timeout_ms, result);
    struct work work = {.bytes = bytes, .offsets = offsets, .number = number, .left = total, .depth = depth};
    l.histogram = histogram;
    for (int i = 0; !failed && i < connections; i++)
        failed = give(&l, &l.all[i], &work);
    while (!failed && answered < total) {
        int ready = wait_for_events(&l);
        if (ready < 0)
            failed = ready;
        for (int i = 0; !failed && i < ready; i++) {
            struct connection *c = next_to_read(&l, i, &failed);
            if (!c)
                continue;
            int64_t before = c->count.replies;
            failed = receive(&l, c);
            answered += c->count.replies - before;
            if (!failed && c->count.replies == c->waiting_for && c->count.replies > before) {
                note_time(&l, c->sent_ns);
                failed = give(&l, c, &work);
            }
        }
    }
    return close_loop(&l, failed);
}

/* --- One sends, others listen --------------------------------------------------------------------------------------- */

/* Send `rounds` batches of `depth` requests on the first connection; the others are listeners, and `expected` messages
 * (replies or pushes, over all of them) come for each batch. `window` batches may be under way at a time.
 *
 * answers   what a listener sends for each message that it gets, a ring by how many it has had: the first message is
 *           answered with request 1 of the ring, since request 0 has been sent by the caller; answer_number 0: nothing;
 *           has_own_answers: not a ring, but one request for each listener, in their order
 * barrier   a request that the sender sends and waits for between rounds, so that answers have arrived before the next
 *           round; needs a window of 1; size 0: none
 * histogram of the time from a batch's sending to its last message and reply; exact when the window is 1
 * interval_ns   time between the starts of rounds, or longer when a round takes longer; 0: at once
 */
int run_fan(const int *fds, int connections, const char *bytes, const int64_t *offsets, int64_t number, int64_t rounds,
            int64_t depth, int64_t window, int64_t expected, const char *answers, const int64_t *answer_offsets,
            int64_t answer_number, int has_own_answers, const char *barrier, int64_t barrier_size, int64_t interval_ns,
            int timeout_ms, int64_t *histogram, struct outcome *result)
{
    struct loop l;
    int64_t sent = 0, done = 0, next = 0, barriers = 0;
    int is_behind_barrier = 1; /* nothing lies between now and the next round */
    int failed = open_loop(&l, fds, connections, timeout_ms, result);
    struct connection *sender = l.all;
    l.histogram = histogram;
    while (!failed && (done < rounds || !is_behind_barrier)) {
        while (!failed && is_behind_barrier && sent < rounds && sent < done + window && !sender->out_left) {
            if (next + depth > number)
                next = 0;
            sender->out = bytes + offsets[next];
            sender->out_left = offsets[next + depth] - offsets[next];
            next += depth;
            sent++;
            if (interval_ns)
                wait_until(l.began_ns + sent * interval_ns);
            if (histogram)
                sender->sent_ns = now_ns(CLOCK_MONOTONIC);
            failed = flush(&l, sender);
        }
        int ready = failed ? 0 : wait_for_events(&l);
        if (ready < 0)
            failed = ready;
        for (int i = 0; !failed && i < ready; i++) {
            struct connection *c = next_to_read(&l, i, &failed);
            if (!c)
                continue;
            int64_t before = c->count.replies + c->count.pushes;
            failed = receive(&l, c);
            if (failed || c == sender)
                continue;
            int64_t has_had = c->count.replies + c->count.pushes;
            result->messages += has_had - before;
            if (answer_number && has_had > before) {
                if (c->out_left) {
                    failed = FAILED_OVERRUN;
                    continue;
                }
                int64_t at = has_own_answers ? c - sender - 1 : has_had % answer_number;
                c->out = answers + answer_offsets[at];
                c->out_left = answer_offsets[at + 1] - answer_offsets[at];
                failed = flush(&l, c);
            }
        }
        if (failed)
            break;
        while (done < sent && sender->count.replies - barriers >= (done + 1) * depth
               && result->messages >= (done + 1) * expected && is_behind_barrier) {
            note_time(&l, sender->sent_ns);
            done++;
            if (barrier_size) {
                is_behind_barrier = 0;
                sender->out = barrier;
                sender->out_left = barrier_size;
                failed = flush(&l, sender);
            }
        }
        if (!is_behind_barrier && sender->count.replies >= done * depth + barriers + 1) {
            barriers++;
            is_behind_barrier = 1;
        }
    }
    return close_loop(&l, failed);
}
