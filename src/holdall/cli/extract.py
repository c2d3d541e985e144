"""``holdall extract``: copy tensors or assets out of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, shape_text, size_text
from holdall.cli.options import (
    FILE,
    LOCAL_FILE,
    AnyType,
    Reading,
    TextType,
    add_check_option,
    add_reading_options,
    add_threads_option,
    for_each_file,
)
from holdall.cli.output import echo, emit_bytes, emit_json, show_progress, warn
from holdall.cli.secrets import hide
from holdall.errors import HoldallError, MissingError

if TYPE_CHECKING:
    from holdall.format.proof import Prover
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.sink.plan import Plan

__all__ = ["extract"]

_PLAIN = re.compile(r"[\w./][\w./-]*")


class TensorName(TextType):
    """The name of a tensor; shells complete it from the file."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the tensors of the file argument whose names begin with ``incomplete``."""
        return _complete(ctx, incomplete, lambda model: model.tensors.names)


def _complete(ctx: click.Context, incomplete: str, names_of: Callable[[Model], Iterable[str]]) -> list[Any]:
    """Return the first names of the file argument that begin with ``incomplete``, and that mean themselves in a shell.

    bash inserts a name as it is, and would run the commands in it; one that begins with a dash is an option.
    """
    from click.shell_completion import CompletionItem

    from holdall.operations.open_save import open_model

    try:
        with open_model(ctx.params["file"]) as model:
            found = (name for name in names_of(model) if name.startswith(incomplete) and _PLAIN.fullmatch(name))
            return [CompletionItem(name) for _, name in zip(range(1000), found, strict=False)]
    except (HoldallError, OSError, KeyError, TypeError):
        return []


class Slice(AnyType):
    """A basic index such as ``0:2,:``."""

    name = "slice"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse an index. A wrong one is a usage error."""
        from holdall.operations.extract import parse_slice

        try:
            return value if isinstance(value, tuple) else parse_slice(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Cast(TextType):
    """A dtype that .npy can hold."""

    name = "dtype"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that is not such a dtype."""
        from holdall.model.dtypes import DTYPES

        known = [name for name, dtype in DTYPES.items() if not dtype.packed and not dtype.numpy_name.startswith("ml:")]
        if value not in known:
            self.fail(f"{value!r} is not a dtype that .npy can hold: {' '.join(known)}", param, ctx)
        return str(value)


class AssetName(TextType):
    """The name of an asset; shells complete it from the file."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the assets of the file argument whose names begin with ``incomplete``."""
        return _complete(ctx, incomplete, lambda model: model.assets)


@click.command(epilog="Example: holdall extract model.oinf layers.0.w -o w.npy --slice 0:2,:")
@click.argument("file", type=FILE)
@click.argument("name", required=False, type=TensorName())
@click.option("-o", "--output", type=LOCAL_FILE, metavar="PATH",
              help="x.npy, any other name for the stored bytes, or - for stdout.")  # fmt: skip
@click.option("--slice", "key", type=Slice(), help="Only a part, in Python's notation; reads only what it needs.")
@click.option("--cast", type=Cast(), help="Cast to this dtype, for instance f32.")
@click.option("--dequantize", is_flag=True,
              help="The numbers of quantized weights, of those made of several tensors too.")  # fmt: skip
@click.option("--raw", is_flag=True, help="The stored bytes instead of .npy.")
@click.option("--all", "folder", type=LOCAL_FILE, metavar="DIR", help="Every tensor, into this folder.")
@click.option("--asset", type=AssetName(), help="An asset instead of a tensor; holdall assets FILE lists them.")
@add_threads_option
@add_check_option
@add_reading_options
def extract(
    file: str,
    name: str | None,
    output: str | None,
    key: tuple[Any, ...] | None,
    cast: str | None,
    dequantize: bool,
    raw: bool,
    folder: str | None,
    asset: str | None,
    check: bool,
    reading: Reading,
) -> None:
    """Copy the tensor NAME out of FILE. Without -o it becomes NAME.npy in the current folder.

    With --asset tokenizer.json that file inside of FILE is copied, byte for byte; -o may then also be a folder.

    A whole tensor that FILE states a hash of is checked, and not written when it is damaged.
    Types that .npy cannot express (bf16, f8) become .bin, their stored bytes, unless --cast says otherwise.
    With --dequantize NAME is that of a weight as holdall ls --logical lists them.
    """
    if sum(each is not None for each in (name, folder, asset)) != 1:
        raise click.UsageError("give a tensor NAME, --all DIR, or --asset NAME.")
    if asset is not None and (key is not None or cast is not None or dequantize or raw):
        raise click.UsageError(
            "--asset goes with none of --slice, --cast, --dequantize and --raw: its bytes are copied."
        )
    if folder is not None and (output is not None or key is not None):
        raise click.UsageError("--all goes with neither --output nor --slice.")
    if (cast is not None or dequantize) and (raw or (output not in (None, "-") and not str(output).endswith(".npy"))):
        option = "--cast" if cast is not None else "--dequantize"
        raise click.UsageError(f"{option} makes .npy; stored bytes are never cast.")
    if output == "-" and reading.json:
        raise click.UsageError("--output - goes without --json: both would be printed.")

    from holdall.format.proof import Prover, proofs_for

    def act(path: str, number: int) -> None:
        with reading.open(path, mmap=key is not None, check=check) as model:
            if asset is not None:
                _extract_asset(model, asset, output, check, reading)
            elif folder is not None:
                _extract_all(_prepare(model, None, cast, dequantize), folder, cast, dequantize, raw, check, reading)
            elif name is not None:
                prepared = _prepare(model, name, cast, dequantize)
                tensor = prepared[name]
                proofs = proofs_for(model, tensor.payloads) if check and key is None else []
                with Prover(proofs) as prover:
                    _extract_one(prepared, tensor, output, key, cast, dequantize, raw, prover, reading)

    for_each_file([file], act)


def _prepare(model: Model, name: str | None, cast: str | None, dequantize: bool) -> Model:
    """Return the model with one tensor for each weight if they are dequantized; else a part of one is not cast."""
    from holdall.operations.convert.refusals import refuse_packed
    from holdall.packed import find_weights

    found = find_weights(model) if dequantize else None
    if found is not None:
        return found.join()
    if (cast is not None or dequantize) and (name is None or name in model):
        refuse_packed(model, model.tensors.names if name is None else [name], scaled=not dequantize)
    return model


def _extract_one(
    model: Model,
    tensor: Tensor,
    output: str | None,
    key: tuple[Any, ...] | None,
    cast: str | None,
    dequantize: bool,
    raw: bool,
    prover: Prover,
    reading: Reading,
) -> None:
    from holdall.format.packed_weights import find_packed_weights
    from holdall.operations.extract import choose_plain, make_file_names, npy_type_of, plan_npy, plan_raw, stream_plan

    made = output is None
    if dequantize:
        tensor, cast = choose_plain(tensor, cast)
    if output is None:
        as_raw = raw or npy_type_of(tensor, cast) is None
        if as_raw and not raw:
            _warn_of_raw(tensor, find_packed_weights(model))
        output = make_file_names([tensor.name])[0] + (".bin" if as_raw else ".npy")
    else:
        as_raw = raw or (output != "-" and not output.endswith(".npy"))
    try:
        plan = plan_raw(tensor, key) if as_raw else plan_npy(tensor, key, cast, _warn)
    except IndexError as error:
        raise click.UsageError(f"--slice: tensor {tensor.name!r} {shape_text(tensor.shape)}: {error}.") from None
    if output != "-":
        _write(plan, output, tensor.name, model, prover, follow=not made)
        _report(tensor, output, plan, reading)
        return
    prover.finish()  # before the first byte: a pipe takes nothing back
    emit_bytes(stream_plan(plan))


def _extract_asset(model: Model, name: str, output: str | None, check: bool, reading: Reading) -> None:
    from holdall.format.proof import Prover, proofs_for
    from holdall.operations.extract import make_file_names, stream_plan
    from holdall.sink.plan import Plan

    if name not in model.assets:
        raise MissingError(f"there is no asset {name!r} among the {len(model.assets)}", name, list(model.assets))
    payload, plan = model.assets.payload(name), Plan()
    plan.stream(payload)
    with Prover(proofs_for(model, (payload,)) if check else []) as prover:
        if output == "-":
            prover.finish()  # before the first byte: a pipe takes nothing back
            emit_bytes(stream_plan(plan))
            return
        safe = make_file_names([name])[0]
        path = safe if output is None else str(Path(output) / safe) if Path(output).is_dir() else output
        _write(plan, path, name, model, prover, follow=path == output)
    if reading.json:
        emit_json({"name": name, "path": path, "size": plan.size})
    else:
        echo(f"{hide(file_text(path))}: {clean(name)}, {size_text(plan.size or 0)}")


def _extract_all(
    model: Model, folder: str, cast: str | None, dequantize: bool, raw: bool, check: bool, reading: Reading
) -> None:
    from holdall.format.packed_weights import find_packed_weights
    from holdall.format.proof import Prover, proofs_of
    from holdall.model.growth import limit_files, limit_passes
    from holdall.operations.extract import choose_plain, make_file_names, npy_type_of, plan_npy, plan_raw

    limit_passes(model)
    limit_files(model)
    with Prover(proofs_of(model) if check else []) as prover:
        prover.finish()  # before the first file: all of them, or none
    Path(folder).mkdir(parents=True, exist_ok=True)
    if not len(model):
        warn(f"{file_text(model.sources[0].name)}: has no tensors: nothing to extract")
    packed = find_packed_weights(model)
    for tensor, safe in zip(model.tensors, make_file_names(model.tensors.names), strict=True):
        if not tensor.has_data:
            warn(f"tensor {clean(tensor.name)}: has no data, skipped")
            continue
        taken, kind = choose_plain(tensor, cast) if dequantize else (tensor, cast)
        as_raw = raw or npy_type_of(taken, kind) is None
        if as_raw and not raw:
            _warn_of_raw(taken, packed)
        path = str(Path(folder) / (safe + (".bin" if as_raw else ".npy")))
        plan = plan_raw(taken) if as_raw else plan_npy(taken, None, kind, _warn)
        _write(plan, path, taken.name, model, prover, follow=False)
        _report(taken, path, plan, reading)


def _write(plan: Plan, path: str, name: str, model: Model, prover: Prover, *, follow: bool) -> None:
    """Write one file. A link at a name that comes from the model is not followed."""
    from holdall.operations.convert.overwrite import find_source
    from holdall.sink import write_file

    if find_source(path, model) is not None:
        raise click.UsageError(f"{file_text(path)} is the file that is being read: give another name.")
    with show_progress(f"extracting {clean(name)}") as on_progress:

        def step(done: int, total: int | None) -> None:
            prover.raise_failure()
            on_progress(done, total)

        def approve(part: Path, results: object) -> None:
            prover.finish()

        write_file(path, plan, fsync=False, progress=step, approve=approve, follow=follow)


def _report(tensor: Tensor, path: str, plan: Plan, reading: Reading) -> None:
    if reading.json:
        facts = {"name": tensor.name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        emit_json({**facts, "path": path, "size": plan.size})
    else:
        echo(f"{hide(file_text(path))}: {clean(tensor.name)}, {size_text(plan.size or 0)}")


def _warn(text: str) -> None:
    warn(clean(text))


def _warn_of_raw(tensor: Tensor, packed: Collection[str]) -> None:
    from holdall.model.encodings import Opaque

    unknown = isinstance(tensor.dtype, Opaque)
    why = f"holdall does not decode {tensor.dtype}" if unknown else f".npy cannot express {tensor.dtype}"
    option = "--dequantize" if tensor.name in packed else "--cast f32"
    hint = "" if unknown else f" ({option} makes .npy)"
    warn(f"tensor {clean(tensor.name)}: {why}: stored bytes as .bin instead{hint}")
