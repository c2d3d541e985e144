"""OINF, versions 1 and 2: size variables, typed metadata, tensors down to one bit, quant parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdall.format.base import Holds, MagicFormat, Option, import_late, list_fields
from holdall.format.oinf.layout import MAGIC, TAG_OF
from holdall.format.oinf.rules import RULES
from holdall.model.dtypes import DTYPES

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

__all__ = ["FORMAT"]


class Oinf(MagicFormat):
    """The OINF container."""

    name = "oinf"
    title = "OINF (Open Infer Neural Format)"
    suffixes = (".oinf",)
    holds = Holds(
        dtypes=frozenset(name for name in TAG_OF if name in DTYPES and name != "bitset"),
        declared=True,
        free_text=True,
        names="A-Z a-z 0-9 . _ -",
        refuses_name=import_late("holdall.format.oinf.values", "name_breach"),
        refuses_metadata=import_late("holdall.format.oinf.values", "metadata_breach"),
    )
    options = (
        Option("version", "auto", "1 or 2; auto is 1, or 2 with quant parameters or from a version 2 file",
               ("auto", "1", "2")),
        Option("sort", True, "sort each table by name, as the format's own writer does"),
        Option("bitsets", "refuse", "BITSET tensors, which other readers refuse: write them, one byte an element",
               ("refuse", "write")),
    )  # fmt: skip
    rules = RULES
    magic = MAGIC

    def holds_with(self, options: Mapping[str, Any]) -> Holds:
        """With ``bitsets=write`` also BITSET tensors."""
        forced = options["bitsets"] == "write"
        return replace(self.holds, dtypes=self.holds.dtypes | {"bitset"}) if forced else self.holds

    def edit_options(self, model: Model) -> Mapping[str, Any]:
        """BITSET tensors are kept where the file has some."""
        bitsets = any(str(form.dtype) == "bitset" for form in model.tensors.forms().kinds)
        return {"bitsets": "write"} if bitsets else {}

    def bound_values(self, model: Model) -> dict[str, str]:
        """Tensors with quantization parameters, which version 2 stores apart from the payload."""
        if model.version == (1,):
            return {}
        from holdall.format.oinf.quant import QuantParams

        quantized = (tensor.name for tensor in model.tensors if isinstance(tensor.native, QuantParams))
        return dict.fromkeys(quantized, "is scaled by the quantization parameters of its entry")

    def describe_tensor(self, tensor: Tensor) -> dict[str, Any]:
        """The quantization parameters of a version 2 tensor."""
        parameters = list_fields(tensor.native)
        return {"quant": parameters} if parameters else {}

    def infer_kind(self, value: Any) -> str | None:
        """The kind of an array or a list; None for other values."""
        from holdall.format.oinf.values import infer_array_kind

        return infer_array_kind(value)

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """Size variables."""
        sizes = self.facet("sizevars", model)
        return {"sizevars": "size variables " + ", ".join(f"{k}={v}" for k, v in sizes.items())} if sizes else {}

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """Size variables, by name."""
        return {f"size variable {name}": value for name, value in (self.facet("sizevars", model) or {}).items()}

    def make_native(self, facets: Mapping[str, Any]) -> object:
        """Make the native part that holds size variables."""
        from holdall.format.oinf.read import OinfNative

        return OinfNative(dict(facets["sizevars"])) if facets.keys() == {"sizevars"} else None

    def facet(self, name: str, model: Model) -> Any:
        """Size variables."""
        from holdall.format.oinf.read import OinfNative

        native = model.native
        return native.sizevars if name == "sizevars" and isinstance(native, OinfNative) else None


FORMAT = Oinf()
