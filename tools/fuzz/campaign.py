"""A campaign: a number of inputs for every format, in turns; it can be stopped and resumed at any time.

``python -m tools.fuzz --folder FOLDER campaign``. For each format FOLDER has ``corpus/NAME`` (inputs
that reached something new), ``findings/NAME`` and ``NAME.json``, the record. A turn is one twentieth of the inputs in a
separate process; one that is stopped in the middle counts as far as its log says. The lines that the corpus reaches
are measured at 80 % and at the end, by replaying it (:mod:`tools.fuzz.lines`).
"""

from __future__ import annotations

import fcntl
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.fuzz.seeds import seeds

__all__ = ["LINES_AT", "ORDER", "findings", "prepare", "run", "turn"]

ORDER = ("oinf", "embd", "gptrs", "mcf", "safetensors", "aero", "gguf", "aeroset", "hf", "npz", "onnx", "torch")

_TURNS = 20  # of a campaign: a mark at every 5 % of the inputs
LINES_AT = (80, 100)  # per cent of the inputs after which lines are measured
_FAILURES = 5  # turns of a format that may die before it is left alone
_LIMITS = ("-max_len=8192", "-timeout=120", "-rss_limit_mb=2048", "-len_control=0", "-mutate_depth=1", "-reload=0")
_LOADED = re.compile(r"^#(\d+)\s+INITED", re.MULTILINE)  # kept inputs, run again at the start of a turn
_STATUS = re.compile(r"^#(\d+)\s.*cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


def run(folder: Path, formats: Iterable[str], inputs: int) -> None:
    """Bring every format to ``inputs``. Several processes may share the folder: each takes the next free format."""
    for name in formats:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _one(folder, name, inputs)


def _one(folder: Path, name: str, inputs: int) -> None:
    place = folder / f"{name}.json"
    record = json.loads(place.read_text()) if place.exists() else _fresh(name)
    corpora = prepare(folder, name)
    _add(record, _left_over(folder, name))
    _save(place, record)
    failures = 0
    while record["inputs"] < inputs and failures < _FAILURES:
        again = 1 + sum(len(list(place.iterdir())) for place in corpora)  # an empty one and those kept, counted too
        runs = min(inputs // _TURNS, inputs - record["inputs"]) + again
        mark = turn(folder, name, f"-runs={runs}", f"-seed={len(record['marks']) + 1}")
        if mark is None:  # it died: libFuzzer has left the input among the findings
            failures += 1
            mark = _left_over(folder, name)
        elif not mark["inputs"]:  # nothing new was run, and would not be the next time
            failures += 1
        _add(record, mark)
        record["findings"] = findings(folder, name)
        record["last"] = _now()
        for share in LINES_AT:
            if record["inputs"] >= inputs * share // 100 and str(share) not in record["lines"]:
                record["lines"][str(share)] = _lines(name, *corpora)
        _save(place, record)


def _add(record: dict[str, Any], mark: dict[str, Any] | None) -> None:
    """Count a turn."""
    if mark is not None:
        record["inputs"] += mark["inputs"]
        record["marks"].append({**mark, "inputs": record["inputs"], "in_turn": mark["inputs"]})


def _left_over(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the mark of a turn that did not end, from its log, which is removed so that it counts once."""
    log = folder / f"{name}.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return _mark(text)


def _mark(log: str, **more: Any) -> dict[str, Any] | None:
    """Return the numbers at the end of a log; None if it ends before the first new input."""
    status, loaded = _STATUS.findall(log), _LOADED.findall(log)
    if not loaded or not status:
        return None
    inputs, edges, features, corpus = map(int, status[-1])
    return {"inputs": inputs - int(loaded[-1]), "edges": edges, "features": features, "corpus": corpus, **more}


def _fresh(name: str) -> dict[str, Any]:
    return {"format": name, "first": _now(), "last": "", "inputs": 0, "marks": [], "lines": {}, "findings": []}


def prepare(folder: Path, name: str) -> tuple[Path, Path]:
    """Make the folders of kept inputs and of seeds, write the seeds, and return both."""
    corpus, start = folder / "corpus" / name, folder / "seeds" / name
    for place in (corpus, start, folder / "findings" / name):
        place.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds(name).items():
        (start / seed).write_bytes(data)
    return corpus, start


def turn(folder: Path, name: str, *options: str) -> dict[str, Any] | None:
    """Run libFuzzer in another process; return None if that died."""
    kept = folder / "findings" / name
    command = [
        sys.executable, "-m", "tools.fuzz.guided", name, str(kept), *options, *_LIMITS,
        f"-artifact_prefix={kept}/died-", str(folder / "corpus" / name), str(folder / "seeds" / name),
    ]  # fmt: skip
    began, spent, log = time.monotonic(), _spent(), folder / f"{name}.log"
    with log.open("w") as output:
        code = subprocess.call(command, stdout=output, stderr=output)
    if code:
        return None
    log = log.replace(folder / f"{name}.last.log")
    text = log.read_text(errors="replace")
    return _mark(text, seconds=round(time.monotonic() - began, 1), cpu_seconds=round(_spent() - spent, 1))


def _spent() -> float:
    """Return the processor seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lines(name: str, *folders: Path) -> Any:
    command = [sys.executable, "-m", "tools.fuzz.lines", name, *map(str, folders)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(found.stdout) if found.returncode == 0 else {"error": found.stderr[-2000:]}


def findings(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the findings of a format so far."""
    folder = folder / "findings" / name
    texts = [{"input": path.stem, **json.loads(path.read_text())} for path in sorted(folder.glob("*.json"))]
    return texts + [{"input": path.name, "cause": "died"} for path in sorted(folder.glob("died-*"))]


def _save(place: Path, record: dict[str, Any]) -> None:
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(record, indent=1))
    fresh.replace(place)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
