"""What explain opens in documents of AERO sets."""

from __future__ import annotations

from holdall.format.outline import open_regions, outline_json

__all__ = ["outline"]

outline = open_regions({"json": outline_json})
