"""A dataclass for `holdall from-dataclass`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Sample:
    size: int = 3
