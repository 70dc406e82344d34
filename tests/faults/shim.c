/* Preloaded into a command: counts the calls that change files in one folder, strikes at one of them, and keeps a log.

   What to do is said by arm(), or by FAULT in the environment when a program starts: words separated by spaces,

     scope=FOLDER   calls on files below it, and on nothing else (needed)
     at=N           the N-th of the calls that `do` can strike; 0 counts them only
     do=WORD        ENOSPC EIO EINTR short torn, or a signal: KILL STOP INT TERM HUP
     for=good       and every later call like it, where `do` is an error
     on=all         a signal: before calls that only read, too
     deny=CALL:NUMBER,...   calls (link rename2 clone) that this file system does not have, with their errno
     log=FD         where each call that succeeded is written down, in the order in which they took effect

   `short` writes half of what was asked, `torn` does and then kills. A folder's name may hold no space. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, RENAME = 8, LINK = 16, UNLINK = 32, MKDIR = 64, TRUNCATE = 128,
       CLOSE = 256, META = 512, CLONE = 1024, READ = 2048 };
enum { ALL = OPEN | WRITE | SYNC | RENAME | LINK | UNLINK | MKDIR | TRUNCATE | CLOSE | META | CLONE };

static struct {
    char scope[PATH_MAX];
    size_t length;
    long at;
    long seen;
    int is_good, mask, error, number, is_short, is_torn, log;
    int no_link, no_rename2, no_clone;
} fault = {.log = -1};

#define MOST 65536
static unsigned char tracked[MOST]; /* 1: a file or folder in scope, 2: opened for writing */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static const struct { const char *word; int error, number, mask; } WORDS[] = {
    {"ENOSPC", ENOSPC, 0, OPEN | WRITE | SYNC | RENAME | LINK | MKDIR | TRUNCATE | CLOSE | CLONE},
    {"EIO", EIO, 0, ALL},
    {"EINTR", EINTR, 0, OPEN | WRITE | SYNC | TRUNCATE | CLOSE},
    {"short", 0, 0, WRITE},
    {"torn", 0, SIGKILL, WRITE},
    {"KILL", 0, SIGKILL, ALL},
    {"STOP", 0, SIGSTOP, ALL},
    {"INT", 0, SIGINT, ALL},
    {"TERM", 0, SIGTERM, ALL},
    {"HUP", 0, SIGHUP, ALL},
};

static int number_after(const char *list, const char *name) {
    const char *found = list ? strstr(list, name) : NULL;
    return found ? atoi(found + strlen(name)) : 0;
}

/* From now on do what the words say; returns 0, or -1 if they cannot be understood. */
int arm(const char *words) {
    char copy[2 * PATH_MAX], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", words);
    memset(&fault, 0, sizeof fault);
    fault.log = -1;
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        if (!value) return -1;
        *value++ = 0;
        if (!strcmp(word, "scope")) snprintf(fault.scope, sizeof fault.scope, "%s", value);
        else if (!strcmp(word, "at")) fault.at = atol(value);
        else if (!strcmp(word, "for")) fault.is_good = 1;
        else if (!strcmp(word, "on")) fault.mask |= READ;
        else if (!strcmp(word, "log")) fault.log = atoi(value);
        else if (!strcmp(word, "deny")) {
            fault.no_link = number_after(value, "link:");
            fault.no_rename2 = number_after(value, "rename2:");
            fault.no_clone = number_after(value, "clone:");
        } else if (!strcmp(word, "do")) {
            size_t n = 0;
            while (n < sizeof WORDS / sizeof *WORDS && strcmp(WORDS[n].word, value)) n++;
            if (n == sizeof WORDS / sizeof *WORDS) return -1;
            fault.error = WORDS[n].error;
            fault.number = WORDS[n].number;
            fault.mask |= WORDS[n].mask;
            fault.is_torn = !strcmp(value, "torn");
            fault.is_short = fault.is_torn || !strcmp(value, "short");
        } else return -1;
    }
    fault.length = strlen(fault.scope);
    return fault.length ? 0 : -1;
}

/* How many calls there were that could have been struck. */
long seen(void) { return __atomic_load_n(&fault.seen, __ATOMIC_SEQ_CST); }

__attribute__((constructor)) static void begin(void) {
    const char *words = getenv("FAULT");
    if (words && arm(words)) {
        static const char said[] = "FAULT cannot be understood\n";
        syscall(SYS_write, 2, said, sizeof said - 1);
        _exit(70);
    }
}

/* The path of a file, absolute; 1 if it is in the folder that is looked after. */
static int in_scope(int folder, const char *path, char *whole) {
    if (!fault.length || !path) return 0;
    if (*path == '/') {
        if (strlen(path) >= PATH_MAX) return 0;
        strcpy(whole, path);
    } else {
        char link[64];
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, whole, PATH_MAX - 2);
        if (length < 0 || length + strlen(path) + 2 > PATH_MAX) return 0;
        whole[length] = '/';
        strcpy(whole + length + 1, path);
    }
    return !strncmp(whole, fault.scope, fault.length) && (whole[fault.length] == '/' || !whole[fault.length]);
}

static int is_tracked(int descriptor, int how) {
    return fault.length && descriptor >= 0 && descriptor < MOST && (tracked[descriptor] & how);
}

/* Count one call; 1 if it is to fail with errno as it is now, 2 if only half of it is to be done. */
static int struck(int kind) {
    if (!(fault.mask & kind)) return 0;
    long now = __atomic_add_fetch(&fault.seen, 1, __ATOMIC_SEQ_CST);
    if (!fault.at || (fault.is_good && fault.error ? now < fault.at : now != fault.at)) return 0;
    if (fault.is_short) return 2;
    if (fault.number) {
        syscall(SYS_kill, syscall(SYS_getpid), fault.number);
        return 0;
    }
    errno = fault.error;
    return 1;
}

/* -- the log: two lengths, a line of words separated by NUL, and what was written ---------------------------------- */

static void put(const void *from, size_t length) {
    const char *at = from;
    while (length) {
        ssize_t done = syscall(SYS_write, fault.log, at, length);
        if (done <= 0) return;
        at += done;
        length -= (size_t)done;
    }
}

static void note(const void *data, size_t size, const char *format, ...) {
    char line[2 * PATH_MAX + 64];
    va_list values;
    va_start(values, format);
    uint32_t lengths[2] = {(uint32_t)vsnprintf(line, sizeof line, format, values), (uint32_t)size};
    va_end(values);
    put(lengths, sizeof lengths);
    put(line, lengths[0]);
    put(data, size);
}

#define LOGGED (fault.log >= 0)
static void begin_turn(void) { if (LOGGED) pthread_mutex_lock(&turn); }
static void end_turn(void) {
    int number = errno;
    if (LOGGED) pthread_mutex_unlock(&turn);
    errno = number;
}

/* -- files --------------------------------------------------------------------------------------------------------- */

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    if (!in_scope(folder, path, whole)) return (int)syscall(SYS_openat, folder, path, flags, mode);
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (struck(writes ? OPEN : READ)) return -1;
    begin_turn();
    int is_new = LOGGED && (flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, whole, F_OK) != 0;
    int descriptor = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (descriptor >= 0 && descriptor < MOST) {
        tracked[descriptor] = writes ? 3 : 1;
        if (LOGGED)
            note(NULL, 0, "open%c%d%c%s%c%s", 0, descriptor, 0, is_new ? "new" : flags & O_TRUNC ? "cut" : "", 0, whole);
    }
    end_turn();
    return descriptor;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int descriptor) {
    int fails = is_tracked(descriptor, 2) && struck(CLOSE);
    int number = errno;
    if (descriptor >= 0 && descriptor < MOST) tracked[descriptor] = 0;
    int done = (int)syscall(SYS_close, descriptor); /* closed whatever it says, as Linux does */
    if (fails) errno = number;
    return fails ? -1 : done;
}

static off_t place_of(int descriptor) {
    int flags = (int)syscall(SYS_fcntl, descriptor, F_GETFL);
    return flags & O_APPEND ? syscall(SYS_lseek, descriptor, 0, SEEK_END) : syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
}

static ssize_t write_at(int descriptor, const struct iovec *parts, int count, off_t offset, int is_placed) {
    struct iovec one = *parts;
    int how = is_tracked(descriptor, 2) ? struck(WRITE) : 0;
    if (how == 1) return -1;
    if (how == 2) {
        parts = &one;
        count = 1;
        one.iov_len = (one.iov_len + 1) / 2;
    }
    begin_turn();
    int is_noted = LOGGED && is_tracked(descriptor, 2);
    off_t place = is_noted && !is_placed ? place_of(descriptor) : offset;
    ssize_t done = is_placed ? syscall(SYS_pwritev, descriptor, parts, count, offset, 0)
                             : syscall(SYS_writev, descriptor, parts, count);
    ssize_t left = is_noted ? done : 0;
    for (int n = 0; n < count && left > 0; n++) {
        size_t size = parts[n].iov_len < (size_t)left ? parts[n].iov_len : (size_t)left;
        note(parts[n].iov_base, size, "write%c%d%c%lld", 0, descriptor, 0, (long long)place);
        place += (off_t)size;
        left -= (ssize_t)size;
    }
    end_turn();
    if (how == 2 && fault.is_torn) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return done;
}

ssize_t write(int descriptor, const void *from, size_t length) {
    struct iovec part = {(void *)from, length};
    return write_at(descriptor, &part, 1, 0, 0);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (count < 1) return syscall(SYS_writev, descriptor, parts, count);
    return write_at(descriptor, parts, count, 0, 0);
}
ssize_t pwrite(int descriptor, const void *from, size_t length, off_t offset) {
    struct iovec part = {(void *)from, length};
    return write_at(descriptor, &part, 1, offset, 1);
}
ssize_t pwrite64(int descriptor, const void *from, size_t length, off64_t offset) {
    return pwrite(descriptor, from, length, offset);
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
    return write_at(descriptor, parts, count, offset, 1);
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
    return write_at(descriptor, parts, count, offset, 1);
}

/* What a call of the system's has put into a file without showing it. */
static void note_copied(int descriptor, off_t place, size_t size) {
    char link[64], *held = malloc(size + 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY);
    ssize_t got = again < 0 ? -1 : syscall(SYS_pread64, again, held, size, place);
    if (again >= 0) syscall(SYS_close, again);
    if (got >= 0) note(held, (size_t)got, "write%c%d%c%lld", 0, descriptor, 0, (long long)place);
    free(held);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) {
    int how = is_tracked(out, 2) ? struck(WRITE) : 0;
    if (how == 1) return -1;
    struct stat status;
    if (how == 2 && !fstat(in, &status) && (size_t)status.st_size < count) count = (size_t)status.st_size;
    if (how == 2) count = (count + 1) / 2;
    begin_turn();
    off_t place = LOGGED && is_tracked(out, 2) ? place_of(out) : 0;
    ssize_t done = syscall(SYS_sendfile, out, in, offset, count);
    if (LOGGED && done > 0 && is_tracked(out, 2)) note_copied(out, place, (size_t)done);
    end_turn();
    if (how == 2 && fault.is_torn) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return done;
}
ssize_t sendfile(int out, int in, off_t *offset, size_t count) { return sendfile64(out, in, offset, count); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
    int how = is_tracked(out, 2) ? struck(WRITE) : 0;
    if (how == 1) return -1;
    if (how == 2) count = (count + 1) / 2;
    begin_turn();
    off_t place = to ? *to : LOGGED && is_tracked(out, 2) ? place_of(out) : 0;
    ssize_t done = syscall(SYS_copy_file_range, in, from, out, to, count, flags);
    if (LOGGED && done > 0 && is_tracked(out, 2)) note_copied(out, place, (size_t)done);
    end_turn();
    if (how == 2 && fault.is_torn) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return done;
}

int ioctl(int descriptor, unsigned long request, ...) {
    va_list more;
    va_start(more, request);
    void *value = va_arg(more, void *);
    va_end(more);
    if (request != 0x40049409 /* FICLONE */ || !is_tracked(descriptor, 2))
        return (int)syscall(SYS_ioctl, descriptor, request, value);
    if (struck(CLONE)) return -1;
    if (fault.no_clone) return errno = fault.no_clone, -1;
    begin_turn();
    int done = (int)syscall(SYS_ioctl, descriptor, request, value);
    struct stat status;
    if (LOGGED && !done && !fstat(descriptor, &status)) note_copied(descriptor, 0, (size_t)status.st_size);
    end_turn();
    return done;
}

int ftruncate(int descriptor, off_t length) {
    if (is_tracked(descriptor, 2) && struck(TRUNCATE)) return -1;
    begin_turn();
    int done = (int)syscall(SYS_ftruncate, descriptor, length);
    if (LOGGED && !done && is_tracked(descriptor, 2)) note(NULL, 0, "size%c%d%c%lld", 0, descriptor, 0, (long long)length);
    end_turn();
    return done;
}
int ftruncate64(int descriptor, off64_t length) { return ftruncate(descriptor, length); }

static int sync_it(int descriptor, long call) {
    if (is_tracked(descriptor, 1) && struck(SYNC)) return -1;
    begin_turn();
    int done = (int)syscall(call, descriptor);
    if (LOGGED && !done && is_tracked(descriptor, 1)) note(NULL, 0, "sync%c%d", 0, descriptor);
    end_turn();
    return done;
}
int fsync(int descriptor) { return sync_it(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return sync_it(descriptor, SYS_fdatasync); }

/* -- names --------------------------------------------------------------------------------------------------------- */

static int rename_at(int one, const char *old, int two, const char *new, unsigned flags) {
    char from[PATH_MAX], to[PATH_MAX];
    int is_ours = in_scope(one, old, from) & in_scope(two, new, to);
    if (is_ours && struck(RENAME)) return -1;
    if (is_ours && flags && fault.no_rename2) return errno = fault.no_rename2, -1;
    begin_turn();
    int done = (int)syscall(SYS_renameat2, one, old, two, new, flags);
    if (LOGGED && is_ours && !done) note(NULL, 0, "%s%c%s%c%s", flags & 2 ? "swap" : "rename", 0, from, 0, to);
    end_turn();
    return done;
}
int rename(const char *old, const char *new) { return rename_at(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int one, const char *old, int two, const char *new) { return rename_at(one, old, two, new, 0); }
int renameat2(int one, const char *old, int two, const char *new, unsigned flags) {
    return rename_at(one, old, two, new, flags);
}

int linkat(int one, const char *old, int two, const char *new, int flags) {
    char from[PATH_MAX], to[PATH_MAX];
    int is_ours = in_scope(two, new, to);
    if (is_ours && struck(LINK)) return -1;
    if (is_ours && fault.no_link) return errno = fault.no_link, -1;
    begin_turn();
    int done = (int)syscall(SYS_linkat, one, old, two, new, flags);
    if (LOGGED && is_ours && !done && in_scope(one, old, from)) note(NULL, 0, "link%c%s%c%s", 0, from, 0, to);
    end_turn();
    return done;
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

#define NAMED(kind, words, call) \
    char whole[PATH_MAX]; \
    int is_ours = in_scope(folder, path, whole); \
    if (is_ours && struck(kind)) return -1; \
    begin_turn(); \
    int done = (int)(call); \
    if (LOGGED && is_ours && !done) note(NULL, 0, "%s%c%s", words, 0, whole); \
    end_turn(); \
    return done;

int unlinkat(int folder, const char *path, int flags) {
    NAMED(UNLINK, flags & AT_REMOVEDIR ? "rmdir" : "unlink", syscall(SYS_unlinkat, folder, path, flags))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int folder, const char *path, mode_t mode) {
    NAMED(MKDIR, "mkdir", syscall(SYS_mkdirat, folder, path, mode))
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* -- modes and times: they fail like others, and are not in the log ------------------------------------------------ */

static int is_meta_struck(int folder, const char *path) {
    char whole[PATH_MAX];
    return in_scope(folder, path, whole) && struck(META);
}
int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    (void)flags;
    return is_meta_struck(folder, path) ? -1 : (int)syscall(SYS_fchmodat, folder, path, mode);
}
int chmod(const char *path, mode_t mode) { return fchmodat(AT_FDCWD, path, mode, 0); }
int fchmod(int descriptor, mode_t mode) {
    return is_tracked(descriptor, 1) && struck(META) ? -1 : (int)syscall(SYS_fchmod, descriptor, mode);
}
int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    return is_meta_struck(folder, path) ? -1 : (int)syscall(SYS_utimensat, folder, path, times, flags);
}
int futimens(int descriptor, const struct timespec times[2]) {
    return is_tracked(descriptor, 1) && struck(META) ? -1 : (int)syscall(SYS_utimensat, descriptor, NULL, times, 0);
}

/* -- reads: moments at which a signal may come --------------------------------------------------------------------- */

ssize_t read(int descriptor, void *to, size_t length) {
    if (is_tracked(descriptor, 1)) struck(READ);
    return syscall(SYS_read, descriptor, to, length);
}
ssize_t pread(int descriptor, void *to, size_t length, off_t offset) {
    if (is_tracked(descriptor, 1)) struck(READ);
    return syscall(SYS_pread64, descriptor, to, length, offset);
}
ssize_t pread64(int descriptor, void *to, size_t length, off64_t offset) { return pread(descriptor, to, length, offset); }
