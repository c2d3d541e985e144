"""A window on a model: a page in the browser, served from this machine to this machine.

The room is called ``viewer`` because ``holdall.view()`` is a public function, which a room of that name would hide.
"""

from __future__ import annotations

from holdall.viewer.subject import Subject
from holdall.viewer.window import Window

__all__ = ["Subject", "Window"]
