"""The pages, by their path. Each module has a TITLE, ``is_there``, ``lay_out`` and ``register``."""

from __future__ import annotations

from typing import Any

from holdall.viewer.pages import bytes, compare, overview, tensor, tensors, vocabulary

__all__ = ["PAGES"]

PAGES: dict[str, Any] = {
    "/": overview,
    "/tensors": tensors,
    "/tensor": tensor,
    "/bytes": bytes,
    "/vocabulary": vocabulary,
}
PAGES["/compare"] = compare
