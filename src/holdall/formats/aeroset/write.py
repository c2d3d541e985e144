"""Writing a set: parts of a few shards each, the global index, and the document that names and hashes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdall.errors import ContentError
from holdall.formats.aero.content import Placement, documents_of, place
from holdall.formats.aero.read import AeroNative
from holdall.formats.aero.settings import settings_of
from holdall.formats.aero.write import plan_index, plan_weights
from holdall.formats.aeroset.document import SUFFIX
from holdall.model import Model
from holdall.plan import FolderPlan, Plan, Results

__all__ = ["plan"]

INDEX = "index.aero"


def plan(model: Model, options: Mapping[str, Any]) -> FolderPlan:
    """The files that hold ``model``; parts are numbered from 0, and so are the shards inside each."""
    settings = settings_of(model, options)
    try:
        per_part = int(options["part_shards"])
    except (TypeError, ValueError):
        per_part = 0
    if per_part < 1:
        raise ContentError(f"aeroset: part_shards is a number from 1 on, not {options['part_shards']!r}")
    documents = documents_of(model, settings)
    placed = place(model, settings, documents.quants)
    native = model.native if isinstance(model.native, AeroNative) else None
    groups: dict[int, list[Placement]] = {0: []}
    for one in placed:
        groups.setdefault(one.shard // per_part, []).append(one)
    out = FolderPlan()
    parts: dict[str, list[int]] = {}
    hashes: list[str] = []
    for number, group in groups.items():
        name = f"part-{number:03}.aero"
        first = number * per_part
        local = [replace(one, shard=one.shard - first) for one in group]
        out.files[name] = _hashed(plan_weights(local, settings, documents, native if number == 0 else None))
        parts[name] = sorted({one.shard for one in group})
        hashes += [f"{name}/tensor.{row}" for row in range(len(group))]
    out.files[INDEX] = _hashed(plan_index(placed, settings, documents, hashes if settings.tensor_hash else []))
    out.files["model" + SUFFIX] = _document(parts, documents.model, str(options["base_url"] or ""))
    return out


def _hashed(plan: Plan) -> Plan:
    plan.tap("sha256", "sha256", 0, None, reread=True)
    return plan


def _document(parts: Mapping[str, list[int]], model: Mapping[str, Any], base_url: str) -> Plan:
    def make(results: Results) -> bytes:
        def member(name: str) -> dict[str, Any]:
            return {"path": name, "sha256": results[f"{name}/sha256"].hex(), "size_bytes": results[f"{name}/size"]}

        document: dict[str, Any] = {
            "format": {"name": "AEROSET", "version": [0, 2] if base_url else [0, 1]},
            "model": {key: model[key] for key in ("name", "architecture") if key in model},
            "parts": [{**member(name), "shards": shards} for name, shards in parts.items()],
            "global_tidx": member(INDEX),
        }
        if base_url:
            document["base_url"] = base_url
        return json.dumps(document, indent=2).encode()

    out = Plan()
    out.tail("json", tuple(f"{name}/{what}" for name in (*parts, INDEX) for what in ("sha256", "size")), make)
    return out
