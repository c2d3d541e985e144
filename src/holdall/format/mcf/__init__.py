"""MCF, major version 1: sections with a directory, a tensor index, quantized weights, Hugging Face files inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from holdall.base.utf8 import utf8_breach
from holdall.format.base import Holds, MagicFormat, Option, import_late, list_fields
from holdall.format.mcf.layout import ASSETS, CHAT_TEMPLATE, DTYPE_IDS, MAGIC, option_name
from holdall.format.mcf.rules import REQUIRED, RULES

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

__all__ = ["FORMAT"]


def _refuses_name(name: str) -> str | None:
    return utf8_breach(name) if name else "names are not empty"


def _refuses_asset(name: str) -> str | None:
    if name in ASSETS.values() or name == CHAT_TEMPLATE:
        return None
    return f"there is no section for it; there is one for {', '.join(ASSETS.values())}"


class Mcf(MagicFormat):
    """The MCF container."""

    name = "mcf"
    title = "MCF (Model Container File)"
    suffixes = (".mcf",)
    holds = Holds(
        dtypes=frozenset(DTYPE_IDS),
        zero_size=False,
        aliases=True,
        assets=True,
        free_text=True,
        names="any text but the empty one",
        refuses_name=_refuses_name,
        refuses_metadata=import_late("holdall.format.mcf.modelinfo", "metadata_breach"),
        refuses_asset=_refuses_asset,
    )
    options = (
        Option("tensor_align", "auto", "payloads start on multiples of this; auto is 64, or what an MCF source has"),
        Option("minor", "auto", "minor version; auto is 1, or 0 from a file of version 1.0", ("auto", "0", "1")),
        Option("arrange", "auto", "order of sections: keep an MCF file's own, pack as for a folder, plain, or as the "
               "reference quantizer; auto chooses by where the model comes from",
               ("auto", "keep", "pack", "plain", "quantize")),
        Option("dedup", "auto", "share bytes of equal content, of aliases, or none; auto is content when packing, "
               "and aliases otherwise"),
        Option("cast", "keep", "floats to f16 or bf16, as the reference packer rounds", ("keep", "f16", "bf16")),
        Option("resources", True, "include tokenizer and configuration files"),
        Option("model_name", None, "the name in ModelInfo, instead of the model's own or, when packing, the folder's"),
        *(Option(option_name(asset), None, f"{asset} to store instead of the model's own", document=True)
          for asset in ASSETS.values()),
    )  # fmt: skip
    rules = RULES
    magic = MAGIC

    def require(self, model: Model, parts: Collection[str]) -> None:
        """Sections by name: "TensorIndex", "ModelInfo", "tokenizer.json", "0x0200"."""
        from holdall.errors import FormatError
        from holdall.format.mcf.sections import McfNative

        assert isinstance(model.native, McfNative)
        missing = [part for part in parts if model.native.get(part) is None]
        if missing:
            has = ", ".join(section.name for section in model.native.sections)
            raise FormatError(REQUIRED.id, None, f"mcf: there is no section {missing[0]}; the sections are: {has}")

    def omitted_metadata(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """The metadata of a folder's weights, which the reference packer does not write."""
        from holdall.format.mcf.hf_packer import omitted_metadata
        from holdall.format.mcf.write import choose_arrangement

        arrangement = choose_arrangement(options["arrange"], model, model.tensors)
        return omitted_metadata(model) if arrangement == "pack" else {}

    def merged_assets(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """The chat template of a folder, unless tokenizer_config.json has one of its own."""
        from holdall.format.mcf.hf_packer import merged_assets
        from holdall.format.mcf.write import choose_arrangement, choose_documents

        arrangement = choose_arrangement(options["arrange"], model, model.tensors)
        return merged_assets(choose_documents(model, options).assets) if arrangement == "pack" else {}

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """Sections of unknown or repeated types, a damaged ModelInfo, TensorData and QuantInfo without TensorIndex."""
        from holdall.format.mcf.layout import MODEL_INFO
        from holdall.format.mcf.sections import McfNative

        if not isinstance(model.native, McfNative):
            return {}
        repeated = set(map(id, model.native.repeated))
        found: dict[str, str] = {}
        for section in model.native.own:
            again = id(section) in repeated  # there may be several of one type, each at its place
            name = f"{section.name} at byte {section.offset:#x}" if again else section.name
            found[name] = f"a section of {section.size} bytes"
        info = model.native.get(MODEL_INFO)
        if info is not None and not model.native.reads_model_info:
            found[info.name] = f"a section of {info.size} bytes that cannot be read as metadata"
        return found

    def clashing_content(self, model: Model) -> Mapping[str, str]:
        """Tables of tensors beyond the first of their type, which describe the bytes of the old file."""
        from holdall.format.mcf.layout import QUANT_INFO, TENSOR_DATA, TENSOR_INDEX
        from holdall.format.mcf.sections import McfNative

        tables = (TENSOR_DATA, TENSOR_INDEX, QUANT_INFO)
        repeated = model.native.repeated if isinstance(model.native, McfNative) else []
        return {
            f"{section.name} at byte {section.offset:#x}": f"a section of {section.size} bytes, beside the first"
            for section in repeated
            if section.type in tables
        }

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """The hashes of the sections of :meth:`unique_content`, numbered if there are several of one type."""
        from holdall.format.mcf.sections import McfNative
        from holdall.model.equal_tensors import hash_payload

        found: dict[str, bytes] = {}
        for section in model.native.own if isinstance(model.native, McfNative) else ():
            same = sum(name.split(" ")[1] == section.name for name in found)
            found[f"section {section.name}" + (f" {same + 1}" if same else "")] = hash_payload(section.payload)
        return found

    def describe_tensor(self, tensor: Tensor) -> dict[str, Any]:
        """The record of a quantized tensor."""
        record = list_fields(tensor.native)
        return {"quant": record} if record else {}

    def facet(self, name: str, model: Model) -> Any:
        """The configuration, from config.json; the vocabulary, from tokenizer.json or vocab.json."""
        from holdall.format.hf_assets import config_of, vocab_of

        if name == "config":
            return config_of(model.assets)
        return vocab_of(model.assets) if name == "vocab" else None


FORMAT = Mcf()
