"""Changes of golden models, which make packed models that are subtly wrong, or right in an unusual way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import holdall
import holdall.numpy
from tests.packed.golden import FOLDER

__all__ = ["Content", "Layout", "add", "put_beside", "read_content", "write_content"]


@dataclass
class Content:
    """The tensors and the configuration of a model, and documents beside them, to be changed."""

    tensors: dict[str, Any]
    config: dict[str, Any] | None
    documents: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        assert self.config is not None
        return next(self.config[key] for key in ("quantization", "quantization_config") if key in self.config)

    def find(self, ending: str) -> str:
        """The first tensor whose name ends so."""
        return next(name for name in sorted(self.tensors) if name.endswith(ending))

    def drop(self, ending: str) -> None:
        """Remove a tensor."""
        del self.tensors[self.find(ending)]

    def change(self, ending: str, work: Callable[[Any], Any]) -> None:
        """Replace a tensor by what ``work`` makes of it."""
        name = self.find(ending)
        self.tensors[name] = np.ascontiguousarray(work(self.tensors[name]))

    def state(self, **settings: Any) -> None:
        """Change settings of the scheme, wherever they are written."""
        assert self.config is not None
        for key in self.config.keys() & {"quantization", "quantization_config"}:
            self.config[key].update(settings)


@dataclass(frozen=True)
class Layout:
    """What is changed in a golden model, and the rule and the tensor of the refusal."""

    title: str
    model: str
    change: Callable[[Content], Any]
    rule: str = ""
    tensor: str = ""


def read_content(name: str) -> Content:
    """Read a golden model."""
    config = FOLDER / name / "config.json"
    return Content(
        holdall.numpy.load_file(FOLDER / name / "model.safetensors"),
        json.loads(config.read_text()) if config.exists() else None,
    )


def write_content(content: Content, folder: Path) -> Path:
    """Write a model as it is published; return what to open."""
    folder.mkdir()
    holdall.save(folder / "model.safetensors", content.tensors)
    if content.config is None:
        return folder / "model.safetensors"
    for name, document in {"config.json": content.config, **content.documents}.items():
        (folder / name).write_text(json.dumps(document))
    return folder


def put_beside(name: str, **statements: Any) -> Callable[[Content], None]:
    """Add a document that describes the scheme once more."""
    return lambda content: content.documents.update({f"{name}.json": statements})


def add(**tensors: Any) -> Callable[[Content], None]:
    """Add tensors; two underscores in a name are a dot."""
    return lambda content: content.tensors.update({name.replace("__", "."): each for name, each in tensors.items()})
