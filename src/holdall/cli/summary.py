"""The summary that ``holdall verify --stats`` adds: size variables, metadata, and the values of every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, plain, plural, shape_text, value_text
from holdall.cli.output import encode_json
from holdall.errors import ContentError, FormatError, UnsupportedError

if TYPE_CHECKING:
    from holdall.base.progress import Progress
    from holdall.model.metadata import Entry
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor
    from holdall.operations.preview import Preview
    from holdall.operations.stats import TensorStats

__all__ = ["TensorFacts", "content_to_json", "encode_facts", "format_content", "format_facts", "gather_facts"]

_FIELDS = ("count", "nan", "inf", "zeros", "min", "max", "mean", "median", "std")
_UNUSUAL = "    min {}, max {}, mean {}, median {}, std {}".format  # with figures as text
_USUAL = "    min {:.6g}, max {:.6g}, mean {:.6g}, median {:.6g}, std {:.6g}".format
_CYAN = tuple(click.style("|", fg="cyan").split("|"))  # what comes before and after: to style a name takes longer
_WIDTH = 200  # letters of a metadata value


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor with its statistics, or the reason why it has none, and the values at its ends."""

    tensor: Tensor
    stats: TensorStats | str
    preview: Preview | None = None


def gather_facts(model: Model, on_progress: Progress) -> Iterator[TensorFacts]:
    """Yield the facts of each tensor, in file order, read in bounded memory."""
    from holdall.operations.preview import preview_tensor
    from holdall.operations.stats import TensorStats, measure_rows

    for row, stats, preview in measure_rows(model, progress=on_progress, previews=True):
        tensor = model.tensors.tensor(row)
        if not tensor.has_data or not isinstance(stats, TensorStats):
            yield TensorFacts(tensor, str(stats) if tensor.has_data else "no data")
            continue
        try:
            yield TensorFacts(tensor, stats, preview or preview_tensor(tensor))
        except FormatError:
            raise
        except (ContentError, UnsupportedError) as error:
            yield TensorFacts(tensor, str(error))


def format_content(model: Model) -> Iterator[str]:
    """Yield the size variables and the metadata, one a line."""
    for name, size in model.sizevars.items():
        yield f"  {_style(name)} := {size}"
    for entry in model.metadata.entries:
        kind, value = _describe(entry)
        yield f"  {_style(entry.key)}{kind and f': {kind}'} = {value}"


def format_facts(facts: TensorFacts) -> str:
    """The lines of one tensor."""
    tensor, stats = facts.tensor, facts.stats
    head = f"  {_style(tensor.name)}: {tensor.dtype}{shape_text(tensor.shape)}"
    if isinstance(stats, str):
        lines = [f"{head}: {clean(stats)}"]
    else:
        odd = ""
        if stats.nan or stats.inf or stats.zeros:
            special = (("NaN", stats.nan), ("inf", stats.inf), ("zero", stats.zeros))
            odd = "".join([f", {plural(count, kind)}" for kind, count in special if count])
        lines = [f"{head}: {plural(stats.count, 'element')}{odd}, {plural(tensor.nbytes, 'byte')}"]
    if tensor.scaling is not None:
        lines.append(f"    quant: {_format_scaling(tensor.scaling)}")
    if facts.preview is not None:
        lines += [f"    {_format_row(row)}" for row in facts.preview.rows]
        lines += ["    ..."] if facts.preview.more else []
    if not isinstance(stats, str):
        lines += _format_stats(stats)
    return "\n".join(lines)


def content_to_json(model: Model) -> dict[str, Any]:
    """The size variables and the metadata for JSON."""
    return {
        "sizevars": dict(model.sizevars),
        "metadata": {key: plain(value) for key, value in model.metadata.items()},
    }


def encode_facts(facts: TensorFacts) -> str:
    """The JSON text of one tensor: objects for all of them would take several times as much memory."""
    row = _facts_to_json(facts)
    try:
        return encode_json(row)
    except (TypeError, ValueError):  # a value that JSON does not have, such as infinity
        return encode_json(plain({key: _spell_gaps(value) for key, value in row.items()}))


def _facts_to_json(facts: TensorFacts) -> dict[str, Any]:
    tensor, stats = facts.tensor, facts.stats
    row: dict[str, Any] = {"name": tensor.name, "dtype": str(tensor.dtype), "shape": tensor.shape}
    if isinstance(stats, str):
        return {**row, "skipped": stats}
    for name in _FIELDS:
        row[name] = getattr(stats, name)
    row["histogram"] = [(part.low, part.high, part.count) for part in stats.histogram]
    rows = () if facts.preview is None else facts.preview.rows
    row["preview"] = _spell_gaps(rows) if any(... in part for part in rows) else rows
    row["nbytes"] = tensor.nbytes
    return row


def _spell_gaps(value: Any) -> Any:
    """``value`` with text where a preview leaves something out."""
    if value is ...:
        return "..."
    return [_spell_gaps(part) for part in value] if isinstance(value, (list, tuple)) else value


def _format_stats(stats: TensorStats) -> list[str]:
    figures = (stats.min, stats.max, stats.mean, stats.median, stats.std)
    usual = None not in figures
    lines = [_USUAL(*figures) if usual else _UNUSUAL(*map(_number, figures))]
    most = max([part.count for part in stats.histogram], default=0)
    end, text = None, ""
    for part in stats.histogram:
        first, last, count = part.low, part.high, part.count
        low = text if first == end else f"{first:.6g}"  # mostly the end of the bin before
        text = low if first == last else f"{last:.6g}"
        span = low if first == last else f"{low} .. {text}"
        end = last
        lines.append(f"    {span:>26}  {'█' * (round(30 * count / most) or 1)} {count:,}")
    return lines


def _format_scaling(scaling: Any) -> str:
    from holdall.format.oinf.quant import QuantParams

    if not isinstance(scaling, QuantParams):  # of a format from a plug-in
        return value_text(scaling, _WIDTH)
    axis = "" if scaling.axis is None else f" of axis {scaling.axis}"
    zeros = "" if scaling.zero_point is None else f", zero_point {_format_values(scaling.zero_point)}"
    return f"{scaling.scheme}, {scaling.scale_mode}{axis}, scale {_format_values(scaling.scale)}{zeros}"


def _describe(entry: Entry) -> tuple[str, str]:
    """The stored type of a metadata value, as far as the format says it, and its text."""
    from holdall.format.oinf.values import Bitset

    kind, value = clean(entry.kind), entry.value
    if isinstance(value, Bitset):
        return f"{kind}[{value.bits}]", value.data[:4].hex(" ")
    if hasattr(value, "dtype") and hasattr(value, "reshape"):
        element = kind.removeprefix("ndarray:") or value.dtype
        return f"{element}{shape_text(value.shape)}", _format_array(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, (bool, int, float, str)) for item in value):
        return kind, _format_values(value)
    return kind, _format_value(value)


def _format_array(array: Any) -> str:
    from holdall.operations.preview import preview_array

    preview = preview_array(array)
    rows = [_format_row(row) for row in preview.rows] + (["..."] if preview.more else [])
    return rows[0] if array.ndim < 2 and rows else "{ " + ", ".join(rows) + " }"


def _format_values(values: Any) -> str:
    from holdall.operations.preview import preview_list

    return _format_row(preview_list(values))


def _format_row(values: Iterable[Any]) -> str:
    return f"{{ {', '.join(map(_format_value, values))} }}"


def _format_value(value: Any) -> str:
    if type(value) is float:  # as most are
        return f"{value:.6g}"
    if value is ...:
        return "..."
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{clean(value)}"'
    return _number(value) if isinstance(value, float) else value_text(value, _WIDTH)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}"


def _style(name: str) -> str:
    return clean(name).join(_CYAN)
