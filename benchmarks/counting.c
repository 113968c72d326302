/* What benchmarks/counted.py needs inside a process that runs under callgrind; loaded ahead of the C library.

   Time stands still, but for what the process lets pass itself: else the IDs of entries, and with them the bytes that
   are written, would differ from run to run. And callgrind is told when to count, and which name a count has. */

#include <stdint.h>
#include <time.h>
#include <valgrind/callgrind.h>

static int64_t passed_us = 1000000;                     /* since an imaginary start */
static const int64_t start_us = 1700000000000000;       /* Unix time of that start */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int64_t us = passed_us + (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? start_us : 0);
    t->tv_sec = us / 1000000;
    t->tv_nsec = us % 1000000 * 1000;
    return 0;
}

void let_time_pass(int64_t us) { passed_us += us; }

/* Until then the process runs about ten times as fast. */
void start_instrumentation(void) { CALLGRIND_START_INSTRUMENTATION; }

/* Count from here on, or no more: instructions of the main thread and all that it calls. */
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }

void forget(void) { CALLGRIND_ZERO_STATS; }

/* Write what has been counted to a file of its own, under a name. */
void dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
