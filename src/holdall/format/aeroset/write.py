"""Writing a set: parts of a few shards each, the global index, and the document with their names and hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdall.base.check import Check
from holdall.errors import ContentError, LimitError
from holdall.format.aero.content import documents_of
from holdall.format.aero.own_content import gather_own
from holdall.format.aero.placing import place_tensors
from holdall.format.aero.planned_chunks import plan_extras
from holdall.format.aero.read import list_files
from holdall.format.aero.settings import settings_of
from holdall.format.aero.write import plan_index, plan_weights
from holdall.format.aeroset.document import SUFFIX
from holdall.format.aeroset.read import AerosetNative
from holdall.format.refusals import parse_number
from holdall.limits import Limits
from holdall.model.model import Model
from holdall.sink.plan import FolderPlan, Plan, Results

__all__ = ["plan"]

INDEX = "index.aero"
_MOST_SHARDS = (1 << 32) - 1  # a set has fewer
_PART_LIMITS = Limits(expanded_bytes=0)  # all files share these bytes, and the index may need all of them


def plan(model: Model, options: Mapping[str, Any]) -> FolderPlan:
    """Plan the files that hold ``model``; parts are numbered from 0, and so are the shards inside each part."""
    settings = settings_of(model, options)
    per_part = parse_number(options["part_shards"])
    if per_part < 1:
        raise ContentError(f"aeroset: part_shards is a number from 1 on, not {options['part_shards']!r}")
    own = gather_own(list_files(model))
    documents = documents_of(model, settings, own)
    placed = place_tensors(model, settings, documents.quants, own.index)
    extras = plan_extras(settings, own)
    out = FolderPlan()
    parts: dict[str, list[int]] = {}
    hashes: list[str] = []
    groups = placed.bounds(min(per_part, _MOST_SHARDS)) or [(0, 0)]
    _check_parts(len(groups), 1 << 63)  # before a plan is made for each
    for number, bounds in enumerate(groups):
        name = f"part-{number:03}.aero"
        local = placed.cut(*bounds)
        out.files[name] = _add_hash(
            plan_weights(local, settings, documents, extras if number == 0 else (), _PART_LIMITS)
        )
        shards = range(len(local.bounds()))
        parts[name] = [number * per_part + shard for shard in shards]
        hashes += [f"{name}/tensors.{shard}" for shard in shards]
    part_bytes = sum(part.cursor for part in out.files.values())
    _check_parts(len(parts), part_bytes)
    hashed = hashes if settings.tensor_hash else []
    out.files[INDEX] = _add_hash(plan_index(placed, settings, documents, hashed, part_bytes))
    main, base_url = "model" + SUFFIX, str(options["base_url"] or "")
    out.files[main] = _plan_document(parts, documents.model, _list_stated(model, base_url))
    if "base_url" in _extra_of(model) and not base_url:
        out.files[main].notes.append(f"{main}: base_url is left out, since the new files are not there")
    return out


def _check_parts(count: int, size: int) -> None:
    """Refuse more parts than readers open under the default limits; ``size`` are the bytes of all."""
    try:
        Check().limit_files(count, size, "aeroset: parts")
    except LimitError:
        way_out = "a larger part_shards or max_shard_bytes makes fewer parts"
        raise ContentError(f"aeroset: {count} parts are more than readers open by default; {way_out}") from None


def _list_stated(model: Model, base_url: str) -> dict[str, Any]:
    """Return the optional keys of the document: ``base_url``, and those of the set that ``model`` comes from.

    Its own base_url is left behind: the new files are not there.
    """
    kept = {key: value for key, value in _extra_of(model).items() if key != "base_url"}
    return {**({"base_url": base_url} if base_url else {}), **kept}


def _extra_of(model: Model) -> dict[str, Any]:
    return model.native.document.extra if isinstance(model.native, AerosetNative) else {}


def _add_hash(plan: Plan) -> Plan:
    plan.tap("sha256", "sha256", 0, None, reread=True)
    return plan


def _plan_document(parts: Mapping[str, list[int]], model: Mapping[str, Any], stated: Mapping[str, Any]) -> Plan:
    def make(results: Results) -> bytes:
        def file(name: str) -> dict[str, Any]:
            return {"path": name, "sha256": results[f"{name}/sha256"].hex(), "size_bytes": results[f"{name}/size"]}

        document: dict[str, Any] = {
            "format": {"name": "AEROSET", "version": [0, 2] if stated.keys() & {"base_url", "cache"} else [0, 1]},
            "model": {key: model[key] for key in ("name", "architecture") if key in model},
            "parts": [{**file(name), "shards": shards} for name, shards in parts.items()],
            "global_tidx": file(INDEX),
            **stated,
        }
        return json.dumps(document, indent=2).encode()

    out = Plan()
    out.tail("json", tuple(f"{name}/{what}" for name in (*parts, INDEX) for what in ("sha256", "size")), make)
    return out
