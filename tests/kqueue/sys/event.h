/* kqueue for a Linux that has none: what streamd/sockets/poller.pyx asks of it, on epoll. For tests alone: see ../run.

   As the manual pages of the BSDs have it: a filter of a descriptor for reading and one for writing, each added, found and
   deleted by itself, each an event of its own; EV_EOF when the peer has closed; nothing of a descriptor without filters;
   deleting a filter that does not exist is an error; closing a descriptor deletes its filters. */

#ifndef TESTS_KQUEUE_SYS_EVENT_H
#define TESTS_KQUEUE_SYS_EVENT_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define EVFILT_READ (-1)
#define EVFILT_WRITE (-2)
#define EV_ADD 0x0001
#define EV_DELETE 0x0002
#define EV_EOF 0x8000

struct kevent {
    uintptr_t ident;
    short filter;
    unsigned short flags;
    unsigned int fflags;
    int64_t data;
    void *udata;
};

#define EV_SET(kev, a, b, c, d, e, f) \
    (*(kev) = (struct kevent){.ident = (a), .filter = (b), .flags = (c), .fflags = (d), .data = (e), .udata = (f)})

enum { MOST_FDS = 4096 };

struct kqueue_note {            /* of one descriptor in one queue */
    int filters;                /* 1: for reading, 2: for writing */
    void *udata[2];
};

static struct kqueue_note *kqueue_notes[MOST_FDS];      /* by the descriptor of the queue */

static int kqueue(void) {
    int queue = epoll_create1(0);
    if (queue < 0) return -1;
    if (queue >= MOST_FDS) abort();
    free(kqueue_notes[queue]);
    kqueue_notes[queue] = calloc(MOST_FDS, sizeof(struct kqueue_note));
    return queue;
}

static int kqueue_change(int queue, const struct kevent *change) {
    int fd = (int)change->ident, at = change->filter == EVFILT_WRITE, bit = 1 << at;
    if (fd < 0 || fd >= MOST_FDS) abort();
    struct kqueue_note *note = &kqueue_notes[queue][fd];
    struct epoll_event event = {0};
    if (note->filters) {        /* unless the descriptor was closed since */
        event.events = (note->filters & 1 ? EPOLLIN | EPOLLRDHUP : 0) | (note->filters & 2 ? EPOLLOUT : 0);
        event.data.fd = fd;
        if (epoll_ctl(queue, EPOLL_CTL_MOD, fd, &event) < 0) note->filters = 0;
    }
    int before = note->filters, after = change->flags & EV_ADD ? before | bit : before & ~bit;
    if (change->flags & EV_DELETE && !(before & bit)) {
        errno = ENOENT;
        return -1;
    }
    event.events = (after & 1 ? EPOLLIN | EPOLLRDHUP : 0) | (after & 2 ? EPOLLOUT : 0);
    event.data.fd = fd;
    if (epoll_ctl(queue, before ? after ? EPOLL_CTL_MOD : EPOLL_CTL_DEL : EPOLL_CTL_ADD, fd, &event) < 0) return -1;
    note->filters = after;
    note->udata[at] = change->udata;
    return 0;
}

static int kevent(int queue, const struct kevent *changes, int n, struct kevent *events, int most, const struct timespec *timeout) {
    struct epoll_event found[256];
    int count = 0;
    for (int i = 0; i < n; i++)
        if (kqueue_change(queue, &changes[i]) < 0) return -1;
    if (most < 2) return 0;
    int ms = timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000) : -1;
    int ready = epoll_wait(queue, found, most / 2 < 256 ? most / 2 : 256, ms);
    if (ready < 0) return -1;
    for (int i = 0; i < ready; i++) {
        struct kqueue_note *note = &kqueue_notes[queue][found[i].data.fd];
        unsigned bits = found[i].events;
        unsigned short at_end = bits & (EPOLLHUP | EPOLLERR) ? EV_EOF : 0;
        if (note->filters & 2 && bits & (EPOLLOUT | EPOLLHUP | EPOLLERR))
            EV_SET(&events[count++], found[i].data.fd, EVFILT_WRITE, at_end, 0, 0, note->udata[1]);
        if (note->filters & 1 && bits & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            EV_SET(&events[count++], found[i].data.fd, EVFILT_READ, at_end | (bits & EPOLLRDHUP ? EV_EOF : 0), 0, 0, note->udata[0]);
    }
    return count;
}

#endif
