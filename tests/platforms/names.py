"""What macOS and Windows lack of the names that Python has on Linux.

From the lines "Availability:" in the documentation of os, mmap, signal, fcntl, resource, select and socket, Python 3.11
to 3.14. For macOS the names that are missing are listed, as ``fnmatch`` patterns. Windows has so few that those are
listed that it has: a name that a later Python adds for Unix counts as missing.
"""

from __future__ import annotations

import importlib
from fnmatch import fnmatchcase
from itertools import chain

# "Availability: Linux" or "not macOS"; preadv and pwritev need macOS 11, and an older one has to do as well.
MACOS_LACKS = {
    "os": """
        copy_file_range fdatasync posix_fadvise posix_fallocate POSIX_FADV_* pipe2 splice SPLICE_* memfd_create
        MFD_* eventfd* EFD_* timerfd_* TFD_* getrandom GRND_* getxattr setxattr listxattr removexattr XATTR_*
        pidfd_open PIDFD_* unshare setns CLONE_* sched_[sg]etaffinity sched_[sg]etscheduler sched_[sg]etparam
        sched_param sched_rr_get_interval SCHED_BATCH SCHED_IDLE SCHED_RESET_ON_FORK SCHED_SPORADIC getresuid
        getresgid setresuid setresgid waitid waitid_result P_PIDFD RWF_* O_DIRECT O_LARGEFILE O_NOATIME O_PATH
        O_RSYNC O_TMPFILE process_cpu_count preadv pwritev RTLD_DEEPBIND ST_APPEND ST_MANDLOCK ST_NOATIME ST_NODEV
        POSIX_SPAWN_CLOSEFROM SCHED_DEADLINE SCHED_NORMAL ST_NODIRATIME ST_NOEXEC ST_RELATIME ST_SYNCHRONOUS ST_WRITE
    """,
    "mmap": """
        MAP_DENYWRITE MAP_EXECUTABLE MAP_POPULATE MAP_STACK MAP_HUGE* MAP_LOCKED MAP_GROWSDOWN MAP_NONBLOCK MAP_SYNC
        MADV_DODUMP MADV_DOFORK MADV_DONTDUMP MADV_DONTFORK MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_HWPOISON
        MADV_MERGEABLE MADV_UNMERGEABLE MADV_REMOVE MADV_COLD MADV_PAGEOUT MADV_POPULATE*
    """,
    "signal": """
        SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo struct_siginfo pidfd_send_signal
    """,
    "fcntl": """
        F_OFD_* F_*LEASE F_NOTIFY F_*SIG F_*PIPE_SZ F_*SEAL* F_EXLCK F_SHLCK F_*64 DN_* I_* LOCK_MAND LOCK_READ
        LOCK_RW LOCK_WRITE FICLONE* F_?ETOWN_EX F_OWNER_* F_*RW_HINT RWH_*
    """,
    "resource": """
        prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING RLIMIT_OFILE RUSAGE_THREAD
    """,
    "select": """
        epoll EPOLL* POLLRDHUP POLLMSG
    """,
    "socket": """
        AF_ALG AF_CAN AF_NETLINK AF_PACKET AF_QIPCRTR AF_RDS AF_TIPC AF_VSOCK ALG_* CAN_* NETLINK_* PACKET_*
        SOCK_CLOEXEC SOCK_NONBLOCK TIPC_* VMADDR_*
    """,
}

# "Availability: Unix" of the whole module
WINDOWS_LACKS_MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posix", "syslog")
# Without "Availability: Unix", or with "Windows"
WINDOWS_HAS = {
    "os": """
        DirEntry EX_OK F_OK R_OK W_OK X_OK P_*WAIT SEEK_SET SEEK_CUR SEEK_END TMP_MAX O_APPEND O_CREAT O_EXCL
        O_RDONLY O_RDWR O_TRUNC O_WRONLY PathLike _exit abc abort access altsep chdir chmod close closerange
        cpu_count curdir defpath device_encoding devnull dup dup2 environ error exec[lv]* extsep fdopen fsdecode
        fsencode fspath fstat fsync ftruncate get_exec_path get_inheritable get_terminal_size getcwd getcwdb getenv
        getlogin getpid getppid isatty kill linesep link listdir lseek lstat makedirs mkdir name open pardir path
        pathsep pipe popen process_cpu_count putenv read readinto readlink remove removedirs rename renames replace
        rmdir scandir sep set_inheritable spawn[lv] spawn[lv]e st stat stat_result statvfs_result strerror
        supports_* symlink sys system terminal_size times times_result truncate umask uname_result unlink unsetenv
        urandom utime waitpid waitstatus_to_exitcode walk write
    """,
    "mmap": """
        ACCESS_* ALLOCATIONGRANULARITY PAGESIZE error mmap
    """,
    "signal": """
        SIGABRT SIGFPE SIGILL SIGINT SIGSEGV SIGTERM SIG_DFL SIG_IGN NSIG Signals Handlers default_int_handler
        getsignal raise_signal set_wakeup_fd signal strsignal valid_signals
    """,
    "select": """
        error select
    """,
}


def macos_lacks() -> dict[str, list[str]]:
    """The names of Linux, by module, that macOS does not have."""
    return {module: _matching(module, patterns) for module, patterns in MACOS_LACKS.items()}


def windows_lacks() -> dict[str, list[str]]:
    """The names of Linux, by module, that Windows does not have."""
    lacks = {}
    for module, patterns in WINDOWS_HAS.items():
        has = set(_matching(module, patterns))
        lacks[module] = [name for name in _names(module) if name not in has]
    return lacks


def _names(module: str) -> list[str]:
    names = dir(importlib.import_module(module))
    return [name for name in names if name == "_exit" or not name.startswith("_")]


def _matching(module: str, patterns: str) -> list[str]:
    return [name for name in _names(module) if any(fnmatchcase(name, pattern) for pattern in patterns.split())]


def lacking_somewhere() -> dict[str, set[str]]:
    """The names, by module, that macOS or Windows lacks."""
    found: dict[str, set[str]] = {}
    for module, names in chain(macos_lacks().items(), windows_lacks().items()):
        found.setdefault(module, set()).update(names)
    return found
