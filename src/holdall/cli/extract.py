"""``holdall extract``: tensors out of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, AnyType, Reading, TextType, checking, each_file, reading
from holdall.cli.output import emit_json, progress
from holdall.cli.text import clean, file_text, shape_text, size_text
from holdall.errors import HoldallError

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.proof import Proving
    from holdall.tensor import Tensor

__all__ = ["extract"]


class TensorName(TextType):
    """The name of a tensor; shells complete it from the file."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The tensors of the file given before that begin so."""
        from click.shell_completion import CompletionItem

        from holdall.api import open_model

        try:
            with open_model(ctx.params["file"]) as model:
                found = (name for name in model.tensors.names if name.startswith(incomplete) and name.isprintable())
                return [CompletionItem(name) for _, name in zip(range(1000), found, strict=False)]
        except (HoldallError, OSError, KeyError, TypeError):
            return []


class Slice(AnyType):
    """A basic index such as ``0:2,:``."""

    name = "slice"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parsed, or refused as wrong usage."""
        from holdall.extract import parse_slice

        try:
            return value if isinstance(value, tuple) else parse_slice(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Cast(TextType):
    """A dtype that .npy can hold."""

    name = "dtype"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is no dtype."""
        from holdall.dtypes import DTYPES

        known = [name for name, dtype in DTYPES.items() if not dtype.packed and not dtype.numpy_name.startswith("ml:")]
        if value not in known:
            self.fail(f"{value!r} is not a dtype that .npy can hold: {' '.join(known)}", param, ctx)
        return str(value)


@click.command(epilog="Example: holdall extract model.oinf layers.0.w -o w.npy --slice 0:2,:")
@click.argument("file", type=FILE)
@click.argument("name", required=False, type=TensorName())
@click.option("-o", "--output", type=FILE, metavar="PATH",
              help="x.npy, any other name for the stored bytes, or - for stdout.")  # fmt: skip
@click.option("--slice", "key", type=Slice(), help="Only a part, in Python's notation; reads only what it needs.")
@click.option("--cast", type=Cast(), help="Cast to this dtype, for instance f32.")
@click.option("--raw", is_flag=True, help="The stored bytes instead of .npy.")
@click.option("--all", "folder", type=FILE, metavar="DIR", help="Every tensor, into this folder.")
@checking
@reading
def extract(
    file: str,
    name: str | None,
    output: str | None,
    key: tuple[Any, ...] | None,
    cast: str | None,
    raw: bool,
    folder: str | None,
    check: bool,
    reading: Reading,
) -> None:
    """Copy the tensor NAME out of FILE. Without -o it becomes NAME.npy in the current folder.

    A whole tensor that FILE states a hash of is checked, and not written when it is damaged.
    Types that .npy cannot express (bf16, f8) become .bin, their stored bytes, unless --cast says otherwise.
    """
    if (name is None) == (folder is None):
        raise click.UsageError("give a tensor NAME, or --all DIR.")
    if folder is not None and (output is not None or key is not None):
        raise click.UsageError("--all goes with neither --output nor --slice.")
    if cast is not None and (raw or (output is not None and output != "-" and not output.endswith(".npy"))):
        raise click.UsageError("--cast makes .npy; stored bytes are never cast.")
    if output == "-" and reading.json:
        raise click.UsageError("--output - goes without --json: both would be printed.")

    from holdall.proof import Proving, proofs_for

    def act(path: str, number: int) -> bool:
        with reading.open(path, check=check) as model:
            if folder is not None:
                _extract_all(model, folder, cast, raw, check, reading)
            elif name is not None:
                tensor = model[name]
                proofs = proofs_for(model, tensor.payloads) if check and key is None else []
                with Proving(proofs) as proving:
                    _extract_one(model, tensor, output, key, cast, raw, proving, reading)
        return True

    each_file([file], act)


def _extract_one(
    model: Model,
    tensor: Tensor,
    output: str | None,
    key: tuple[Any, ...] | None,
    cast: str | None,
    raw: bool,
    proving: Proving,
    reading: Reading,
) -> None:
    from holdall.extract import file_names, npy_plan, npy_type, plan_bytes, raw_plan

    if output is None:
        as_raw = raw or npy_type(tensor, cast) is None
        if as_raw and not raw:
            _say_raw(tensor)
        output = file_names([tensor.name])[0] + (".bin" if as_raw else ".npy")
    else:
        as_raw = raw or (output != "-" and not output.endswith(".npy"))
    try:
        plan = raw_plan(tensor, key) if as_raw else npy_plan(tensor, key, cast, _tell)
    except IndexError as error:
        raise click.UsageError(f"--slice: tensor {tensor.name!r} {shape_text(tensor.shape)}: {error}.") from None
    if output != "-":
        _write(plan, output, tensor, model, proving)
        _say(tensor, output, plan, reading)
        return
    if sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: give -o PATH, or a pipe.")
    proving.finish()  # what is in a pipe cannot be taken back
    for piece in plan_bytes(plan):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _extract_all(model: Model, folder: str, cast: str | None, raw: bool, check: bool, reading: Reading) -> None:
    from holdall.extract import file_names, npy_plan, npy_type, raw_plan
    from holdall.proof import Proving, proofs_of

    with Proving(proofs_of(model) if check else []) as proving:
        proving.finish()  # before the first file: all of them, or none
    Path(folder).mkdir(parents=True, exist_ok=True)
    if not len(model):
        click.echo(f"holdall: {file_text(model.sources[0].name)}: has no tensors: nothing to extract", err=True)
    for tensor, safe in zip(model.tensors, file_names(model.tensors.names), strict=True):
        if not tensor.has_data:
            click.echo(f"holdall: tensor {clean(tensor.name)}: has no data, skipped", err=True)
            continue
        as_raw = raw or npy_type(tensor, cast) is None
        if as_raw and not raw:
            _say_raw(tensor)
        path = str(Path(folder) / (safe + (".bin" if as_raw else ".npy")))
        plan = raw_plan(tensor) if as_raw else npy_plan(tensor, None, cast, _tell)
        _write(plan, path, tensor, model, proving)
        _say(tensor, path, plan, reading)


def _write(plan: Plan, path: str, tensor: Tensor, model: Model, proving: Proving) -> None:
    from holdall.operations.convert.overwrite import source_at
    from holdall.sink import write_file

    if source_at(path, model) is not None:
        raise click.UsageError(f"{clean(path)} is the file that is being read: give another name.")
    with progress(f"extracting {clean(tensor.name)}") as told:

        def step(done: int, total: int | None) -> None:
            proving.raise_if_failed()
            if told is not None:
                told(done, total)

        write_file(path, plan, fsync=False, progress=step, approve=lambda path, results: proving.finish())


def _say(tensor: Tensor, path: str, plan: Plan, reading: Reading) -> None:
    if reading.json:
        facts = {"name": tensor.name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        emit_json({**facts, "path": path, "size": plan.size})
    else:
        click.echo(f"{clean(path)}: {clean(tensor.name)}, {size_text(plan.size or 0)}")


def _tell(text: str) -> None:
    click.echo(f"holdall: {clean(text)}", err=True)


def _say_raw(tensor: Tensor) -> None:
    text = f"holdall: tensor {clean(tensor.name)}: .npy cannot express {tensor.dtype}: stored bytes as .bin instead"
    click.echo(f"{text} (--cast f32 makes .npy)", err=True)
