"""The operating system. Only this package knows what differs between Linux, macOS and Windows.

Every system has the names of ``__all__``, with the same meaning. Functions that read, write or copy make one system
call and may move fewer bytes than asked for: the caller goes on from there. Calls that a signal interrupts are
repeated by Python.
"""

from __future__ import annotations

import sys

from holdall.base.platform.c_library import new_memory

if sys.platform == "win32":
    from holdall.base.platform.windows import *  # noqa: F403
else:
    from holdall.base.platform.posix import *  # noqa: F403

    if sys.platform == "linux":
        from holdall.base.platform.linux import *  # noqa: F403
    else:
        from holdall.base.platform.macos import *  # noqa: F403

__all__ = [  # noqa: F405
    "ABSENT",
    "DISK_FAILURES",
    "ENDING_SIGNALS",
    "IGNORES_CASE",
    "MAPS_HOLD_FILES",
    "NO_MAPS",
    "OBSTACLES",
    "OPEN_FILES_BLOCK",
    "PRIVATE_FOLDER",
    "TARGET_EXISTS",
    "TOO_MANY_FILES",
    "PartLock",
    "after_fork",
    "allows_name",
    "copy_descriptor",
    "copy_range",
    "core_count",
    "full_path",
    "is_link",
    "is_name_of",
    "is_private",
    "lock_part",
    "map_to_read",
    "max_open_files",
    "memory_file",
    "new_memory",
    "new_mode",
    "open_beneath",
    "open_new",
    "open_null",
    "open_to_continue",
    "open_to_read",
    "peak_memory",
    "read_at",
    "rename_new",
    "replace_file",
    "reset_peak_memory",
    "resident_memory",
    "run_limited",
    "set_mode",
    "start_writeback",
    "sync_file",
    "sync_folder",
    "write_at",
]
