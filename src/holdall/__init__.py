"""holdall opens, checks, explains, converts, compares and writes the files that hold model weights.

>>> import holdall, numpy as np
>>> holdall.save("example.oinf", {"w": np.eye(2, dtype=np.float32)})
>>> with holdall.open("example.oinf") as model:
...     model["w"].numpy().tolist()
[[1.0, 0.0], [0.0, 1.0]]
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing for it would delay the start of the command line
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Names are looked up when first used: `holdall --version` must not pay for numpy.
_HOMES = {
    "open": "holdall.operations.open_save:open_model",
    "save": "holdall.operations.open_save:save",
    "verify": "holdall.operations.open_save:verify",
    "convert": "holdall.operations.convert.convert:convert",
    "restore": "holdall.operations.convert.restore:restore",
    "ConversionReport": "holdall.operations.convert.report:ConversionReport",
    "diff": "holdall.operations.diff:diff",
    "diff_trace": "holdall.operations.trace:diff_trace",
    "TraceDifference": "holdall.operations.trace:TraceDifference",
    "edit": "holdall.operations.edit:edit",
    "EditReport": "holdall.operations.edit:EditReport",
    "Difference": "holdall.operations.diff:Difference",
    "formats": "holdall.operations.open_save:formats",
    "Model": "holdall.model.model:Model",
    "Tensor": "holdall.model.tensor:Tensor",
    "Limits": "holdall.limits:Limits",
    "Report": "holdall.base.check:Report",
    "Finding": "holdall.base.check:Finding",
    "HoldallError": "holdall.errors:HoldallError",
    "ForeignError": "holdall.errors:ForeignError",
    "FormatError": "holdall.errors:FormatError",
    "HashError": "holdall.errors:HashError",
    "LimitError": "holdall.errors:LimitError",
    "UnsupportedError": "holdall.errors:UnsupportedError",
    "ContentError": "holdall.errors:ContentError",
    "ClosedError": "holdall.errors:ClosedError",
    "MissingError": "holdall.errors:MissingError",
    "Vocab": "holdall.model.vocab:Vocab",
    "ParamStore": "holdall.params:ParamStore",
    "identity": "holdall.model.identity",
    "jax": "holdall.jax",
    "numpy": "holdall.numpy",
    "oinf": "holdall.oinf",
    "plugin": "holdall.plugin",
    "profiles": "holdall.profiles",
    "quant": "holdall.quant",
    "runtime": "holdall.runtime",
    "torch": "holdall.torch",
    "transformers": "holdall.transformers",
    "view": "holdall.viewer.notebook:view",
}


__all__ = ["ClosedError", "ContentError", "ConversionReport", "Difference", "EditReport", "Finding", "ForeignError"]
__all__ += [
    "FormatError",
    "HashError",
    "HoldallError",
    "LimitError",
    "Limits",
    "MissingError",
    "Model",
    "ParamStore",
    "Report",
]
__all__ += [
    "Tensor",
    "TraceDifference",
    "UnsupportedError",
    "Vocab",
    "__version__",
    "convert",
    "diff",
    "diff_trace",
    "edit",
    "formats",
    "identity",
]
__all__ += ["jax", "numpy", "oinf", "open", "plugin", "profiles", "quant", "restore", "runtime", "save", "torch"]
__all__ += ["transformers", "verify", "view"]

if TYPE_CHECKING:
    from holdall import jax, numpy, oinf, plugin, profiles, quant, runtime, torch, transformers
    from holdall.base.check import Finding, Report
    from holdall.errors import (
        ClosedError,
        ContentError,
        ForeignError,
        FormatError,
        HashError,
        HoldallError,
        LimitError,
        MissingError,
        UnsupportedError,
    )
    from holdall.limits import Limits
    from holdall.model import identity
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.model.vocab import Vocab
    from holdall.operations.convert.convert import convert
    from holdall.operations.convert.report import ConversionReport
    from holdall.operations.convert.restore import restore
    from holdall.operations.diff import Difference, diff
    from holdall.operations.edit import EditReport, edit
    from holdall.operations.open_save import formats, save, verify
    from holdall.operations.open_save import open_model as open
    from holdall.operations.trace import TraceDifference, diff_trace
    from holdall.params import ParamStore
    from holdall.viewer.notebook import view


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdall' has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    found = import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
