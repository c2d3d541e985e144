"""``holdall quantize``: matrices in fewer bits, from any container into one that can hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.convert import report_facts, report_lines, writer_options
from holdall.cli.options import FILE, FORMAT_NAME, SIZE, NewFile, Trust, about, checking, target_format, trusting
from holdall.cli.output import Progress, emit, emit_json, progress, table
from holdall.cli.text import clean, plural, shape_text, size_text
from holdall.errors import ContentError, UnsupportedError

if TYPE_CHECKING:
    from holdall.format import Format
    from holdall.model import Model
    from holdall.operations.convert.report import ConversionReport
    from holdall.quant.policy import Choice, Policy
    from holdall.quant.report import QuantReport

__all__ = ["quantize"]

_METHODS = ("int8", "int4", "q8", "q4", "k6", "k4", "k3", "k2")
_LISTED = 100
_REASONS = 4  # shown for why nothing is quantized


@click.command(
    epilog='Examples: holdall quantize model.safetensors model.mcf --method k4 --rule "*embed*=q8"   |   '
    "holdall quantize hf-folder model.mcf --method k6 --report report.html"
)
@click.argument("source", type=FILE)
@click.argument("target", type=FILE)
@click.option("--method", type=click.Choice(_METHODS, case_sensitive=False), default="k4", show_default=True,
              help="Bits and layout of what is quantized.")  # fmt: skip
@click.option("--mode", type=click.Choice(("best", "ieee", "reference")), default="best", show_default=True,
              help="best: least squared error; ieee: rounded correctly; reference: its very bytes.")  # fmt: skip
@click.option("--rule", "rules", multiple=True, metavar="GLOB=METHOD",
              help="Another method for these tensors, or none; the first match counts.")  # fmt: skip
@click.option("--sensitive", type=click.Choice(_METHODS, case_sensitive=False),
              help="Another method for value, feed-forward and position matrices, where errors tell most.")  # fmt: skip
@click.option("--include", multiple=True, metavar="GLOB", help="Quantize only tensors with such names.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave tensors with such names as they are.")
@click.option(
    "--min-size", default="0", type=SIZE, metavar="N", help="Leave matrices with fewer elements, such as 64K."
)
@click.option(
    "--clip",
    nargs=2,
    type=float,
    metavar="LOW HIGH",
    callback=lambda ctx, param, value: _bounds(value),
    help="Cut all values to these bounds first.",
)
@click.option("--importance", type=FILE, metavar="FILE.npz", help="Weights of the columns, by tensor name.")
@click.option(
    "--report",
    type=NewFile(".html", ".htm", ".json", ".md"),
    metavar="FILE",
    help="Write the errors as .html, .json or .md.",
)
@click.option("--format", "format", type=FORMAT_NAME, help="The target's format, instead of its suffix.")
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="A writer option of the target.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to quantize with; all processors by default.")
@click.option("-n", "--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option("--force", is_flag=True, help="Write over SOURCE itself, whose full precision is then gone.")
@click.option("--no-fsync", is_flag=True, help="Do not wait for the disk.")
@click.option("--dry-run", is_flag=True, help="Read no values and write nothing; say what would be done, and its size.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@checking
@trusting
def quantize(source: str, target: str, report: str | None, as_json: bool, trust: Trust, **settings: Any) -> None:
    """Quantize the matrices of SOURCE into TARGET; norms, biases and the rest are copied as they are.

    TARGET is an MCF file, the only container that has a place for these types. Elsewhere their values go as f32, with
    holdall convert --dequantize.

    The policy and the predicted size are printed before work starts. Values that are not finite are refused, naming
    tensor and position.
    """
    from holdall.operations.convert.convert import convert
    from holdall.quant.model import policy_of

    chosen = {name: settings.pop(name) for name in ("rules", "sensitive", "include", "exclude")}
    size = settings.pop("min_size")
    try:
        policy = policy_of(settings.pop("method"), settings["mode"], min_size=size, **chosen)
        into = target_format(target, settings["format"])
        into.settings(_options(settings, into))
    except (ContentError, UnsupportedError) as error:
        raise click.UsageError(str(error)) from None
    dry_run = settings["dry_run"]
    with about(target), progress(f"quantizing into {clean(target)}") as told:
        work = _Work(policy, settings, into, told, quiet=as_json, dry_run=dry_run)
        done = convert(
            source,
            target,
            format=settings["format"],
            quantize=work,
            clobber=not settings["no_clobber"],
            check=settings["check"],
            force=settings["force"],
            fsync=not settings["no_fsync"],
            dry_run=dry_run,
            limits=trust.limits,
            allowed=trust.allowed,
            progress=told,
            options=_options(settings, into),
        )
        measured = None
        if report is not None and work.methods and not dry_run:
            measured = _report(source, target, report, settings["mode"], told, trust)
    if as_json:
        emit_json(_facts(done, work, measured, dry_run))
    else:
        emit(_lines(done, measured, report, dry_run))


def _bounds(given: tuple[float, float] | None) -> tuple[float, float] | None:
    """The bounds of --clip; what is none is wrong usage."""
    if given is not None and not -inf < given[0] <= given[1] < inf:
        raise click.BadParameter(
            f"clip bounds are two finite numbers, the lower one first, not {given[0]} and {given[1]}"
        )
    return given


def _options(settings: dict[str, Any], target: Format) -> dict[str, Any]:
    """The writer options; mode reference arranges an MCF file as the reference quantizer does."""
    given = writer_options(list(settings["options"]))
    if settings["mode"] == "reference" and target.name == "mcf":
        return {"arrange": "quantize", **given}
    return given


@dataclass(slots=True)
class _Work:
    """What conversion calls once the source is open: says what will be done, then does it lazily."""

    policy: Policy
    settings: dict[str, Any]
    target: Format
    told: Progress | None
    quiet: bool
    dry_run: bool
    methods: dict[str, str] | None = None
    idle: list[str] = field(default_factory=list)

    def __call__(self, model: Model) -> Model:
        from holdall.quant.model import quantize_model

        choices = [(tensor, self.policy.choose(tensor)) for tensor in model.tensors]
        self.methods = {tensor.name: choice.method.name for tensor, choice in choices if choice.method is not None}
        self.idle = _idle(self.policy, model.tensors.names)
        for text in self.idle:
            click.echo(f"holdall: {clean(text)}", err=True)
        self._check_work([choice for _, choice in choices])
        self._check_target()
        if not self.quiet:
            _show_policy(choices, self.policy, self.settings["mode"], self.dry_run)
        return quantize_model(
            model,
            mode=self.settings["mode"],
            policy=self.policy,
            clip=self.settings["clip"] or None,
            importance=_importance(self.settings["importance"], self.methods),
            threads=self.settings["threads"],
            progress=self.told,
            survey=not self.dry_run,
        )

    def _check_work(self, choices: Sequence[Choice]) -> None:
        """Refuse to make a mere copy, unless a rule says none, or the reference, which makes one, is to be followed."""
        if not choices:
            raise ContentError("the source has no tensors: there is nothing to quantize")
        if self.methods or self.policy.every:
            return
        reasons = Counter(choice.reason for choice in choices)
        if not any(rule.method is None and f"rule {rule.pattern}=none" in reasons for rule in self.policy.rules):
            listed = [f"{plural(count, 'tensor')}: {reason}" for reason, count in reasons.most_common(_REASONS)]
            more = len(reasons) - len(listed)
            text = "; ".join(listed) + (f"; and {plural(more, 'other reason')}" if more else "")
            raise ContentError(f"no tensor is chosen ({text}); holdall convert makes a copy")

    def _check_target(self) -> None:
        """Refuse a container that has no place for quantized tensors, naming those that have."""
        from holdall import registry

        needed = {f"mcf.{method}" for method in (self.methods or {}).values()}
        if not needed <= self.target.holds.dtypes:
            able = [name for name in registry.names() if needed <= registry.find(name).holds.dtypes]
            what = ", ".join(sorted(needed))
            raise UnsupportedError(f"{self.target.name} cannot hold {what}; these can: {', '.join(able)}")


def _idle(policy: Policy, names: Sequence[str]) -> list[str]:
    """The patterns of the user that meet no tensor: most likely they are misspelt."""
    from fnmatch import fnmatchcase

    given = [("--rule", rule.pattern) for rule in policy.rules]
    given += [("--include", pattern) for pattern in policy.include] + [("--exclude", p) for p in policy.exclude]
    return [f"{option} {p!r} matches no tensor" for option, p in given if not any(fnmatchcase(n, p) for n in names)]


def _importance(path: str | None, methods: dict[str, str]) -> dict[str, Any] | None:
    """The arrays of an .npz file by tensor name; a name that no quantized tensor has is refused."""
    if path is None:
        return None
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (ValueError, AttributeError) as error:
        raise ContentError(f"{path}: is no .npz archive of arrays: {error}") from None
    unknown = sorted(set(found) - set(methods))
    if unknown:
        raise ContentError(f"{path}: has weights for {unknown[0]!r}, which is no tensor to be quantized")
    return found


def _show_policy(choices: Sequence[Any], policy: Policy, mode: str, dry_run: bool) -> None:
    groups: dict[tuple[str, str], list[int]] = {}
    before = after = 0
    for tensor, choice in choices:
        name = "as is" if choice.method is None else choice.method.name
        size = tensor.nbytes if choice.method is None else choice.method.nbytes(tensor.shape)
        row = groups.setdefault((name, choice.reason), [0, 0, 0])
        for place, number in enumerate((1, tensor.nbytes, size)):
            row[place] += number
        before, after = before + tensor.nbytes, after + size
    click.echo(f"policy: {policy.method}, mode {mode}")
    rows = [
        [name, clean(reason), f"{count:,}", size_text(old), size_text(new)]
        for (name, reason), (count, old, new) in sorted(groups.items(), key=lambda item: item[0][0] == "as is")
    ]
    table(
        ("method", "because", "tensors", "from", "to"),
        rows,
        right=("tensors", "from", "to"),
        prose=("because",),
        indent="  ",
    )
    click.echo(f"predicted: {size_text(before)} of tensors become {size_text(after)}")
    if dry_run:
        listed = [(t, c) for t, c in choices if c.method is not None][:_LISTED]
        rows = [[clean(t.name), c.method.name, shape_text(t.shape), clean(c.reason)] for t, c in listed]
        table(("tensor", "method", "shape", "because"), rows, prose=("because",), indent="  ")


def _report(source: str, target: str, path: str, mode: str, told: Progress | None, trust: Trust) -> QuantReport:
    from holdall.api import open_model
    from holdall.quant.report import compare, write_report

    with (
        open_model(source, mmap=False, limits=trust.limits, allowed=trust.allowed) as before,
        open_model(target, mmap=False) as after,
    ):
        found = compare(before, after, names=(source, target), mode=mode, progress=told)
    write_report(found, path)
    return found


def _lines(done: ConversionReport, found: QuantReport | None, path: str | None, dry_run: bool) -> list[str]:
    lines = report_lines(done, dry_run)
    if path is not None and found is None and not dry_run:
        lines.append("  nothing is quantized, so there is nothing to report")
    if found is not None and path is not None:
        total = found.total
        lines.append(
            f"  {found.bits_per_weight:.3f} bits per weight of the whole model; of the quantized tensors, "
            f"signal to noise {total.snr_db:.2f} dB, cosine {total.cosine:.6f}: see {clean(path)}"
        )
    return lines


def _facts(done: ConversionReport, work: _Work, found: QuantReport | None, dry_run: bool) -> dict[str, Any]:
    return {
        **report_facts(done, dry_run),
        "methods": work.methods or {},
        "idle": work.idle,
        "total": None if found is None else found.as_dict()["total"],
    }
