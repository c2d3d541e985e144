"""The way into the command line, for ``python -m holdall`` and for the ``holdall`` script."""

from __future__ import annotations

import os
import signal

__all__ = ["run"]

INTERRUPTED = 130  # what a shell reports of a program that SIGINT ended


def run() -> None:
    """Run the command line. Ctrl-C ends it from here on, even while it is still being imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be ignored
        signal.signal(signal.SIGINT, _leave)
    from holdall.cli import main

    main(prog_name="holdall")


def _leave(number: int, frame: object) -> None:
    """Nothing is open yet: leave at once."""
    os.write(2, b"holdall: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
