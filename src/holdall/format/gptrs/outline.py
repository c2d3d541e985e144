"""What explain opens in checkpoints: the configuration."""

from __future__ import annotations

from holdall.format.outline import open_regions, outline_json

__all__ = ["outline"]

outline = open_regions({"configuration": outline_json})
