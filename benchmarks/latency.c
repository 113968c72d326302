/* The load of the latency test: messages that are due at fixed times, and consumers of a group that read them.
 *
 * One thread does both: it sends what is due, then handles whatever replies have come, over and over, and does not sleep
 * (`may_spin`), or sleeps until the next message is due. Messages are due at fixed times whatever the server does, and a message holds the time it was due, not
 * the time it was sent: a server that stops for a second is charged with all that fell into that second.
 *
 * A message is `prefix` and its time: nanoseconds since 1970, always TIME_DIGITS digits, and CRLF. Times within the run are
 * nanoseconds since its start, on the monotonic clock; `epoch_ns` is that start on the wall clock.
 *
 * A consumer sends XREADGROUP; when its reply has come whole, the delays of its entries are noted, and XACK of them and the
 * next XREADGROUP leave together. Replies are taken apart as they come, in RESP2 or RESP3: what matters is the order of the
 * bulk strings, key, then ID, field and time of each entry.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#include <sys/prctl.h>
#endif

#define TIME_DIGITS 19
#define RECEIVE (1 << 18) /* bytes that one recv may bring */
#define IDLE_NS 1000000   /* the longest sleep of a load that does not spin */
#define PER_ENTRY 3       /* bulk strings of an entry: ID, field, time */
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: a broken connection raises SIGPIPE, which Python ignores */
#endif

/* --- What Python gives and gets; the ctypes structures of latency.py have the same fields in the same order ------------- */

typedef struct {
    const int32_t *producers; /* connected descriptors, set not to wait */
    const int32_t *consumers;
    const char **reads; /* the XREADGROUP of each consumer */
    const int64_t *read_sizes;
    const char *add; /* the XADD up to the time */
    int64_t add_size;
    const char *ack; /* the XACK after its number of arguments; no bytes: messages are not acknowledged */
    int64_t ack_size;
    int64_t n_producers;
    int64_t n_consumers;
    int64_t messages;    /* in all */
    int64_t interval_ns; /* between two messages that are due */
    int64_t grace_ns;    /* how long nothing may come after the last message was due */
    int32_t may_spin;    /* whether this thread may take a processor for itself */
    volatile int32_t stop; /* set by another thread to end the run */
} Plan;

typedef struct {
    int64_t *delays_ns;   /* of each message from when it was due until it was read; -1: it has not come */
    int64_t *lateness_ns; /* of each message from when it was due until it was handed to the kernel */
    int64_t sent;
    int64_t received;
    int64_t acknowledged;
    int64_t reads;   /* replies with entries */
    int64_t late_ns; /* how long the run took after the last message was due */
    char error[256];
} Result;

/* --- Connections ---------------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t size, room;
} Buffer;

typedef struct {
    int fd;
    int is_consumer;
    const char *read; /* a consumer's request */
    size_t read_size;
    Buffer out; /* what the kernel has not taken yet, from `out_at` */
    size_t out_at;
    Buffer in; /* what has come and is no whole element yet */
    Buffer ids; /* the IDs of the reply that is being read, as bulk strings */
    Buffer dues; /* the times of its messages, int64_t each */
    int64_t left; /* elements of the reply that are still to come */
    int64_t number; /* the integer that the reply is */
    int64_t strings; /* bulk strings of it so far */
    char kind; /* its first byte */
} Connection;

typedef struct {
    const Plan *plan;
    Result *result;
    Connection *all; /* producers, then consumers */
    size_t n;
    int64_t start_ns; /* monotonic */
    int64_t epoch_ns;
    int64_t answered; /* XADDs */
    int64_t advanced_ns; /* when a message or an answer has come last */
    int poll_fd;
    struct pollfd *polled; /* where there is no epoll */
} Run;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int fail(Run *run, const char *what, const char *detail, size_t size) {
    snprintf(run->result->error, sizeof run->result->error, "%s%.*s", what, (int)(size > 200 ? 200 : size), detail);
    return -1;
}

static int fail_errno(Run *run, const char *what) {
    const char *text = strerror(errno);
    return fail(run, what, text, strlen(text));
}

static int put(Buffer *buffer, const void *bytes, size_t size) {
    if (buffer->size + size > buffer->room) {
        size_t room = (buffer->size + size) * 2;
        char *grown = realloc(buffer->bytes, room);
        if (grown == NULL)
            return -1;
        buffer->bytes = grown;
        buffer->room = room;
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return 0;
}

/* Give the kernel what it takes; the rest stays. */
static int flush(Run *run, Connection *c) {
    while (c->out_at < c->out.size) {
        ssize_t done = send(c->fd, c->out.bytes + c->out_at, c->out.size - c->out_at, MSG_NOSIGNAL);
        if (done < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return 0;
            if (errno == EINTR)
                continue;
            return fail_errno(run, "send: ");
        }
        c->out_at += (size_t)done;
    }
    c->out.size = c->out_at = 0;
    return 0;
}

/* --- Replies --------------------------------------------------------------------------------------------------------- */

static int64_t parse_number(const char *p) {
    int64_t value = 0;
    int is_negative = *p == '-';
    for (p += is_negative; *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (*p - '0');
    return is_negative ? -value : value;
}

/* A bulk string of a consumer's reply: key, then ID, field and time of each entry. */
static int take_string(Run *run, Connection *c, const char *head, const char *body, int64_t size) {
    int64_t at = c->strings++ - 1;
    if (at < 0 || c->kind == '>')
        return 0;
    if (at % PER_ENTRY == 0 && run->plan->ack_size)
        return put(&c->ids, head, (size_t)(body - head + size + 2));
    if (at % PER_ENTRY == PER_ENTRY - 1) {
        int64_t due = parse_number(body) - run->epoch_ns;
        return put(&c->dues, &due, sizeof due);
    }
    return 0;
}

/* A reply of XREADGROUP is whole, or there was none in time: note delays, acknowledge, ask for more. */
static int finish_read(Run *run, Connection *c, int64_t now_ns) {
    const Plan *plan = run->plan;
    Result *result = run->result;
    size_t number = c->dues.size / sizeof(int64_t);
    const int64_t *dues = (const int64_t *)(const void *)c->dues.bytes;
    for (size_t i = 0; i < number; i++) {
        int64_t at = dues[i] / plan->interval_ns;
        if (dues[i] < 0 || at >= plan->messages || result->delays_ns[at] >= 0)
            return fail(run, "a message came that is not one of this run, or came twice", "", 0);
        result->delays_ns[at] = now_ns - dues[i];
    }
    result->received += (int64_t)number;
    result->reads += number > 0;
    if (number)
        run->advanced_ns = now_ns;
    if (number && plan->ack_size) {
        char head[32];
        int size = snprintf(head, sizeof head, "*%zu\r\n", number + 3);
        if (put(&c->out, head, (size_t)size) || put(&c->out, plan->ack, (size_t)plan->ack_size) ||
            put(&c->out, c->ids.bytes, c->ids.size))
            return fail(run, "out of memory", "", 0);
    }
    c->ids.size = c->dues.size = 0;
    if (put(&c->out, c->read, c->read_size))
        return fail(run, "out of memory", "", 0);
    return flush(run, c);
}

static int finish_reply(Run *run, Connection *c, int64_t now_ns) {
    if (c->kind == '>')
        return 0;
    if (c->is_consumer && c->kind != ':')
        return finish_read(run, c, now_ns);
    if (c->is_consumer)
        run->result->acknowledged += c->number;
    else
        run->answered++;
    run->advanced_ns = now_ns;
    return 0;
}

/* Take apart what has come. An element is a line, and for a bulk string its bytes too; `left` counts those to come. */
static int parse(Run *run, Connection *c, int64_t now_ns) {
    char *p = c->in.bytes, *end = p + c->in.size, *newline;
    while (p < end && (newline = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        char *next = newline + 1, type = *p;
        int64_t number = type == '+' ? 0 : parse_number(p + 1);
        if (type == '-' || type == '!')
            return fail(run, "the server answered ", p, (size_t)(newline - p - 1));
        if (type == '$' && number >= 0) {
            if (end - next < number + 2)
                break;
            next += number + 2;
        }
        if (c->left == 0) {
            c->kind = type;
            c->left = 1;
            c->strings = 0;
            c->number = number;
        }
        c->left--;
        if (number > 0 && (type == '*' || type == '~' || type == '>'))
            c->left += number;
        else if (number > 0 && type == '%')
            c->left += 2 * number;
        else if (type == '$' && number >= 0 && c->is_consumer && take_string(run, c, p, newline + 1, number))
            return fail(run, "out of memory", "", 0);
        p = next;
        if (c->left == 0 && finish_reply(run, c, now_ns))
            return -1;
    }
    c->in.size = (size_t)(end - p);
    memmove(c->in.bytes, p, c->in.size);
    return 0;
}

static int receive(Run *run, Connection *c) {
    for (;;) {
        if (c->in.room - c->in.size < RECEIVE) {
            size_t room = (c->in.size + RECEIVE) * 2;
            char *grown = realloc(c->in.bytes, room);
            if (grown == NULL)
                return fail(run, "out of memory", "", 0);
            c->in.bytes = grown;
            c->in.room = room;
        }
        size_t asked = c->in.room - c->in.size;
        ssize_t got = recv(c->fd, c->in.bytes + c->in.size, asked, 0);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : fail_errno(run, "recv: ");
        }
        if (got == 0)
            return fail(run, "the server closed a connection", "", 0);
        c->in.size += (size_t)got;
        if (parse(run, c, clock_ns(CLOCK_MONOTONIC) - run->start_ns))
            return -1;
        if ((size_t)got < asked)
            return 0;
    }
}

/* --- Waiting --------------------------------------------------------------------------------------------------------- */

static int start_polling(Run *run) {
#ifdef __linux__
    run->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (run->poll_fd < 0)
        return fail_errno(run, "epoll_create1: ");
    for (size_t i = 0; i < run->n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &run->all[i]};
        if (epoll_ctl(run->poll_fd, EPOLL_CTL_ADD, run->all[i].fd, &event))
            return fail_errno(run, "epoll_ctl: ");
    }
#else
    run->polled = calloc(run->n, sizeof *run->polled);
    if (run->polled == NULL)
        return fail(run, "out of memory", "", 0);
    for (size_t i = 0; i < run->n; i++)
        run->polled[i] = (struct pollfd){.fd = run->all[i].fd, .events = POLLIN};
#endif
    return 0;
}

/* Handle what has come; wait at most so long when nothing has. */
static int handle_replies(Run *run, int64_t timeout_ns) {
#ifdef __linux__
    struct epoll_event events[64];
    if (timeout_ns > 0) {
        /* epoll_wait knows milliseconds only. */
        struct pollfd all = {.fd = run->poll_fd, .events = POLLIN};
        struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
        if (ppoll(&all, 1, &timeout, NULL) <= 0)
            return 0;
    }
    int ready = epoll_wait(run->poll_fd, events, 64, 0);
    for (int i = 0; i < ready; i++)
        if (receive(run, events[i].data.ptr))
            return -1;
#else
    int ready = poll(run->polled, (nfds_t)run->n, (int)(timeout_ns / 1000000));
    for (size_t i = 0; ready > 0 && i < run->n; i++)
        if (run->polled[i].revents && receive(run, &run->all[i]))
            return -1;
#endif
    if (ready < 0 && errno != EINTR)
        return fail_errno(run, "waiting for replies: ");
    return 0;
}

/* --- The run ----------------------------------------------------------------------------------------------------------- */

/* Write down the messages that are due. Producers take turns. */
static int add_due(Run *run, int64_t now_ns) {
    const Plan *plan = run->plan;
    Result *result = run->result;
    int64_t first = result->sent, due;
    while (result->sent < plan->messages && (due = result->sent * plan->interval_ns) <= now_ns) {
        Connection *c = &run->all[result->sent % plan->n_producers];
        char digits[TIME_DIGITS + 3];
        snprintf(digits, sizeof digits, "%0*lld\r\n", TIME_DIGITS, (long long)(due + run->epoch_ns));
        if (put(&c->out, plan->add, (size_t)plan->add_size) || put(&c->out, digits, TIME_DIGITS + 2))
            return fail(run, "out of memory", "", 0);
        result->lateness_ns[result->sent++] = now_ns - due;
        /* After a pause many are due: the first of them need not wait for the last to be written down. */
        if (result->sent - first >= 256)
            break;
    }
    return 0;
}

static int is_complete(const Run *run) {
    const Plan *plan = run->plan;
    return run->answered == plan->messages && run->result->received == plan->messages &&
           (!plan->ack_size || run->result->acknowledged == plan->messages);
}

static int work(Run *run) {
    const Plan *plan = run->plan;
    Result *result = run->result;
    for (size_t i = (size_t)plan->n_producers; i < run->n; i++)
        if (put(&run->all[i].out, run->all[i].read, run->all[i].read_size) || flush(run, &run->all[i]))
            return -1;
    int64_t end_ns = plan->messages * plan->interval_ns;
    while (!is_complete(run)) {
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC) - run->start_ns;
        int64_t last_ns = run->advanced_ns > end_ns ? run->advanced_ns : end_ns;
        if (plan->stop)
            return fail(run, "interrupted", "", 0);
        if (now_ns > last_ns + plan->grace_ns)
            return fail(run, "messages or replies are missing", "", 0);
        if (add_due(run, now_ns))
            return -1;
        int has_rest = 0; /* the kernel has not taken everything */
        for (size_t i = 0; i < run->n; i++) {
            if (run->all[i].out.size && flush(run, &run->all[i]))
                return -1;
            has_rest |= run->all[i].out.size > 0;
        }
        int64_t wait_ns = 0;
        if (!plan->may_spin) {
            wait_ns = result->sent < plan->messages ? result->sent * plan->interval_ns - now_ns : IDLE_NS;
            wait_ns = wait_ns < 0 || has_rest ? 0 : wait_ns < IDLE_NS ? wait_ns : IDLE_NS;
        }
        if (handle_replies(run, wait_ns))
            return -1;
    }
    result->late_ns = clock_ns(CLOCK_MONOTONIC) - run->start_ns - end_ns;
    return 0;
}

/* Run the plan; 0, or -1 with the reason in `error`. The arrays of the result have room for all messages. */
int32_t measure_latency(const Plan *plan, Result *result) {
    Run run = {.plan = plan, .result = result, .n = (size_t)(plan->n_producers + plan->n_consumers), .poll_fd = -1};
    int status = -1;
    result->sent = result->received = result->acknowledged = result->reads = result->late_ns = 0;
    result->error[0] = 0;
    memset(result->delays_ns, 0xff, (size_t)plan->messages * sizeof(int64_t));
    memset(result->lateness_ns, 0, (size_t)plan->messages * sizeof(int64_t));
    run.all = calloc(run.n, sizeof *run.all);
    if (run.all == NULL)
        return fail(&run, "out of memory", "", 0);
    for (size_t i = 0; i < run.n; i++) {
        int64_t consumer = (int64_t)i - plan->n_producers;
        Connection *c = &run.all[i];
        c->is_consumer = consumer >= 0;
        c->fd = consumer >= 0 ? plan->consumers[consumer] : plan->producers[i];
        if (consumer >= 0) {
            c->read = plan->reads[consumer];
            c->read_size = (size_t)plan->read_sizes[consumer];
        }
    }
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1); /* of this thread, which is the run's own: it wakes when it said */
#endif
    run.start_ns = clock_ns(CLOCK_MONOTONIC);
    run.epoch_ns = clock_ns(CLOCK_REALTIME);
    if (start_polling(&run) == 0)
        status = work(&run);
    for (size_t i = 0; i < run.n; i++) {
        free(run.all[i].out.bytes);
        free(run.all[i].in.bytes);
        free(run.all[i].ids.bytes);
        free(run.all[i].dues.bytes);
    }
    if (run.poll_fd >= 0)
        close(run.poll_fd);
    free(run.polled);
    free(run.all);
    return status;
}
