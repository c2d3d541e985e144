"""``holdall quantize``: store matrices in fewer bits, in a container that can hold them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, plural, shape_text, size_text
from holdall.cli.calibrate import read_ranges
from holdall.cli.convert import format_report, parse_writer_options, report_to_json
from holdall.cli.options import (
    FILE,
    FORMAT_NAME,
    LOCAL_FILE,
    SIZE,
    NewFile,
    Trust,
    add_check_option,
    add_threads_option,
    add_trust_options,
    find_target_format,
    naming_file,
)
from holdall.cli.output import echo, emit, emit_json, emit_table, show_progress, warn
from holdall.cli.secrets import hide, hide_all
from holdall.errors import ContentError, HoldallError, UnsupportedError
from holdall.quant.methods import METHODS
from holdall.quant.record import DOMAINS
from holdall.report.quant_page import RENDERERS

if TYPE_CHECKING:
    from holdall.base.progress import Progress
    from holdall.format.base import Format
    from holdall.operations.convert.report import ConversionReport
    from holdall.quant.plan import Quantization, QuantPlan
    from holdall.quant.report import QuantReport

__all__ = ["quantize"]

_LISTED = 100  # tensors that a dry run lists
_REASONS = 4  # the most reasons why nothing is quantized that a message lists


@click.command(
    epilog='Examples: holdall quantize model.safetensors model.mcf --method k4 --rule "*embed*=q8"   |   '
    "holdall quantize hf-folder model.mcf --method k6 --report report.html"
)
@click.argument("source", type=FILE)
@click.argument("target", type=LOCAL_FILE)
@click.option("--method", type=click.Choice(tuple(METHODS), case_sensitive=False), default="k4", show_default=True,
              help="Bits and layout of the quantized tensors.")  # fmt: skip
@click.option("--mode", type=click.Choice(("best", "ieee", "reference")), default="best", show_default=True,
              help="best: least squared error; ieee: correct rounding; reference: as the reference.")  # fmt: skip
@click.option("--domain", type=click.Choice(tuple(DOMAINS)), default="weights", show_default=True,
              help="activations: the whole range of values with a zero point, for int8 and int4.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="GLOB=METHOD",
              help="Another method for these tensors, or none; the first match counts.")  # fmt: skip
@click.option("--sensitive", type=click.Choice(tuple(METHODS), case_sensitive=False),
              help="Another method for value, feed-forward and position matrices, where errors hurt most.")  # fmt: skip
@click.option("--include", multiple=True, metavar="GLOB", help="Quantize only tensors with such names.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave tensors with such names alone.")
@click.option(
    "--min-size", default="0", type=SIZE, metavar="N", help="Leave tensors with fewer elements alone, such as 64K."
)
@click.option(
    "--clip",
    nargs=2,
    type=float,
    metavar="LOW HIGH",
    callback=lambda ctx, param, value: _check_bounds(value),
    help="Cut all values to these bounds first.",
)
@click.option("--clips", type=LOCAL_FILE, metavar="FILE.json", help="Bounds by tensor name, as of holdall calibrate.")
@click.option("--importance", type=LOCAL_FILE, metavar="FILE.npz", help="Weights of the columns, by tensor name.")
@click.option(
    "--report",
    type=NewFile(*RENDERERS),
    metavar="FILE",
    help="Write the errors as .html, .json or .md.",
)
@click.option("--format", "format", type=FORMAT_NAME, help="The target's format, instead of its suffix.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="A writer option of the target.")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option("--force", is_flag=True, help="Write over SOURCE itself, whose full precision is then gone.")
@click.option("--no-fsync", is_flag=True, help="Do not wait for the disk.")
@click.option("--dry-run", is_flag=True, help="Read no values and write nothing; say what would be done, and its size.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@add_threads_option
@add_check_option
@add_trust_options
def quantize(source: str, target: str, report: str | None, as_json: bool, trust: Trust, **settings: Any) -> None:
    """Quantize the matrices of SOURCE into TARGET; norms, biases and the rest are copied unchanged.

    TARGET is an MCF file, the only container that has a place for these types. For other containers use
    holdall convert --dequantize on it, which writes the values as f32.

    The policy and the predicted size are printed before work starts. Values that are not finite are refused, naming
    tensor and position.
    """
    from holdall.operations.convert.convert import convert

    dry_run = settings["dry_run"]
    if target == "-":
        raise click.UsageError("TARGET is a file: quantize does not write to standard output.")
    if dry_run and report is not None:
        raise click.UsageError("--report measures what was written: leave out --dry-run.")
    request, options = _parse_request(target, settings, trust)

    with naming_file(target), show_progress(f"quantizing into {file_text(target)}") as on_progress:
        clips = read_ranges(settings["clips"], trust.limits)
        request = replace(request, importance=_read_importance(settings["importance"], trust), clips=clips)
        run = partial(
            convert,
            source,
            target,
            format=settings["format"],
            quantize=request,
            clobber=not settings["no_clobber"],
            check=settings["check"],
            force=settings["force"],
            fsync=not settings["no_fsync"],
            limits=trust.limits,
            allowed=trust.allowed,
            follow=trust.follow,
            options=options,
        )
        done, measured, failure = run(dry_run=True), None, None
        plan = done.quantization
        assert plan is not None
        for text in hide_all(_list_unmatched(plan)):
            warn(clean(text))
        _check_plan(plan, settings)
        if not as_json:
            _show_plan(plan, dry_run)
        if not dry_run:
            done = run(progress=on_progress)
        if report is not None and plan.methods and not dry_run:
            try:
                measured = _write_report(source, target, report, request.mode, on_progress, trust)
            except (HoldallError, OSError) as error:
                failure = f"{file_text(target)} is written and whole, and its report failed: {error}"
    if as_json:
        total = None if measured is None else measured.as_dict()["total"]
        emit_json(
            {
                **report_to_json(done, dry_run),
                "methods": plan.methods,
                "idle": hide_all(_list_unmatched(plan)),
                "total": total,
                **({} if failure is None else {"report_error": failure}),
            }
        )
    else:
        emit(_report_lines(done, measured, None if failure else report, dry_run))
    if failure is not None:
        raise ContentError(failure)


def _list_unmatched(plan: QuantPlan) -> list[str]:
    return [f"--{option} {pattern!r} matches no tensor" for option, pattern in plan.unmatched]


def _parse_request(target: str, settings: dict[str, Any], trust: Trust) -> tuple[Quantization, dict[str, Any]]:
    """Parse the request and the writer options. An option that the target or a method does not know is wrong usage."""
    from holdall.quant.plan import Quantization

    names = ("method", "mode", "domain", "rules", "sensitive", "include", "exclude", "min_size", "clip")
    try:
        request = Quantization(**{name: settings[name] for name in names})
        into = find_target_format(target, settings["format"])
        options = _parse_options(settings, into, trust)
        into.settings(options)
    except (ContentError, UnsupportedError) as error:
        raise click.UsageError(str(error)) from None
    return request, options


def _check_bounds(given: tuple[float, float] | None) -> tuple[float, float] | None:
    """Refuse a --clip that is not two finite bounds in order."""
    if given is not None and not -inf < given[0] <= given[1] < inf:
        raise click.BadParameter(
            f"clip bounds are two finite numbers, the lower one first, not {given[0]} and {given[1]}"
        )
    return given


def _parse_options(settings: dict[str, Any], target: Format, trust: Trust) -> dict[str, Any]:
    """Parse the writer options; mode reference arranges an MCF file as the reference quantizer does."""
    given = parse_writer_options(list(settings["options"]), target, trust.limits)
    if settings["mode"] == "reference" and target.name == "mcf":
        return {"arrange": "quantize", **given}
    return given


def _read_importance(path: str | None, trust: Trust) -> dict[str, Any]:
    """Read the arrays of an .npz file, by tensor name, as untrusted as every other file."""
    if path is None:
        return {}
    from holdall.operations.open_save import open_model

    with open_model(path, format="npz", mmap=False, limits=trust.limits) as weights:
        return {tensor.name: tensor.numpy() for tensor in weights.tensors}


def _check_plan(plan: QuantPlan, settings: dict[str, Any]) -> None:
    """Refuse a plan that would only copy, and weights for a tensor that is not quantized.

    A copy is right if a rule says none, and in mode reference without other choices: the reference makes one.
    """
    if not plan.tensors:
        raise ContentError("the source has no tensors: there is nothing to quantize")
    policy, reasons = plan.request.policy, Counter(tensor.reason for tensor in plan.tensors)
    asked = policy.every or any(rule.method is None and f"rule {rule.pattern}=none" in reasons for rule in policy.rules)
    if not plan.methods and not asked:
        listed = [f"{plural(count, 'tensor')}: {reason}" for reason, count in reasons.most_common(_REASONS)]
        more = len(reasons) - len(listed)
        text = "; ".join(listed) + (f"; and {plural(more, 'other reason')}" if more else "")
        raise ContentError(f"no tensor is chosen ({text}); holdall convert makes a copy")
    unknown = sorted(set(plan.request.importance) - set(plan.methods))
    if unknown:
        path = settings["importance"]
        raise ContentError(f"{file_text(path)}: has weights for {unknown[0]!r}, which is no tensor to be quantized")
    idle = sorted(set(plan.request.clips) - set(plan.methods))
    if idle and not set(plan.request.clips) & set(plan.methods):
        raise ContentError(f"{settings['clips']}: has no bounds for a tensor to be quantized, but for {idle[0]!r}")
    if idle:
        count = plural(len(idle), "other tensor")
        warn(clean(f"{settings['clips']}: has bounds for {count} than those to be quantized, such as {idle[0]!r}"))


def _show_plan(plan: QuantPlan, dry_run: bool) -> None:
    """Print which tensors get which method and why, and the predicted size; in a dry run also tensor by tensor."""
    groups: dict[tuple[str, str], list[int]] = {}
    for tensor in plan.tensors:
        row = groups.setdefault((tensor.method or "as is", tensor.reason), [0, 0, 0])
        for place, number in enumerate((1, tensor.nbytes, tensor.planned_nbytes)):
            row[place] += number
    domain = "" if plan.request.domain == "weights" else f", {plan.request.domain}"
    echo(f"policy: {plan.request.method}, mode {plan.request.mode}{domain}")
    rows = [
        [name, clean(hide(reason)), f"{count:,}", size_text(old), size_text(new)]
        for (name, reason), (count, old, new) in sorted(groups.items(), key=lambda item: item[0][0] == "as is")
    ]
    emit_table(
        ("method", "because", "tensors", "from", "to"),
        rows,
        right=("tensors", "from", "to"),
        prose=("because",),
        indent="  ",
    )
    before, after = (sum(row[place] for row in groups.values()) for place in (1, 2))
    echo(f"predicted: {size_text(before)} of tensors become {size_text(after)}")
    if dry_run:
        listed = [tensor for tensor in plan.tensors if tensor.method is not None][:_LISTED]
        rows = [[clean(t.name), t.method or "", shape_text(t.shape), clean(hide(t.reason))] for t in listed]
        emit_table(("tensor", "method", "shape", "because"), rows, prose=("because",), indent="  ")


def _write_report(
    source: str, target: str, path: str, mode: str, on_progress: Progress | None, trust: Trust
) -> QuantReport:
    """Measure what was written against its source, and write the report."""
    from holdall.base.urls import hide_secrets
    from holdall.operations.open_save import open_model
    from holdall.packed import find_weights
    from holdall.quant.report import compare
    from holdall.report.file import write_report

    with (
        open_model(source, mmap=False, limits=trust.limits, allowed=trust.allowed, follow=trust.follow) as before,
        open_model(target, mmap=False) as after,
    ):
        packed = find_weights(before)  # which were quantized from their numbers
        plain = before if packed is None else packed.decode()
        found = compare(plain, after, names=(hide_secrets(source), target), mode=mode, progress=on_progress)
    write_report(path, found, RENDERERS)
    return found


def _report_lines(done: ConversionReport, found: QuantReport | None, path: str | None, dry_run: bool) -> list[str]:
    lines = format_report(done, dry_run)
    if path is not None and found is None and not dry_run:
        lines.append("  nothing is quantized, so there is nothing to report")
    if found is not None and path is not None:
        total = found.total
        lines.append(
            f"  {found.bits_per_weight:.3f} bits per weight of the whole model; of the quantized tensors, "
            f"signal to noise {total.snr_db:.2f} dB, cosine {total.cosine:.6f}: see {file_text(path)}"
        )
    return lines
