"""The calls of the library that cases make. Each may raise HoldallError or OSError, and nothing else."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

import holdall
from holdall import profiles, quant, runtime
from holdall.errors import FormatError, HoldallError, UnsupportedError
from holdall.format import registry
from tools.fuzz.operations.desk import Desk
from tools.fuzz.operations.material import CONFIG, WORDS
from tools.fuzz.operations.recipe_files import RECIPES
from tools.fuzz.operations.words import FORMATS, target

__all__ = ["VERBS", "Lie", "Scene"]

_SMALL = 1 << 16  # elements of tensors that slices are compared of
_KEYS: tuple[Any, ...] = (
    0, -1, slice(None), slice(0, 1), slice(None, None, 2), slice(None, None, -1), slice(5, 2), ..., slice(1, None),
    slice(-(1 << 70), 1 << 70), slice(None, None, 1 << 62),
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    1, -1, 1.5, True, None, "x", "", [1, 2], ["a"], [[1], [2]], {"a": {"b": 1}}, 1 << 70, float("nan"), b"x", [], {},
    "\0", "\ud800", [1, "a"], np.float16(1), np.arange(3),
)  # fmt: skip


class Lie(Exception):
    """Two answers that must be the same differ."""


class Scene:
    """The models of a case, by path, and the choices of the call. ``said`` records the choices for the report."""

    def __init__(self, desk: Desk, a: str, b: str, chance: random.Random) -> None:
        self.desk, self.a, self.b, self.chance = desk, a, b, chance
        self.said: list[str] = []

    def side(self, kind: str) -> str:
        """Return a file beside the models, made as the call goes."""
        return self.desk.output(self.desk.side(kind))

    def pick(self, **choices: Any) -> dict[str, Any]:
        """Return some of the options, each with one of its values."""
        made = {name: self.chance.choice(values) for name, values in choices.items() if self.chance.random() < 0.25}
        self.said.append(repr(made)[:2000])
        return made

    def open(self, path: str | None = None) -> holdall.Model:
        """Open a model in one of the ways there are."""
        options = self.pick(mmap=(True, False), check=(True, False, None), allowed=(FORMATS,), require=(("w",),))
        what: Any = self.a if path is None else path
        if self.chance.random() < 0.1 and (self.desk.folder / what).is_file():
            what = (self.desk.folder / what).read_bytes()
        return holdall.open(what, **options)

    def word(self) -> str:
        """Return a name that is in the models, or might be."""
        return str(self.chance.choice([*self.desk.names, "w", "x"]))


def _values(model: holdall.Model) -> dict[str, tuple[Any, ...]]:
    return {tensor.name: _content(tensor) for tensor in model.tensors}


def _content(tensor: holdall.Tensor) -> tuple[Any, ...]:
    if not tensor.has_data:
        return tensor.dtype.name, tensor.shape, None
    try:
        values = tensor.numpy()
    except UnsupportedError:
        return tensor.dtype.name, tensor.shape, bytes(tensor.raw())
    return tensor.dtype.name, values.shape, values.tobytes()


# -- reading ----------------------------------------------------------------------------------------------------------


def _open(scene: Scene) -> None:
    with scene.open() as model:
        list(model.items())
        repr(model), str(model)
        if hasattr(model, "_repr_html_"):
            model._repr_html_()
        for _ in (model.config, model.vocab, model.sizevars, model.nbytes, dict(model.metadata)):
            pass
        for name in model.assets:
            bytes(model.assets[name])
        vocab = model.vocab
        if vocab is not None and len(vocab):
            vocab.to_text()
            vocab.id(vocab[0])
        with suppress(KeyError):
            model[scene.word()]
        for tensor in model.fetch():
            repr(tensor)


def _tensors(scene: Scene) -> None:
    with scene.open() as model:
        for tensor in model.tensors:
            with suppress(HoldallError):  # of one tensor; the others go on
                _read_tensor(tensor, scene.chance)


def _read_tensor(tensor: holdall.Tensor, chance: random.Random) -> None:
    _ = tensor.scaling, tensor.payloads, tensor.offset, tensor.nbytes, tensor.count
    if not tensor.has_data:
        tensor.numpy(fill=0.0)
        return
    whole = tensor.numpy()
    tensor.raw()
    if tensor.size > _SMALL:
        return
    joined = b"".join(block.tobytes() for block in tensor.blocks(chance.choice((1, 3, 1 << 20))))
    if joined != whole.tobytes():
        raise Lie(f"{tensor.name!r}: blocks are not the whole")
    for _ in range(3):
        key = tuple(chance.choice(_KEYS) for _ in range(chance.choice((1, 1, 2, 3))))
        try:
            expected = whole[key]
        except (IndexError, ValueError, OverflowError):
            with suppress(IndexError, ValueError, OverflowError):
                tensor[key]
            continue
        if tensor[key].tobytes() != expected.tobytes():
            raise Lie(f"{tensor.name!r}{list(key)}: a slice is not that of the whole")
    tensor.numpy(dequantize=True)


def _verify(scene: Scene) -> None:
    report = holdall.verify(scene.a, **scene.pick(level=("structure", "full", "strict"), allowed=(FORMATS,)))
    str(report), repr(report)
    if report.ok:
        holdall.open(scene.a).close()  # what is called right opens


def _pickle(scene: Scene) -> None:
    with scene.open() as model:
        try:
            data = pickle.dumps(model)
        except TypeError:  # documented: of models that cannot travel
            return
        with pickle.loads(data) as again:
            if again.tensors.names != model.tensors.names:
                raise Lie("another model came out of the pickle")


# -- writing ----------------------------------------------------------------------------------------------------------


def _save(scene: Scene) -> None:
    path = target(scene.desk, scene.chance)
    format = scene.chance.choice(FORMATS)
    with scene.open() as model:
        before = _values(model)
        options = {option.name: _option(option, scene) for option in registry.find(format).options}
        kept = {name: value for name, value in options.items() if scene.chance.random() < 0.15}
        scene.said.append(f"save {path!r} {format} {kept!r}"[:1000])
        holdall.save(path, model, format=format, fsync=False, **kept)
    if kept.get("scalars") == "as-vector":  # asked for: a tensor without dimensions gets one
        before = {name: (dtype, shape or (1,), data) for name, (dtype, shape, data) in before.items()}
    _compare(before, path, format, "save")


def _option(option: Any, scene: Scene) -> Any:
    if option.choices and scene.chance.random() < 0.9:
        return scene.chance.choice(option.choices)
    return scene.chance.choice((True, False, 8, 64, "auto", 0, -1, 1 << 70, "x", "", None, [1], "1MB"))


def _convert(scene: Scene) -> None:
    path = target(scene.desk, scene.chance)
    format = scene.chance.choice(FORMATS)
    changing = scene.pick(
        cast=("f32", "bf16", {"*": "f64"}, [f"{scene.word()}=f16"]), transpose=(["*"],),
        rename=(["s/w/v/"], ["s/.*/x/"]), names=({scene.word(): scene.word()},), include=(["*"], ["w*"]),
        exclude=(["a*"],), dequantize=(True,),
        quantize=("k4", "int8"), metadata=({"a": scene.chance.choice(_VALUES)},), split=(8, "1KB"),
        shorten_names=(True,), recipe=("none", scene.chance.choice(RECIPES), scene.side("toml")),
    )  # fmt: skip
    keeping = scene.pick(
        dedup=(True,), carry=(True,), strict=(True,), clobber=(False,), check=(False,), dry_run=(True,), force=(True,)
    )
    sources: Any = scene.a if scene.chance.random() < 0.85 else [scene.a, scene.b]
    scene.said.append(f"convert {sources!r} {path!r} {format}")
    report = holdall.convert(sources, path, format=format, fsync=False, **changing, **keeping)
    str(report), repr(report)
    if changing or report.changes or not isinstance(sources, str) or not report.lossless or report.losses:
        if report.carried in report.source_format and report.lossless:  # a carrier hands on the original inside it
            _restore_to_compare(scene, path)
        return
    with holdall.open(sources, check=keeping.get("check")) as model:
        _compare(_values(model), path, format, "convert")


def _compare(before: dict[str, Any], path: str, format: str, verb: str) -> None:
    try:
        with holdall.open(path, format=format) as written:
            after = _values(written)
    except FormatError as error:
        raise Lie(f"{verb} wrote what does not open: {error}") from error
    if verb == "save":  # its writers may keep to their own types; names and values are compared
        before = {name: value for name, value in before.items() if name in after and after[name][0] == value[0]}
        after = {name: after[name] for name in before}
    if before != after:
        names = [name for name in before if before[name] != after.get(name)]
        raise Lie(f"{verb} to {format} changed {names[:3]!r}: {[before[n] for n in names][:1]!r:.300} {after!r:.300}")


def _restore_to_compare(scene: Scene, path: str) -> None:
    original = scene.desk.folder / scene.a
    if not original.is_file():
        return
    report = holdall.restore(path, scene.desk.output("out/again"), fsync=False)
    if report.restored == "bytes" and (scene.desk.folder / "out/again").read_bytes() != original.read_bytes():
        raise Lie("restore made another file than the original")


def _restore(scene: Scene) -> None:
    options = scene.pick(with_changes=(True,), clobber=(False,), check=(False,), dry_run=(True,), allowed=(FORMATS,))
    str(holdall.restore(scene.a, target(scene.desk, scene.chance), fsync=False, **options))


def _edit(scene: Scene) -> None:
    scene.desk.edits.add(scene.a.split("/")[0])
    options = scene.pick(
        set=({scene.word(): scene.chance.choice(_VALUES)},), unset=([scene.word()],), rename=({scene.word(): "y"},),
        rules=(["s/w/v/"],), assets=({scene.word(): b"x"}, {scene.word(): None}), requires_grad=({"*": True},),
        keep_kinds=(False,), check=(False,), dry_run=(True,),
    )  # fmt: skip
    str(holdall.edit(scene.a, fsync=False, **options))


def _diff(scene: Scene) -> None:
    found = holdall.diff(scene.a, scene.b, **scene.pick(measure=(False,), check=(False,)))
    str(found), repr(found), bool(found)


def _diff_trace(scene: Scene) -> None:
    order = [scene.word() for _ in range(3)]
    options = scene.pick(tolerance=(0.0, 1e300, float("inf")), order=(order,), check=(False,))
    str(holdall.diff_trace(scene.a, scene.b, **options))


# -- parameters, fronts, quantization, encoders -----------------------------------------------------------------------


def _store(scene: Scene) -> None:
    disk = scene.desk.output("out/forms") if scene.chance.random() < 0.3 else None
    with scene.open() as model:
        store = holdall.ParamStore.from_model(
            model, disk=disk, **scene.pick(budget=(0, 1, 100, 1 << 40), small=(0, 64))
        )
        for name in [*model.tensors.names, scene.word()]:
            with suppress(HoldallError):
                np.asarray(store[name])
        store.figures()
        store.clear()


def _numpy(scene: Scene) -> None:
    path = scene.desk.folder / scene.a
    if path.is_file() and scene.chance.random() < 0.5:
        holdall.numpy.load(path.read_bytes(), **scene.pick(check=(True,)))
    arrays = holdall.numpy.load_file(scene.a, **scene.pick(check=(True,)))
    holdall.numpy.save(arrays, format=scene.chance.choice([name for name in FORMATS if not registry.find(name).folder]))


def _torch(scene: Scene) -> None:
    torch = sys.modules.get("torch")  # imported before the processes are forked, where it is installed
    if torch is None:
        return
    arrays = holdall.torch.load_file(scene.a, **scene.pick(check=(True,)))
    module = torch.nn.Module()
    for name, tensor in arrays.items():
        if name.isidentifier() and not hasattr(module, name):
            module.register_buffer(name, torch.zeros_like(tensor))
    holdall.torch.load_into(module, scene.a, strict=scene.chance.random() < 0.5)


def _quantize(scene: Scene) -> None:
    method = scene.chance.choice(list(quant.METHODS))
    options = scene.pick(
        mode=("best", "ieee", "reference"), rules=([f"*={method}"],), include=(["*"],), exclude=(["a"],),
        min_size=(0, 1 << 70), clip=((0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)),
        domain=("weights", "activations"), sensitive=(method,),
        threads=(1, 3),
    )  # fmt: skip
    with scene.open() as model:
        made = quant.quantize_model(model, method, **options)
        again = quant.dequantize_model(made)
        for tensor in again.tensors:
            if tensor.has_data:
                tensor.numpy()


def _quantize_array(scene: Scene) -> None:
    with scene.open() as model:
        for tensor in model.tensors:
            with suppress(HoldallError):
                quantized = quant.quantize(tensor, scene.chance.choice(list(quant.METHODS)))
                quant.measure(tensor, quantized)


def _embedder(scene: Scene) -> None:
    given = scene.pick(budget=(0, 100), max_length=(2, 3, 1 << 40), normalize=(False,))
    if scene.chance.random() < 0.4:
        given |= {"vocab": holdall.Vocab(WORDS), "config": CONFIG}
    with scene.open() as model:
        embedder = runtime.Embedder(model, **given)
        embedder.embed(["the cats sit.", "", "cat " * 20])


def _profiles(scene: Scene) -> None:
    with scene.open() as model:
        config = model.config or CONFIG
        profiles.check(model, profiles.from_config(config))
        profiles.check(model, profiles.load(profiles.names()[0]))


def _identity(scene: Scene) -> None:
    from holdall import identity

    with scene.open() as model:
        identity.base_ids(model.tensors.names)
        identity.Identities(model)
        tree = identity.nest(dict.fromkeys(model.tensors.names, 1))
        identity.flatten(tree)


VERBS: dict[str, Callable[[Scene], None]] = {
    "open": _open, "tensors": _tensors, "verify": _verify, "pickle": _pickle, "save": _save, "convert": _convert,
    "restore": _restore, "edit": _edit, "diff": _diff, "diff_trace": _diff_trace, "ParamStore": _store, "numpy": _numpy,
    "torch": _torch, "quantize_model": _quantize, "quantize": _quantize_array, "embedder": _embedder,
    "profiles": _profiles, "identity": _identity,
}  # fmt: skip
