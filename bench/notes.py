"""Why a bar is missed: what the limit is, and how that was found.

Written by hand after a run; ``python -m bench --page`` puts a new note on the page beside the bar, where it is missed.
"""

from __future__ import annotations

from bench.figures import Verdict

__all__ = ["NOTES", "note_on"]

# Topic, words of the case, words of the contender: the reason.
NOTES: dict[tuple[str, str, str], str] = {
    ("open", "100,000", "twins"): (
        "The twins go through entries one by one in Python where places depend on the entry before: names of EMBD, "
        "records of protobuf, opcodes of a pickle."
    ),
    ("open", "100,000", "holdall"): (
        "A zip archive states every entry twice, in its directory and before the entry itself, and both have to agree: "
        "200,000 names are read and compared, and torch has the pickle besides. In a profile no step takes more than "
        "a seventh."
    ),
    ("open", "1,000,000", ""): (
        "What grows faster than the number is memory: a million texts, and the pages for them, no longer fit the "
        "caches. safe_open grows faster still, and takes 1.7 to 12 times as long as holdall here."
    ),
    ("open", "a small and a large", "hf"): "The large one is in two shards, the small one in one.",
    ("open", "a small and a large", "onnx"): (
        "The headers of inline tensors lie between the payloads: for 300 large tensors that is 300 small reads."
    ),
    ("read", "as views", ""): (
        "The time to open is in it: an ONNX file takes a read for each large tensor, a set has three files."
    ),
    ("save", "", "aeroset"): (
        "The manifest has the SHA-256 of each part, and the first bytes of a part have its BLAKE3 hashes, so that the "
        "one can only begin when the other is done; beside save_file both run at the same time."
    ),
    ("save", "", ""): (
        "Noise, as far as we can tell: write(2) of the same bytes, which nothing can beat, misses the bar in the same "
        "rounds. Memory that the machine has not used lately costs several times as much to write to. In one process "
        "that saves in turn, five rounds each, safetensors, OINF, MCF, GPTRS, EMBD, npz and torch stand at 0.95 to "
        "1.00."
    ),
    ("convert", "aero", "→ aero"): (
        "Two reasons were found by counting page faults: hashed payloads are read and written, two copies where cp has "
        "one; and the buffers for that were made anew for every tensor, a million faults for 5 GB. The second was "
        "mended after this run: 6,795 faults for 1.2 GB, and 8 for the next 1.2."
    ),
    ("convert", "5 GB, aero", "→ safetensors"): (
        "cp itself took from 2.7 to 9.8 s in the rounds of this case: fifteen gigabytes of files in memory are near "
        "what the machine has."
    ),
}


def note_on(missed: Verdict) -> str:
    """The reason that is known."""
    for (topic, case, contender), reason in NOTES.items():
        if missed.topic == topic and case in missed.title and contender in missed.contender:
            return reason
    return "Why has not been found out yet."
