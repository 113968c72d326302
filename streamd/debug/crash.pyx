# cython: language_level=3
"""Reports of crashes in the log, and on demand the stacks of a server that hangs.

SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT: the handler writes signal, address and sender, and the stacks of Python and
of C. It allocates nothing, takes no lock, and runs on a stack of its own (the fault may be an overflow of the usual
one). What needs more (INFO, the command that ran, the clients) is written by a child that it forks: if something is
broken in this process, only the child dies of it, or of its alarm, and the handler continues. Then the signal is raised
again, with its default action: exit status and core file are those of the crash. A second fault inside the handler ends
the process by the same signal.

SIGALRM: the stacks are written and the server goes on. It is sent by hand, or by the timer of `watchdog-period`,
which the cron sets again each time: it expires when the event loop has not completed a turn for that long.

Python's stacks are written by the handler that `faulthandler` registers for SIGALRM, which this one replaces and calls.
It writes to file descriptor 2, which is redirected to the log meanwhile. C's stacks are those of backtrace(), where the
C library has it.
"""

from libc.string cimport memcpy

import faulthandler
import signal
import sys

__all__ = ["die", "install", "set_enabled", "set_watchdog"]

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <signal.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__has_include)
    #if __has_include(<execinfo.h>)
    #include <execinfo.h>
    #define STREAMD_HAS_BACKTRACE 1
    #endif
    #endif

    /* fork() would wait for the locks of heaps, one of which the crash may have left locked. */
    #if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
    #define STREAMD_FORK _Fork
    #else
    #define STREAMD_FORK fork
    #endif

    #define STREAMD_STACK_BYTES (1 << 20)
    #define STREAMD_FRAMES 128
    #define STREAMD_CHILD_S 10

    static const int streamd_deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char streamd_log_path[4096];          /* empty: standard output */
    static char streamd_version[64];
    static PyObject *streamd_report;             /* called with a file descriptor, in a child */
    static void (*streamd_dump_python)(int);     /* faulthandler's handler of SIGALRM */

    static void streamd_put(int fd, const char *text) {
        size_t left = strlen(text);
        while (left) {
            ssize_t n = write(fd, text, left);
            if (n <= 0) return;
            text += n;
            left -= (size_t)n;
        }
    }

    static void streamd_put_number(int fd, unsigned long long number, unsigned base) {
        char digits[24], *p = digits + sizeof(digits) - 1;
        *p = 0;
        do {
            *--p = "0123456789abcdef"[number % base];
            number /= base;
        } while (number);
        streamd_put(fd, p);
    }

    static void streamd_put_int(int fd, const char *name, long long number) {
        streamd_put(fd, name);
        if (number < 0) streamd_put(fd, "-");
        streamd_put_number(fd, (unsigned long long)(number < 0 ? -number : number), 10);
    }

    /* The head of a line, as process/log.py writes it for signal handlers. */
    static void streamd_put_head(int fd) {
        streamd_put_int(fd, "", getpid());
        streamd_put_int(fd, ":signal-handler (", time(NULL));
        streamd_put(fd, ") ");
    }

    static int streamd_open_log(void) {
        int fd = -1;
        if (streamd_log_path[0]) fd = open(streamd_log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        return fd < 0 ? STDOUT_FILENO : fd;
    }

    static void streamd_put_stacks(int fd) {
        int keep;
        streamd_put(fd, "\\n------ STACK TRACE ------\\n");
        if (streamd_dump_python && (keep = dup(STDERR_FILENO)) >= 0) {
            dup2(fd, STDERR_FILENO);
            streamd_dump_python(SIGALRM);
            dup2(keep, STDERR_FILENO);
            close(keep);
        }
    #ifdef STREAMD_HAS_BACKTRACE
        void *frames[STREAMD_FRAMES];
        streamd_put(fd, "\\nC, the most recent call first:\\n");
        backtrace_symbols_fd(frames, backtrace(frames, STREAMD_FRAMES), fd);
    #endif
        streamd_put(fd, "\\n------ STACK TRACE DONE ------\\n");
    }

    static void streamd_set_default(int number) {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        action.sa_handler = SIG_DFL;
        sigemptyset(&action.sa_mask);
        sigaction(number, &action, NULL);
    }

    static void streamd_report_in_child(int fd) {
        int status = -1;
        pid_t pid = STREAMD_FORK();
        if (pid == 0) {
            sigset_t none;
            for (size_t i = 0; i < sizeof(streamd_deadly) / sizeof(int); i++) streamd_set_default(streamd_deadly[i]);
            streamd_set_default(SIGALRM);
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            alarm(STREAMD_CHILD_S);
            PyGILState_Ensure();
            PyErr_Clear();
            _exit(PyObject_CallFunction(streamd_report, "i", fd) == NULL);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        if (status != 0) streamd_put(fd, "\\n(The rest of the report could not be written.)\\n");
    }

    static void streamd_on_crash(int number, siginfo_t *info, void *context) {
        int fd = streamd_open_log();
        (void)context;
        streamd_put(fd, "\\n\\n=== STREAMD BUG REPORT START: Cut & paste starting from here ===\\n");
        streamd_put_head(fd);
        streamd_put(fd, "streamd ");
        streamd_put(fd, streamd_version);
        streamd_put_int(fd, " crashed by signal: ", number);
        streamd_put_int(fd, ", si_code: ", info->si_code);
        streamd_put(fd, "\\n");
        if (info->si_code <= 0) {
            streamd_put_head(fd);
            streamd_put_int(fd, "Killed by PID: ", info->si_pid);
            streamd_put_int(fd, ", UID: ", info->si_uid);
        } else {
            streamd_put_head(fd);
            streamd_put(fd, "Accessing address: 0x");
            streamd_put_number(fd, (unsigned long long)(size_t)info->si_addr, 16);
        }
        streamd_put(fd, "\\n");
        streamd_put_stacks(fd);
        if (streamd_report) streamd_report_in_child(fd);
        streamd_put(fd, "\\n=== STREAMD BUG REPORT END. Make sure to include from START to END. ===\\n\\n");
        streamd_set_default(number);
        raise(number);
    }

    static void streamd_on_alarm(int number, siginfo_t *info, void *context) {
        int kept = errno, fd = streamd_open_log();
        (void)number;
        (void)context;
        streamd_put_head(fd);
        streamd_put(fd, info->si_code <= 0 ? "\\nReceived SIGALRM\\n" : "\\n--- WATCHDOG TIMER EXPIRED ---\\n");
        streamd_put_stacks(fd);
        streamd_put_head(fd);
        streamd_put(fd, "--------\\n");
        if (fd != STDOUT_FILENO) close(fd);
        errno = kept;
    }

    static void streamd_set_deadly(int is_on) {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        action.sa_sigaction = streamd_on_crash;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigfillset(&action.sa_mask);
        for (size_t i = 0; i < sizeof(streamd_deadly) / sizeof(int); i++) {
            if (is_on) sigaction(streamd_deadly[i], &action, NULL);
            else streamd_set_default(streamd_deadly[i]);
        }
    }

    static void streamd_set_alarm(void) {
        struct sigaction action, old;
        memset(&action, 0, sizeof(action));
        action.sa_sigaction = streamd_on_alarm;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        sigfillset(&action.sa_mask);
        sigaction(SIGALRM, &action, &old);
        streamd_dump_python = old.sa_handler;
    }

    static void streamd_set_stack(void) {
        stack_t stack;
        memset(&stack, 0, sizeof(stack));
        stack.ss_size = STREAMD_STACK_BYTES;
        stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, NULL);
    #ifdef STREAMD_HAS_BACKTRACE
        void *frame;
        backtrace(&frame, 1);  /* loads what it needs, which allocates */
    #endif
    }

    static void streamd_set_timer(long long ms) {
        struct itimerval timer;
        memset(&timer, 0, sizeof(timer));
        timer.it_value.tv_sec = ms / 1000;
        timer.it_value.tv_usec = ms % 1000 * 1000;
        setitimer(ITIMER_REAL, &timer, NULL);
    }

    static void streamd_keep_report(PyObject *report) {
        Py_INCREF(report);  /* for good: a handler has no place to give it back */
        streamd_report = report;
    }

    static volatile size_t streamd_nowhere = 16;
    static void streamd_fault(void) { *(volatile char *)streamd_nowhere = 1; }
    """
    char streamd_log_path[4096]
    char streamd_version[64]
    void streamd_set_deadly(bint is_on)
    void streamd_set_alarm()
    void streamd_set_stack()
    void streamd_set_timer(long long ms)
    void streamd_fault()
    void streamd_keep_report(object report)


def install(bytes log_path not None, str version not None, report):
    """Handle SIGALRM from now on, in the main thread; `set_enabled` is for the crashes.

    log_path  the log file; empty: standard output
    report    called with a file descriptor, in a child of a process that crashes, writes the rest of the report
    """
    cdef bytes shown = version.encode()
    if len(log_path) >= sizeof(streamd_log_path) or len(shown) >= sizeof(streamd_version):
        raise ValueError("a name is too long for a report")
    memcpy(streamd_log_path, <char *>log_path, len(log_path) + 1)
    memcpy(streamd_version, <char *>shown, len(shown) + 1)
    streamd_keep_report(report)
    if sys.__stderr__ is not None:
        faulthandler.register(signal.SIGALRM, file=2, all_threads=True)
        streamd_set_alarm()
    streamd_set_stack()


def set_enabled(bint is_on):
    """`crash-log-enabled`: whether to write a report when the process dies of a signal."""
    streamd_set_deadly(is_on)


def set_watchdog(long long period_ms):
    """Have SIGALRM sent after this many ms; 0: never. A later call replaces an earlier one."""
    streamd_set_timer(period_ms)


def die():
    """Write to an unmapped address: DEBUG SEGFAULT."""
    streamd_fault()
