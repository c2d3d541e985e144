/* Stands before the C library's file calls (LD_PRELOAD): lists those that touch one folder, and makes one of them fail.
 *
 * A call is known by its name, the path it touches relative to the folder, and the how many-th such call it is; unlike
 * a running number this does not depend on how threads take turns. Control comes through the faults_* functions. */

#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { PASS, FAIL, SHORT, KILL, INTERRUPT };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX];
static size_t folder_size;
static char list[1 << 22];
static size_t list_size;
static char wanted[PATH_MAX + 64];
static int wanted_nth, wanted_code, seen, fired;
static enum action wanted_action;
static int syncs;

/* Watch this folder from now on, with an empty list and no fault; an empty path ends it. Without `sync` the disk is not
 * waited for. */
void faults_watch(const char *path, int sync) {
    pthread_mutex_lock(&lock);
    snprintf(folder, sizeof folder, "%s", path);
    folder_size = strlen(folder);
    list_size = 0;
    list[0] = wanted[0] = 0;
    seen = fired = 0;
    syncs = sync;
    pthread_mutex_unlock(&lock);
}

/* Have the nth call "NAME PATH" do `action`; `code` is the errno of a failure. */
void faults_arm(const char *call, int nth, int action, int code) {
    snprintf(wanted, sizeof wanted, "%s", call);
    wanted_nth = nth;
    wanted_action = (enum action)action;
    wanted_code = code;
}

const char *faults_list(void) { return list; }

int faults_fired(void) { return fired; }

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static enum action decide(const char *call, const char *path) {
    if (folder_size == 0 || strncmp(path, folder, folder_size) != 0) return PASS;
    if (path[folder_size] != '/' && path[folder_size] != 0) return PASS;
    const char *inside = path[folder_size] ? path + folder_size + 1 : ".";
    char line[PATH_MAX + 64];
    int size = snprintf(line, sizeof line, "%s %s", call, inside);
    enum action action = PASS;
    pthread_mutex_lock(&lock);
    if (list_size + (size_t)size + 2 < sizeof list) {
        memcpy(list + list_size, line, (size_t)size);
        list_size += (size_t)size;
        list[list_size++] = '\n';
        list[list_size] = 0;
    }
    if (strcmp(line, wanted) == 0 && seen++ == wanted_nth) {
        action = wanted_action;
        fired = 1;
    }
    pthread_mutex_unlock(&lock);
    if (action == KILL) die();
    if (action == INTERRUPT) kill(getpid(), SIGINT);
    return action;
}

static enum action of_fd(const char *call, int fd) {
    char link[64], path[PATH_MAX];
    if (folder_size == 0) return PASS;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return PASS;
    path[size] = 0;
    return decide(call, path);
}

static enum action of_path(const char *call, int at, const char *name) {
    if (folder_size == 0 || name == NULL) return PASS;
    if (name[0] == '/' || at == AT_FDCWD) return decide(call, name);
    char link[64], path[2 * PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t size = readlink(link, path, PATH_MAX);
    if (size < 0) return PASS;
    snprintf(path + size, sizeof path - (size_t)size, "/%s", name);
    return decide(call, path);
}

#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* The call itself, unless it is to fail. A process that is killed is killed before it. */
#define CARRY_OUT(failed, invocation)                                                                                  \
    if (action == FAIL) {                                                                                              \
        errno = wanted_code;                                                                                           \
        return failed;                                                                                                 \
    }                                                                                                                  \
    return invocation

#define ON_PATH(shown, name, parameters, path, ...)                                                                    \
    int name parameters {                                                                                              \
        REAL(name);                                                                                                    \
        enum action action = of_path(shown, AT_FDCWD, path);                                                           \
        CARRY_OUT(-1, real(__VA_ARGS__));                                                                              \
    }
#define ON_ENTRY(shown, name, parameters, at, path, ...)                                                               \
    int name parameters {                                                                                              \
        REAL(name);                                                                                                    \
        enum action action = of_path(shown, at, path);                                                                 \
        CARRY_OUT(-1, real(__VA_ARGS__));                                                                              \
    }
#define ON_FD(shown, name, parameters, fd, ...)                                                                        \
    int name parameters {                                                                                              \
        REAL(name);                                                                                                    \
        enum action action = of_fd(shown, fd);                                                                         \
        CARRY_OUT(-1, real(__VA_ARGS__));                                                                              \
    }

/* -- names ---------------------------------------------------------------------------------------------------------- */

#define OPENS(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(name);                                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;                                   \
        va_end(more);                                                                                                  \
        enum action action = of_path(flags & O_CREAT ? "create" : "open", AT_FDCWD, path);                             \
        CARRY_OUT(-1, real(path, flags, mode));                                                                        \
    }
#define OPENS_AT(name)                                                                                                 \
    int name(int at, const char *path, int flags, ...) {                                                               \
        REAL(name);                                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;                                   \
        va_end(more);                                                                                                  \
        enum action action = of_path(flags & O_CREAT ? "create" : "open", at, path);                                   \
        CARRY_OUT(-1, real(at, path, flags, mode));                                                                    \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

DIR *opendir(const char *path) {
    REAL(opendir);
    enum action action = of_path("opendir", AT_FDCWD, path);
    CARRY_OUT(NULL, real(path));
}

ON_PATH("mkdir", mkdir, (const char *path, mode_t mode), path, path, mode)
ON_ENTRY("mkdir", mkdirat, (int at, const char *path, mode_t mode), at, path, at, path, mode)
ON_PATH("unlink", unlink, (const char *path), path, path)
ON_ENTRY("unlink", unlinkat, (int at, const char *path, int flags), at, path, at, path, flags)
ON_PATH("rmdir", rmdir, (const char *path), path, path)
ON_PATH("rename", rename, (const char *old, const char *new), new, old, new)
ON_ENTRY("rename", renameat, (int at, const char *old, int to, const char *new), to, new, at, old, to, new)
ON_ENTRY("rename", renameat2, (int at, const char *old, int to, const char *new, unsigned flags), to, new, at, old, to,
         new, flags)
ON_PATH("link", link, (const char *old, const char *new), new, old, new)
ON_ENTRY("link", linkat, (int at, const char *old, int to, const char *new, int flags), to, new, at, old, to, new, flags)
ON_PATH("symlink", symlink, (const char *old, const char *new), new, old, new)
ON_PATH("chmod", chmod, (const char *path, mode_t mode), path, path, mode)
ON_ENTRY("chmod", fchmodat, (int at, const char *path, mode_t mode, int flags), at, path, at, path, mode, flags)
ON_PATH("truncate", truncate, (const char *path, off_t size), path, path, size)
ON_PATH("truncate", truncate64, (const char *path, off64_t size), path, path, size)
ON_PATH("stat", stat, (const char *path, struct stat *to), path, path, to)
ON_PATH("stat", stat64, (const char *path, struct stat64 *to), path, path, to)
ON_PATH("lstat", lstat, (const char *path, struct stat *to), path, path, to)
ON_PATH("lstat", lstat64, (const char *path, struct stat64 *to), path, path, to)
ON_ENTRY("stat", fstatat, (int at, const char *path, struct stat *to, int flags), at, path, at, path, to, flags)
ON_ENTRY("stat", fstatat64, (int at, const char *path, struct stat64 *to, int flags), at, path, at, path, to, flags)
ON_PATH("statvfs", statvfs, (const char *path, struct statvfs *to), path, path, to)
ON_PATH("statvfs", statvfs64, (const char *path, struct statvfs64 *to), path, path, to)

/* -- open files ----------------------------------------------------------------------------------------------------- */

ON_FD("fstat", fstat, (int fd, struct stat *to), fd, fd, to)
ON_FD("fstat", fstat64, (int fd, struct stat64 *to), fd, fd, to)
ON_FD("fchmod", fchmod, (int fd, mode_t mode), fd, fd, mode)
ON_FD("flock", flock, (int fd, int how), fd, fd, how)
ON_FD("ftruncate", ftruncate, (int fd, off_t size), fd, fd, size)
ON_FD("ftruncate", ftruncate64, (int fd, off64_t size), fd, fd, size)
ON_FD("fallocate", fallocate, (int fd, int mode, off_t at, off_t size), fd, fd, mode, at, size)
ON_FD("fallocate", fallocate64, (int fd, int mode, off64_t at, off64_t size), fd, fd, mode, at, size)

#define SYNCS(name)                                                                                                    \
    int name(int fd) {                                                                                                 \
        REAL(name);                                                                                                    \
        enum action action = of_fd(#name, fd);                                                                         \
        CARRY_OUT(-1, folder_size && !syncs ? 0 : real(fd));                                                           \
    }
SYNCS(fsync)
SYNCS(fdatasync)

int close(int fd) { /* Linux closes the file whatever it says */
    REAL(close);
    enum action action = of_fd("close", fd);
    if (action == FAIL) real(fd);
    CARRY_OUT(-1, real(fd));
}

#define CONTROLS(name)                                                                                                 \
    int name(int fd, int command, ...) {                                                                               \
        REAL(name);                                                                                                    \
        va_list more;                                                                                                  \
        va_start(more, command);                                                                                       \
        void *argument = va_arg(more, void *);                                                                         \
        va_end(more);                                                                                                  \
        enum action action = command == F_DUPFD_CLOEXEC ? of_fd("dup", fd) : PASS;                                     \
        CARRY_OUT(-1, real(fd, command, argument));                                                                    \
    }
CONTROLS(fcntl)
CONTROLS(fcntl64)

#define RESERVES(name, offset)                                                                                         \
    int name(int fd, offset at, offset size) { /* its result is the errno */                                           \
        REAL(name);                                                                                                    \
        enum action action = of_fd("fallocate", fd);                                                                   \
        CARRY_OUT(wanted_code, real(fd, at, size));                                                                    \
    }
RESERVES(posix_fallocate, off_t)
RESERVES(posix_fallocate64, off64_t)

#define MOVES_BYTES(shown, name, parameters, fd, size, ...)                                                            \
    ssize_t name parameters {                                                                                          \
        REAL(name);                                                                                                    \
        enum action action = of_fd(shown, fd);                                                                         \
        if (action == SHORT && size > 1) size /= 2;                                                                    \
        CARRY_OUT(-1, real(__VA_ARGS__));                                                                              \
    }
MOVES_BYTES("write", write, (int fd, const void *data, size_t size), fd, size, fd, data, size)
MOVES_BYTES("write", pwrite, (int fd, const void *data, size_t size, off_t at), fd, size, fd, data, size, at)
MOVES_BYTES("write", pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, size, fd, data, size, at)
MOVES_BYTES("read", read, (int fd, void *data, size_t size), fd, size, fd, data, size)
MOVES_BYTES("read", pread, (int fd, void *data, size_t size, off_t at), fd, size, fd, data, size, at)
MOVES_BYTES("read", pread64, (int fd, void *data, size_t size, off64_t at), fd, size, fd, data, size, at)
MOVES_BYTES("copy_file_range", copy_file_range,
            (int from, off64_t *start, int to, off64_t *at, size_t size, unsigned flags), to, size, from, start, to, at,
            size, flags)
MOVES_BYTES("sendfile", sendfile, (int to, int from, off_t *start, size_t size), to, size, to, from, start, size)
MOVES_BYTES("sendfile", sendfile64, (int to, int from, off64_t *start, size_t size), to, size, to, from, start, size)

#define MOVES_PARTS(shown, name, parameters, ...)                                                                      \
    ssize_t name parameters {                                                                                          \
        REAL(name);                                                                                                    \
        enum action action = of_fd(shown, fd);                                                                         \
        struct iovec half;                                                                                             \
        if (action == SHORT && count > 0 && parts[0].iov_len > 1) {                                                    \
            half = (struct iovec){parts[0].iov_base, parts[0].iov_len / 2};                                            \
            parts = &half;                                                                                             \
            count = 1;                                                                                                 \
        }                                                                                                              \
        CARRY_OUT(-1, real(__VA_ARGS__));                                                                              \
    }
MOVES_PARTS("write", writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
MOVES_PARTS("write", pwritev, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
MOVES_PARTS("write", pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
MOVES_PARTS("write", pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), fd, parts,
            count, at, flags)
MOVES_PARTS("read", readv, (int fd, const struct iovec *parts, int count), fd, parts, count)
MOVES_PARTS("read", preadv, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
MOVES_PARTS("read", preadv64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
MOVES_PARTS("read", preadv64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), fd, parts, count,
            at, flags)
