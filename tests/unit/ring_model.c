/* A writer and a reader at the two ends of a ring, as an IoThread and the loop are. `ring.h` is the block of ring.pxd.

   Usage: ring_model SEED RECORDS SIZE PATIENCE_MS. Every access that is atomic, which is each hand-over, is followed by a pause of random length.
   Exit status: 0 all records came, in order and whole; 1 one did not; 3 a side was not woken in time. */

#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local uint64_t chance;

static uint64_t draw(void) {    /* xorshift */
    chance ^= chance << 13;
    chance ^= chance >> 7;
    return chance ^= chance << 17;
}

static void linger(void) {
    uint64_t pause = draw() % 1024;
    if (pause < 2)
        usleep(pause * 50);
    else if (pause < 40)
        sched_yield();
    else
        for (volatile int at = 0; at < (int)(pause % 64); at++) {}
}

#define LINGER(made) ({ __auto_type value = made; linger(); value; })
#define __atomic_load_n(place, order) LINGER(__atomic_load_n(place, order))
#define __atomic_exchange_n(place, value, order) LINGER(__atomic_exchange_n(place, value, order))
#define __atomic_store_n(place, value, order) (__atomic_store_n(place, value, order), linger())
#include <sched.h>
#include "ring.h"

static streamd_ring ring;
static int writer_fd, patience_ms;
static uint32_t records;
static uint64_t seed;

/* The bytes of a record follow from its number: both sides know them. */
static unsigned char byte_of(uint32_t number, size_t at) { return (unsigned char)(number * 31 + at * 7); }

static void wait_for(int fd, const char *who) {
    struct pollfd wanted = {fd, POLLIN, 0};
    uint64_t rings;
    if (poll(&wanted, 1, patience_ms) != 1) {
        fprintf(stderr, "%s was not woken\n", who);
        _exit(3);
    }
    if (read(fd, &rings, sizeof rings) < 0) {}
}

static void *write_all(void *arg) {
    (void)arg;
    chance = seed * 2 + 1;
    for (uint32_t number = 1; number <= records; number++) {
        size_t most = draw() % (ring.size / 3), least = draw() % 2 ? most : most / 8, room, size;
        char *place;
        while (!(place = ring_room(&ring, least, most, &room))) {
            ring_publish(&ring);
            if (ring_starve(&ring))
                wait_for(writer_fd, "the writer");
        }
        size = room > least ? least + draw() % (room - least + 1) : least;
        for (size_t at = 0; at < size; at++)
            place[at] = (char)byte_of(number, at);
        ring_commit(&ring, (void *)(uintptr_t)size, number, size);
        if (draw() % 3 == 0)
            ring_publish(&ring);
    }
    ring_publish(&ring);
    return NULL;
}

static void *read_all(void *arg) {
    (void)arg;
    chance = seed * 4 + 3;
    for (uint32_t number = 1; number <= records;) {
        size_t before = ring_position(&ring);
        streamd_record *record = ring_next(&ring);
        if (!record) {
            if (ring_release(&ring))
                ring_wake(writer_fd);
            if (ring_doze(&ring))
                wait_for(ring.wake_fd, "the reader");
            ring_rouse(&ring);
            continue;
        }
        if (draw() % 4 == 0 && ring_release_to(&ring, before))      /* those that have been used, not this one */
            ring_wake(writer_fd);
        if (record->kind != number || (uintptr_t)record->line != record->size) {
            fprintf(stderr, "record %u instead of %u\n", record->kind, number);
            _exit(1);
        }
        for (size_t at = 0; at < record->size; at++)
            if (((unsigned char *)(record + 1))[at] != byte_of(number, at)) {
                fprintf(stderr, "record %u is damaged at byte %zu\n", number, at);
                _exit(1);
            }
        number++;
        if (draw() % 4 == 0 && ring_release(&ring))
            ring_wake(writer_fd);
    }
    return NULL;
}

int main(int count, char **words) {
    pthread_t writer, reader;
    if (count != 5)
        return 2;
    seed = strtoull(words[1], NULL, 10);
    chance = seed + 1;
    records = (uint32_t)strtoul(words[2], NULL, 10);
    size_t size = strtoul(words[3], NULL, 10);
    patience_ms = atoi(words[4]);
    writer_fd = eventfd(0, EFD_NONBLOCK);
    ring_open(&ring, aligned_alloc(64, size), size, eventfd(0, EFD_NONBLOCK));
    pthread_create(&writer, NULL, write_all, NULL);
    pthread_create(&reader, NULL, read_all, NULL);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    return 0;
}
