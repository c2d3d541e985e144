"""holdall: the files that hold model weights, opened, checked, explained, converted, compared and written.

>>> import holdall, numpy as np
>>> holdall.save("example.oinf", {"w": np.eye(2, dtype=np.float32)})
>>> with holdall.open("example.oinf") as model:
...     model["w"].numpy().tolist()
[[1.0, 0.0], [0.0, 1.0]]
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # that of typing, which takes longer to import than the command line needs to heed ctrl-C
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Names are looked up when first used: `holdall --version` must not pay for numpy.
_HOMES = {
    "open": "holdall.api:open_model",
    "save": "holdall.api:save",
    "verify": "holdall.api:verify",
    "convert": "holdall.operations.convert.convert:convert",
    "restore": "holdall.operations.convert.restore:restore",
    "ConversionReport": "holdall.operations.convert.report:ConversionReport",
    "diff": "holdall.diff:diff",
    "edit": "holdall.edit:edit",
    "EditReport": "holdall.edit:EditReport",
    "Difference": "holdall.diff:Difference",
    "formats": "holdall.api:formats",
    "Model": "holdall.model:Model",
    "Tensor": "holdall.tensor:Tensor",
    "Limits": "holdall.limits:Limits",
    "Report": "holdall.check:Report",
    "Finding": "holdall.check:Finding",
    "HoldallError": "holdall.errors:HoldallError",
    "FormatError": "holdall.errors:FormatError",
    "HashError": "holdall.errors:HashError",
    "LimitError": "holdall.errors:LimitError",
    "UnsupportedError": "holdall.errors:UnsupportedError",
    "ContentError": "holdall.errors:ContentError",
    "ClosedError": "holdall.errors:ClosedError",
    "MissingError": "holdall.errors:MissingError",
    "Vocab": "holdall.vocab:Vocab",
    "ParamStore": "holdall.params:ParamStore",
}

_MODULES = ("identity", "jax", "numpy", "oinf", "profiles", "quant", "runtime", "testing", "torch")

__all__ = [
    "ClosedError",
    "ContentError",
    "ConversionReport",
    "Difference",
    "EditReport",
    "Finding",
    "FormatError",
    "HashError",
    "HoldallError",
    "LimitError",
    "Limits",
    "MissingError",
    "Model",
    "ParamStore",
    "Report",
    "Tensor",
    "UnsupportedError",
    "Vocab",
    "__version__",
    "convert",
    "diff",
    "edit",
    "formats",
    "identity",
    "jax",
    "numpy",
    "oinf",
    "open",
    "profiles",
    "quant",
    "restore",
    "runtime",
    "save",
    "testing",
    "torch",
    "verify",
]

if TYPE_CHECKING:
    from holdall import identity, jax, numpy, oinf, profiles, quant, runtime, testing, torch
    from holdall.api import formats, save, verify
    from holdall.api import open_model as open
    from holdall.check import Finding, Report
    from holdall.diff import Difference, diff
    from holdall.edit import EditReport, edit
    from holdall.errors import (
        ClosedError,
        ContentError,
        FormatError,
        HashError,
        HoldallError,
        LimitError,
        MissingError,
        UnsupportedError,
    )
    from holdall.limits import Limits
    from holdall.model import Model
    from holdall.operations.convert.convert import convert
    from holdall.operations.convert.report import ConversionReport
    from holdall.operations.convert.restore import restore
    from holdall.params import ParamStore
    from holdall.tensor import Tensor
    from holdall.vocab import Vocab


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"holdall.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdall' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps the verbs: importing the room ``holdall.convert`` must not hide ``holdall.convert()``."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
