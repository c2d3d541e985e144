"""``holdall.view()``: the pages of the viewer in a notebook."""

from __future__ import annotations

import os

from holdall.base.text import html_text
from holdall.model.model import Model
from holdall.viewer.server import ViewServer
from holdall.viewer.subject import Subject
from holdall.viewer.window import Window

__all__ = ["View", "view"]


class View:
    """A window on a model, shown where a notebook shows the last value of a cell. ``url`` opens it elsewhere."""

    def __init__(self, server: ViewServer, height: int) -> None:
        self._server = server
        self._height = height

    @property
    def url(self) -> str:
        """The address, with its token: for a browser on this machine."""
        return self._server.url

    def close(self) -> None:
        """End the server. The model stays open."""
        self._server.close()

    def __repr__(self) -> str:
        return f"<View {self.url}>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{html_text(self.url)}" title="holdall" style="width:100%;height:{self._height}px;'
            f'border:1px solid #ccd3db;border-radius:8px"></iframe>'
        )


def view(
    model: Model | str | os.PathLike[str], other: Model | str | os.PathLike[str] | None = None, *, height: int = 760
) -> View:
    """Show a model, or two beside each other, in a notebook. Needs ``holdall[view]``.

    The page is served from this process to this machine only, until ``close()`` or the end of the process.

    >>> import holdall, numpy as np
    >>> holdall.save("example.oinf", {"w": np.ones((2, 2), np.float32)})
    >>> shown = holdall.view("example.oinf")
    >>> shown.url.startswith("http://127.0.0.1:")
    True
    >>> shown.close()
    """
    server = ViewServer(Window([_look_at(each) for each in (model, other) if each is not None]), in_path=True)
    server.start()
    return View(server, height)


def _look_at(model: Model | str | os.PathLike[str]) -> Subject:
    return Subject(model) if isinstance(model, Model) else Subject.examine(os.fspath(model))
