"""Bytes out: carrying out plans."""

from __future__ import annotations

from holdall.sink.file import Progress, write_file, write_folder

__all__ = ["Progress", "write_file", "write_folder"]
