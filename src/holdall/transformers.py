"""Builds models of the transformers library from weight files of every format. Needs ``holdall[transformers]``.

from holdall.transformers import load

model, tokenizer = load("model.mcf", device="cuda")
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdall.base.text import file_text, list_text
from holdall.errors import ContentError, FormatError, HoldallError, UnsupportedError
from holdall.format.hf_assets import config_of, kind_of_asset, parse_asset
from holdall.model.casts import dequantize
from holdall.model.dtypes import DType
from holdall.model.metadata import Assets
from holdall.operations.convert.carried_source import open_current
from holdall.operations.open_save import open_model
from holdall.packed import decode_weights
from holdall.source.folder import split_contained
from holdall.torch import find_torch_type, to_torch

if TYPE_CHECKING:
    import torch

    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.source import Source

__all__ = ["load"]

_CONFIG = "config.json"
_LISTED = 200  # names in one message
_READ = {"configuration", "tokenizer", "vocabulary", "chat template", "JSON", "text"}  # kinds of assets
_TOKENIZER = {"tokenizer", "vocabulary"}
_SUFFIXES = (".model", ".tiktoken", ".jinja")  # of files of tokenizers that have no fixed names
# Keys that make transformers fetch code to compute with. A file does not decide which code runs.
_IMPLEMENTATIONS = {"attn_implementation", "_attn_implementation", "_attn_implementation_internal", "fusion_config"}
_IMPLEMENTATIONS |= {"experts_implementation", "_experts_implementation", "_experts_implementation_internal"}


def load(
    path: str | os.PathLike[str],
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Build the model in a file, folder or URL, and its tokenizer, as objects of transformers.

    The container must hold ``config.json``, or be one that a recipe leads back from, as GGUF, or carry an original that
    is one of these, or the file must lie in a folder with it; so for the files of the tokenizer, which is None without
    them. The class is the one that
    ``config.json`` names; code that comes with a model is never run. Each tensor is read once, onto ``device``, and
    becomes the parameter: weights are in memory once.
    ``dtype`` is a type of torch or its name; without one it is the type that the configuration states, else that of the
    weights. Quantized tensors are decoded, and so are weights that are made of several tensors. ``options`` are those
    of :func:`holdall.open`.

    A missing tensor or a wrong shape raises ContentError, which lists them all.
    """
    try:
        import transformers
    except ImportError as error:
        raise UnsupportedError(
            f"loading a model needs the transformers library: pip install holdall[transformers] ({error})"
        ) from None

    with open_model(path, **options) as opened:
        source = _find_content(opened)
        files = _find_files(source, opened)
        source, files = _decode(source, files)
        config = _parse_config(files, source)
        model_class, settings = _choose_class(transformers, config, source)
        tokenizer, generation = _build_from_files(transformers, files)
        return _build_model(model_class, settings, generation, source, device, _torch_dtype(dtype)), tokenizer


def _find_content(model: Model) -> Model:
    """Return the model with config.json and the names that go with it; without a configuration in it, as it is.

    It is in the container, or a recipe leads back to it, or one of these is true of the original that the file carries.
    """
    found = _map_names(model)
    original = open_current(model) if found is None else None
    if original is None:
        return model if found is None else found
    found = _map_names(original)
    return original if found is None else found  # its names and dtypes count even if config.json lies beside the file


def _map_names(model: Model) -> Model | None:
    """Return the model under the names of Hugging Face, by the recipe that knows it; one with config.json unchanged."""
    from holdall import recipes

    if _CONFIG in model.assets:
        return model
    chosen = recipes.choose(model, "hf")
    if chosen is None:
        return None
    if any(not isinstance(tensor.dtype, DType) or tensor.scaling is not None for tensor in model.tensors):
        # Recipes turn and join numbers, and not blocks of them.
        model = model.replace(tensors=[dequantize(tensor, "f32") for tensor in model.tensors])
    return recipes.apply_recipe(chosen[0], model, "hf", back=chosen[1]).model


def _decode(model: Model, files: Mapping[str, bytes]) -> tuple[Model, Mapping[str, bytes]]:
    """Return the model with its packed weights decoded, and files that no longer say how they are packed.

    Otherwise transformers would decode them, of some schemes only, or take their codes for numbers.
    """
    described = model.replace(assets=files)
    described.resolve_facet = _resolve_config  # whether the files are in the model or beside it
    decoded = decode_weights(described)
    return (model, files) if decoded is described else (decoded, decoded.assets)


def _resolve_config(model: Model, name: str) -> Any:
    return config_of(model.assets) if name == "config" else None


# -- the files beside the weights -------------------------------------------------------------------------------------


def _find_files(model: Model, opened: Model) -> Mapping[str, bytes]:
    """The assets of the model; without a configuration among them, the files in the folder of what was opened.

    They are not mixed: what lies beside a file that is complete may belong to another model.
    """
    home = opened.sources[0] if opened.sources else None
    if _CONFIG in model.assets or home is None or home.is_folder:
        return model.assets
    return Assets(dict(_read_beside(home)))


def _read_beside(home: Source) -> Iterator[tuple[str, bytes]]:
    try:
        names = home.names()
    except HoldallError:  # a server that lists no files may still have the one
        names = [_CONFIG, "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    for name in names:
        if not _is_read(name):
            continue
        try:
            file = home.sibling(name)
        except (HoldallError, OSError):
            continue
        try:
            yield name, bytes(file.read(0, file.size))
        finally:
            file.close()


def _is_read(name: str) -> bool:
    """Whether the file may be one that a tokenizer or a configuration is made from. Code is not."""
    return kind_of_asset(name) in _READ or name.endswith(_SUFFIXES)


def _parse_config(files: Mapping[str, bytes], model: Model) -> dict[str, Any]:
    config = parse_asset(files, _CONFIG)
    if not isinstance(config, dict):
        raise UnsupportedError(
            f"{_name_of(model)}: has no {_CONFIG}, in it or beside it, so there is nothing that says which model it is"
        )
    return _drop_implementations(config)


def _drop_implementations(config: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _drop_implementations(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _IMPLEMENTATIONS
    }


def _build_from_files(transformers: Any, files: Mapping[str, bytes]) -> tuple[Any, Any]:
    """Build the tokenizer and the settings of generation; None for what has no files. transformers reads folders."""
    with tempfile.TemporaryDirectory(prefix="holdall-") as folder:
        written = set(_write_files(Path(folder), files))
        tokenizer = generation = None
        if any(kind_of_asset(name) in _TOKENIZER for name in written):
            tokenizer = _call(
                "the tokenizer", transformers.AutoTokenizer.from_pretrained, folder, trust_remote_code=False
            )
        if "generation_config.json" in written:
            generation = _call("generation_config.json", transformers.GenerationConfig.from_pretrained, folder)
    return tokenizer, generation


def _write_files(folder: Path, files: Mapping[str, bytes]) -> Iterator[str]:
    for name in files:
        if not _is_read(name):
            continue
        try:
            place = folder.joinpath(*split_contained(name))
        except FormatError:  # a container may call an asset anything
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(files[name])
        yield name


# -- the model --------------------------------------------------------------------------------------------------------


def _choose_class(transformers: Any, config: dict[str, Any], model: Model) -> tuple[Any, Any]:
    """Return the class of the model and its configuration, made from config.json."""
    kind = config.get("model_type")
    version = f"transformers {transformers.__version__}"
    own_code = "; it comes with code of its own, which is never run" if "auto_map" in config else ""
    if not isinstance(kind, str):
        raise UnsupportedError(f"{_name_of(model)}: {_CONFIG} states no model_type{own_code}")
    if kind not in transformers.CONFIG_MAPPING:
        raise UnsupportedError(f"{_name_of(model)}: {version} has no models of the type {kind!r}{own_code}")
    settings = _call(_CONFIG, transformers.CONFIG_MAPPING[kind].from_dict, config)
    names = config.get("architectures") or []
    if names:
        found = getattr(transformers, str(names[0]), None)
        if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
            raise UnsupportedError(f"{_name_of(model)}: {version} has no architecture {names[0]!r}{own_code}")
        return found, settings
    for mapping in (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_MAPPING):
        if type(settings) in mapping:
            return mapping[type(settings)], settings
    raise UnsupportedError(f"{_name_of(model)}: {_CONFIG} names no architecture, and {kind!r} has no usual one")


def _build_model(
    model_class: Any, settings: Any, generation: Any, model: Model, device: Any, dtype: torch.dtype | None
) -> Any:
    """Build the model without weights, and have transformers take each from the file.

    transformers builds on the meta device, renames and joins what older checkpoints store otherwise, ties weights, and
    computes the buffers that no file has.
    """
    weights = {tensor.name: _defer(tensor, device) for tensor in model.tensors if tensor.has_data}
    built, info = _call(
        "the model",
        model_class.from_pretrained,
        None,
        config=settings,
        state_dict=weights,
        dtype="auto" if dtype is None else dtype,
        ignore_mismatched_sizes=True,  # they are listed below, with what is missing
        output_loading_info=True,
        trust_remote_code=False,
    )
    _check_complete(built, info, model)
    if generation is not None and built.can_generate():
        built.generation_config = generation
    built.config.name_or_path = _name_of(model)
    return built if device is None else built.to(device)  # which moves buffers: weights are there


def _check_complete(built: Any, info: Mapping[str, Any], model: Model) -> None:
    """Raise ContentError if a parameter got no weights."""
    problems = []
    if info["missing_keys"]:
        problems.append(f"it has no {list_text(sorted(info['missing_keys']), most=_LISTED)}")
    shapes = sorted(_describe_shape(entry, built, model) for entry in info["mismatched_keys"])
    if shapes:
        problems.append(list_text(shapes, "; ", _LISTED))
    problems += [str(message) for message in info.get("error_msgs") or ()]
    if problems:
        raise ContentError(f"{_name_of(model)}: does not fit {type(built).__name__}: {'; '.join(problems)}")


def _describe_shape(entry: Any, built: Any, model: Model) -> str:
    """What is wrong with a shape: version 5 of transformers gives name and shapes, version 4 the name."""
    if isinstance(entry, str):
        found = model[entry].shape if entry in model else None
        entry = (entry, found, built.state_dict()[entry].shape)
    name, found, needed = entry
    return f"{name} has {'another shape' if found is None else f'the shape {list(found)}'} and needs {list(needed)}"


def _call(what: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function of transformers, and say in one sentence what it refuses."""
    try:
        return function(*arguments, **options)
    except (HoldallError, MemoryError):
        raise
    except Exception as error:  # transformers and the libraries below it raise errors of many kinds
        text = " ".join(str(error).split())
        raise UnsupportedError(f"transformers cannot build {what}: {type(error).__name__}: {text}") from error


def _name_of(model: Model) -> str:
    return file_text(model.sources[0].name) if model.sources else "the model"


# -- tensors that are read when they are needed -----------------------------------------------------------------------


def _torch_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    return find_torch_type(dtype) if isinstance(dtype, str) else dtype


def _defer(tensor: Tensor, device: Any) -> Any:
    """A torch tensor that has a type and a shape, and reads its values when something is computed with them."""
    deferred: Any = to_torch(tensor, "meta").as_subclass(_deferred_class())
    deferred.read = lambda: to_torch(tensor, device)
    return deferred


@cache
def _deferred_class() -> Any:
    """The class of deferred tensors: a function, so that importing this module does not import torch."""
    import torch

    class Deferred(torch.Tensor):  # type: ignore[misc]  # torch is not followed: its classes are Any
        """A tensor of a file. What transformers does with one of a checkpoint: ask for facts, take all, move, cast."""

        read: Any

        @classmethod
        def __torch_function__(
            cls, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if function in facts:
                return super().__torch_function__(function, types, args, kwargs)
            if function is torch.Tensor.__getitem__ and args[1] is ...:
                return args[0]  # all of it, which is not needed yet
            values = tuple(value.read() if isinstance(value, Deferred) else value for value in args)
            if function is torch.Tensor.to:  # the caller asks for the processor, and the values are where they belong
                wanted = [value for value in (*args[1:], kwargs.get("dtype")) if isinstance(value, torch.dtype)]
                return values[0].to(*wanted) if wanted else values[0]
            return function(*values, **kwargs)

    getters = [
        getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "is_meta")
    ]
    methods = [torch.Tensor.is_floating_point, torch.Tensor.is_complex, torch.Tensor.size, torch.Tensor.dim]
    facts = {*getters, *methods, torch.Tensor.numel, torch.Tensor.stride, torch.Tensor.element_size}
    return Deferred
