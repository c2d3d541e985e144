"""Starts the command line, for ``python -m holdall`` and for the ``holdall`` script."""

from __future__ import annotations

import gc
import os
import signal

__all__ = ["run"]

INTERRUPTED = 130  # the exit code that a shell reports of a program ended by SIGINT


def run() -> None:
    """Run the command line. Ctrl-C ends it with one line, also while its modules are being imported."""
    # Background jobs ignore SIGINT, and must go on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.disable()  # imports leave no garbage worth looking for; the group turns it on before a command runs
    from holdall.cli import main

    # On Windows click would otherwise take a pattern for tensors, such as "*.weight", for the files that match it.
    main(prog_name="holdall", windows_expand_args=False)


def _leave(number: int, frame: object) -> None:
    """Exit at once: no file is open yet."""
    os.write(2, b"holdall: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
