"""Writes plans to files and folders."""

from __future__ import annotations

from holdall.sink.file import write_file
from holdall.sink.folder import write_folder

__all__ = ["write_file", "write_folder"]
