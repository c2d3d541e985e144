"""The treemap of a model: a few levels of the tree of names at a time, whatever the number of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.text import percent, plural, size_text
from holdall.viewer.figures import PALETTE, color_values, lay_out, plot_text
from holdall.viewer.names import Branch, branch_out, split_place
from holdall.viewer.shading import Shading, find_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model
    from holdall.model.totals import Totals

__all__ = ["BY_TYPE", "assign_types", "draw_treemap", "rank_types"]

BY_TYPE = "type"
_BRANCHES = (64, 32, 16)  # of each level; the smallest become one
_TILES = 700  # of a figure: no branch is opened beyond that
_DEEP = 20_000  # tensors of a model whose third level is shown
_ROOT = "rgba(128,140,155,.16)"
_MORE = "\0more"  # ends the place of those


@dataclass(slots=True)
class _Tiles:
    """The tiles of the figure, as Plotly takes them."""

    ids: list[str] = field(default_factory=list)
    parents: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)  # "t" and a row, "p" and a place, or nothing

    def add(self, id: str, parent: str, label: str, value: float, rows: list[int], target: str) -> None:
        self.ids.append(id)
        self.parents.append(parent)
        self.labels.append(plot_text(label, 60) or "(no name)")
        self.values.append(value)
        self.rows.append(rows)
        self.targets.append(target)


def rank_types(model: Model) -> dict[str, Totals]:
    """The types of the model, those with most bytes first."""
    return dict(sorted(model.tensors.totals().items(), key=lambda item: -item[1].nbytes))


def assign_types(model: Model) -> dict[str, str]:
    """A colour for each type of the model."""
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(rank_types(model))}


def draw_treemap(
    model: Model, place: str = "", shading: Shading | None = None, title: str = "all tensors"
) -> dict[str, Any]:
    """The figure for the tensors whose names begin with ``place``. Without ``shading`` the colour is the type."""
    names, forms = model.tensors.names, model.tensors.forms()
    sizes = forms.sizes()
    rows = [row for row, name in enumerate(names) if name.startswith(place)] if place else range(len(names))
    weights = sizes if int(sizes.sum()) else np.ones(len(names), np.uint64)  # declared tensors have no bytes
    tiles = _collect(names, weights, rows, place, title)
    colors, scale = _paint(model, tiles, shading)
    total = max(1.0, tiles.values[0])
    trace = {
        "type": "treemap",
        "ids": tiles.ids,
        "parents": tiles.parents,
        "labels": tiles.labels,
        "values": tiles.values,
        "branchvalues": "total",
        "marker": {"colors": colors, "line": {"width": 1, "color": "rgba(255,255,255,.55)"}, "cornerradius": 3},
        "textfont": {"size": 12, "color": ["#8a94a3", *[_choose_ink(color) for color in colors[1:]]]},
        "text": [size_text(int(value)) if weights is sizes else "" for value in tiles.values],
        "textinfo": "label+text",
        "hovertext": [_describe(tiles, number, total, shading) for number in range(len(tiles.ids))],
        "hoverinfo": "text",
        "customdata": tiles.targets,
        "pathbar": {"visible": False},
        "tiling": {"pad": 2},
        "sort": False,
    }
    margin = {"l": 0, "r": 0, "t": 0, "b": 0}
    return {"data": [trace], "layout": lay_out(margin=margin, meta=scale, uirevision=place)}


def _collect(names: Any, sizes: NDArray[np.uint64], rows: Any, place: str, title: str) -> _Tiles:
    tiles = _Tiles()
    outer = branch_out(names, sizes, rows, place)
    root = f"root:{place}"
    size = float(sum(branch.size for branch in outer))
    tiles.add(root, "", place.rstrip("./") or title, size, list(rows), _find_parent(place))
    level = [(branch, root) for branch in _limit(outer, _BRANCHES[0], place)]
    for most in (*_BRANCHES[1 : 3 if len(names) <= _DEEP else 2], 0):
        following: list[tuple[Branch, str]] = []
        for branch, parent in level:
            target = _add_branch(tiles, branch, parent)
            if most and target.startswith("p") and len(tiles.ids) + len(following) < _TILES:
                inner = branch_out(names, sizes, branch.rows, branch.place)
                following += [(each, branch.place) for each in _limit(inner, most, branch.place)]
        level = following
    return tiles


def _find_parent(place: str) -> str:
    """The target of the frame: the place above, however often it is clicked."""
    steps = split_place(place)
    return "" if not place else f"p{steps[-2][0]}" if len(steps) > 1 else "p"


def _add_branch(tiles: _Tiles, branch: Branch, parent: str) -> str:
    target = f"t{branch.rows[0]}" if branch.is_tensor else "" if branch.place.endswith(_MORE) else f"p{branch.place}"
    id = f"row {branch.rows[0]}" if branch.is_tensor else branch.place
    tiles.add(id, parent, branch.label, float(branch.size), branch.rows, target)
    return target


def _limit(branches: list[Branch], most: int, place: str) -> list[Branch]:
    """The first branches; the others as one."""
    if len(branches) <= most:
        return branches
    rest = branches[most - 1 :]
    more = Branch(f"{place}{_MORE}", f"… {len(rest):,} more", size=sum(branch.size for branch in rest))
    more.rows = [row for branch in rest for row in branch.rows]
    return [*branches[: most - 1], more]


def _paint(model: Model, tiles: _Tiles, shading: Shading | None) -> tuple[list[str], dict[str, Any]]:
    """The colours of the tiles, and the scale: its ends, and whether values lie below and above them."""
    if shading is not None:
        means = np.array([shading.average(rows) for rows in tiles.rows[1:]])
        opened = set(tiles.parents)
        leaves = np.array([id not in opened for id in tiles.ids[1:]], np.bool_)
        low, high = find_ends(means[leaves], np.array(tiles.values[1:])[leaves])
        scale = {"low": low, "high": high, "below": bool((means < low).any()), "above": bool((means > high).any())}
        return [_ROOT, *color_values(means, low, high)], scale
    paint = assign_types(model)
    forms = model.tensors.forms()
    kinds = [str(form.dtype) for form in forms.kinds]
    weights = np.array([float(form.size or 1) for form in forms.kinds])
    found = [paint[_find_type(forms.codes, kinds, weights, rows)] for rows in tiles.rows[1:]]
    return [_ROOT, *found], {}


def _choose_ink(color: str) -> str:
    """Black or white, whichever is legible on a colour."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#fff" if red * 0.3 + green * 0.59 + blue * 0.11 < 150 else "#10202c"


def _find_type(codes: Any, kinds: list[str], weights: NDArray[np.float64], rows: list[int]) -> str:
    """The type that has most of the bytes."""
    if len(rows) == 1:
        return kinds[int(codes[rows[0]])]
    counts = np.bincount(codes[rows], minlength=len(kinds)) * weights
    sums: dict[str, float] = {}
    for code in counts.nonzero()[0].tolist():
        sums[kinds[code]] = sums.get(kinds[code], 0.0) + float(counts[code])
    return max(sums, key=lambda kind: sums[kind])


def _describe(tiles: _Tiles, number: int, total: float, shading: Shading | None) -> str:
    size, rows = tiles.values[number], tiles.rows[number]
    share = percent(int(size), int(total))
    lines = [f"<b>{tiles.labels[number]}</b>", f"{size_text(int(size))}, {share} of what is shown"]
    if len(rows) > 1:
        lines.append(plural(len(rows), "tensor"))
    if shading is not None:
        value = shading.average(rows)
        lines.append("unknown" if value != value else f"{shading.word if len(rows) > 1 else ''}{value:.4g}")
    return "<br>".join(lines)
