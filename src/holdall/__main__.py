"""``python -m holdall`` is the command line."""

from __future__ import annotations

from holdall.cli import main

main(prog_name="holdall")
