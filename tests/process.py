"""What the process that runs the tests holds at the moment.

A count over the whole process changes whenever garbage of other tests is collected, so a test asks for its own files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def descriptors_of(path: Path | str) -> set[int]:
    """The open descriptors of a file, or of anything below a folder."""
    wanted, found = Path(os.path.realpath(path)), set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            target = Path(str(link.readlink()).removesuffix(" (deleted)"))
            if target == wanted or wanted in target.parents:
                found.add(int(link.name))
    return found
