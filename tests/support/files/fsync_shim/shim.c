/* What is on the disk for certain, and disks that fail: preloaded into a server (LD_PRELOAD), for tests.
 *
 * A process that is killed loses nothing that it has written: the system still has it. Only a power failure tells a sync
 * from none. So this writes down, for files below FSYNC_SHIM_ROOT, what each successful sync made safe:
 *
 *     S <inode> <size>                    a file, as long as it was when the sync began
 *     D <inode>  E <inode> <name> ...     a directory, and the names in it
 *     T <inode> <size>                    a file was cut to this size
 *
 * one line each, words separated by tabs, appended to FSYNC_SHIM_LOG with one write per record. Files that lose their name
 * get another one in FSYNC_SHIM_KEEP, so that a test can put back what a rename or an unlink had not yet removed for
 * certain. The test then makes the folder what the disk would hold (see __init__.py).
 *
 * FSYNC_SHIM_CONTROL names a file of rules, looked at before each call, one in a line:
 *
 *     fsync 5 3        the third sync from the start of the process fails with errno 5 (EIO); also fdatasync
 *     write 28 2+      the second write, and all after it, fail with errno 28 (ENOSPC)
 *     write short 4    the fourth write takes half of the bytes
 *     rename kill 2    the process is killed just before its second rename; also fsync, write and unlink
 *     since 7 0        calls are counted from the first one on that sees this line with a number that it had not before
 *
 * Only calls about files below the root are counted. Linux; everything here is for one process with few files.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SHORT = -1, KILL = -2 }; /* what else a rule can say, beside an errno */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long fsyncs, writes, renames, unlinks, since;

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void leave_lock(void) { pthread_mutex_unlock(&lock); }

/* A child must not inherit the lock from a thread that it does not have. */
__attribute__((constructor)) static void prepare_for_forks(void) { pthread_atfork(take_lock, leave_lock, leave_lock); }

static const char *root(void) { return getenv("FSYNC_SHIM_ROOT"); }

static int is_below_root(const char *path)
{
    const char *base = root();
    size_t n = base ? strlen(base) : 0;
    return n && strncmp(path, base, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The path of an open file below the root; 0 when it is none. */
static int path_of(int fd, char *path, size_t size)
{
    char link[64];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, size - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    return is_below_root(path);
}

/* The absolute path of a name that was given to the system; 0 when it is not below the root. */
static int absolute(const char *name, char *path, size_t size)
{
    if (name[0] == '/') {
        snprintf(path, size, "%s", name);
    } else {
        char folder[4096];
        if (!getcwd(folder, sizeof folder))
            return 0;
        while (strncmp(name, "./", 2) == 0)
            name += 2;
        if ((size_t)snprintf(path, size, "%s/%s", folder, name) >= size)
            return 0;
    }
    return is_below_root(path);
}

/* Append one record to the log. */
static void record(const char *text, size_t n)
{
    const char *path = getenv("FSYNC_SHIM_LOG");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        syscall(SYS_write, fd, text, n);
        syscall(SYS_close, fd);
    }
}

static void record_size(char kind, ino_t inode, off_t size)
{
    char line[96];
    int n = snprintf(line, sizeof line, "%c\t%llu\t%lld\n", kind, (unsigned long long)inode, (long long)size);
    record(line, (size_t)n);
}

/* Write the names in a directory to memory; the caller frees it. */
static char *names_in(const char *path, ino_t inode, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    DIR *folder = opendir(path);
    struct dirent *each;
    fprintf(out, "D\t%llu", (unsigned long long)inode);
    while (folder && (each = readdir(folder)) != NULL)
        if (strcmp(each->d_name, ".") && strcmp(each->d_name, ".."))
            fprintf(out, "\tE\t%llu\t%s", (unsigned long long)each->d_ino, each->d_name);
    fputc('\n', out);
    if (folder)
        closedir(folder);
    fclose(out);
    return text;
}

/* Count a call of an operation, and see what the rules say of it: 0 nothing, -1 a short write, else an errno; or its end. */
static int rule_for(const char *operation, long *calls)
{
    const char *path = getenv("FSYNC_SHIM_CONTROL");
    char line[128], name[32], what[32], which[32];
    int found = 0;
    FILE *rules = path ? fopen(path, "re") : NULL;
    while (rules && fgets(line, sizeof line, rules)) {
        if (sscanf(line, "%31s %31s %31s", name, what, which) != 3)
            continue;
        if (!strcmp(name, "since") && atol(what) != since) {
            since = atol(what);
            fsyncs = writes = renames = unlinks = 0;
        }
        if (strcmp(name, operation))
            continue;
        long from = atol(which), n = *calls + 1;
        if (n == from || (n > from && strchr(which, '+')))
            found = !strcmp(what, "short") ? SHORT : !strcmp(what, "kill") ? KILL : atoi(what);
    }
    if (rules)
        fclose(rules);
    ++*calls;
    if (found == KILL)
        raise(SIGKILL);
    return found;
}

/* What the rules say of an operation on a name; as rule_for. */
static int rule_for_name(const char *operation, const char *name, long *calls)
{
    char path[4096];
    int found;
    if (!absolute(name, path, sizeof path))
        return 0;
    pthread_mutex_lock(&lock);
    found = rule_for(operation, calls);
    pthread_mutex_unlock(&lock);
    return found;
}

static int synced(int fd, const char *function)
{
    char path[4096];
    struct stat before;
    char *names = NULL;
    size_t size = 0;
    int failure, result;
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, function);
    if (!path_of(fd, path, sizeof path) || fstat(fd, &before) != 0)
        return real(fd);
    pthread_mutex_lock(&lock);
    failure = rule_for("fsync", &fsyncs);
    pthread_mutex_unlock(&lock);
    if (failure) {
        errno = failure;
        return -1;
    }
    if (S_ISDIR(before.st_mode))
        names = names_in(path, before.st_ino, &size);
    result = real(fd);
    if (result == 0 && names)
        record(names, size);
    else if (result == 0)
        record_size('S', before.st_ino, before.st_size);
    free(names);
    return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

/* What the rules say of the next write to a file; as rule_for. */
static int write_rule(int fd)
{
    char path[4096];
    int found;
    struct stat about;
    if (!path_of(fd, path, sizeof path) || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return 0;
    pthread_mutex_lock(&lock);
    found = rule_for("write", &writes);
    pthread_mutex_unlock(&lock);
    return found;
}

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    int rule = write_rule(fd);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (rule > 0) {
        errno = rule;
        return -1;
    }
    return real(fd, data, rule < 0 && size > 1 ? size / 2 : size);
}

int ftruncate(int fd, off_t size)
{
    struct stat about;
    char path[4096];
    int (*real)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");
    int result = real(fd, size);
    if (result == 0 && path_of(fd, path, sizeof path) && fstat(fd, &about) == 0)
        record_size('T', about.st_ino, size);
    return result;
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

/* Give a file that is about to lose its name another one. */
static void keep(const char *name)
{
    char path[4096], kept[4096 + 32];
    struct stat about;
    const char *folder = getenv("FSYNC_SHIM_KEEP");
    if (!folder || !absolute(name, path, sizeof path) || lstat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return;
    if ((size_t)snprintf(kept, sizeof kept, "%s/%llu", folder, (unsigned long long)about.st_ino) < sizeof kept
        && link(path, kept) != 0)
        errno = 0; /* it has that name already */
}

int unlink(const char *name)
{
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    int failure = rule_for_name("unlink", name, &unlinks);
    if (failure) {
        errno = failure;
        return -1;
    }
    keep(name);
    return real(name);
}

int rename(const char *old, const char *new)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    int failure = rule_for_name("rename", old, &renames);
    if (failure) {
        errno = failure;
        return -1;
    }
    keep(old);
    keep(new);
    return real(old, new);
}
