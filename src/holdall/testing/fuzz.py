"""Fuzzing a format: small files of its own writer, damaged at random, through everything that reads.

``python -m holdall.testing.fuzz oinf --seconds 60`` runs one campaign and prints what it did. A damaged file may give a
right answer, FormatError or UnsupportedError; any other exception, an answer that opening and verifying do not share,
or one that takes too long, is a finding: the bytes are kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import holdall
from holdall import registry
from holdall.errors import ContentError, UnsupportedError
from holdall.testing.compare import held
from holdall.testing.damage import Sample, probe
from holdall.testing.zoo import ZOO

__all__ = ["Campaign", "fuzz", "mutated", "seeds"]

_SEED_BYTES = 8192  # larger seeds are mostly payload
_SLOW = 2.0  # seconds that no small input may take

# Numbers that have hurt readers: the ends of the integer types, and one beside them.
_NUMBERS = [0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, (1 << 64) - 1]


@dataclass(slots=True)
class Campaign:
    """What a campaign did. ``findings`` are pairs of a description and the input."""

    format: str
    inputs: int = 0
    whole: int = 0  # inputs that still opened and could be read
    slowest: float = 0.0
    findings: list[tuple[str, bytes]] = field(default_factory=list)


def seeds(format: str) -> list[Sample]:
    """Small files of the format, written from the zoo."""
    target = registry.find(format)
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in ZOO.items():
            model = held(make(), target)
            if model is None:
                continue
            path = Path(folder) / name
            try:
                holdall.save(path, model, format=format, fsync=False)
            except (ContentError, UnsupportedError):
                continue
            sample = Sample.of(path, format)
            if sample.size <= _SEED_BYTES:
                samples.append(sample)
    return samples


def mutated(sample: Sample, chance: random.Random) -> Sample:
    """The sample with one to four changes, most of them in its headers and tables."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        name = chance.choice(sorted(sample.files))
        data = bytearray(sample.files[name])
        if not data:
            continue
        frame = [at for at in sample.frame.get(name, []) if at < len(data)]
        at = chance.choice(frame) if frame and chance.random() < 0.9 else chance.randrange(len(data))
        match chance.randrange(7):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.randrange(256)
            case 2 | 3:
                width = chance.choice((2, 4, 8))
                number = chance.choice(_NUMBERS) % (1 << 8 * width)
                data[at : at + width] = number.to_bytes(width, "little")[: len(data) - at]
            case 4:
                del data[at : at + chance.choice((1, 4, 8, 64))]
            case 5:
                source = chance.randrange(len(data))
                data[at:at] = data[source : source + chance.choice((1, 4, 8, 64))]
            case 6:
                del data[at:]
        sample = sample.replaced(name, bytes(data))
    return sample


def _inputs(format: str, seed: int) -> Iterator[Sample]:
    chance = random.Random(seed)
    samples = seeds(format)
    if not samples:
        raise UnsupportedError(f"{format}: no small file can be written to start from")
    while True:
        yield mutated(chance.choice(samples), chance)


def fuzz(format: str, *, seconds: float, seed: int = 0) -> Campaign:
    """Run one campaign; the same seed gives the same inputs in the same order.

    >>> fuzz("oinf", seconds=0.2).findings
    []
    """
    campaign = Campaign(format)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for sample in _inputs(format, seed):
            began = time.monotonic()
            if began >= end:
                return campaign
            what = sample.openable(Path(folder) / "input")
            try:
                campaign.whole += probe(what, format)
            except Exception:
                campaign.findings.append((traceback.format_exc(limit=-6), _bytes(sample)))
            took = time.monotonic() - began
            if took > _SLOW:
                campaign.findings.append((f"took {took:.1f} s", _bytes(sample)))
            campaign.slowest = max(campaign.slowest, took)
            campaign.inputs += 1
    return campaign


def _bytes(sample: Sample) -> bytes:
    return b"".join(sample.files.values())


def main() -> int:
    """The command line of a campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=registry.names())
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where inputs of findings go")
    args = parser.parse_args()
    campaign = fuzz(args.format, seconds=args.seconds, seed=args.seed)
    out = sys.stdout.write
    out(
        f"{campaign.format}: {campaign.inputs} inputs, {campaign.whole} still readable, "
        f"slowest {campaign.slowest:.2f} s, {len(campaign.findings)} findings\n"
    )
    for number, (text, data) in enumerate(campaign.findings):
        args.keep.mkdir(exist_ok=True)
        path = args.keep / f"{campaign.format}-{args.seed}-{number}"
        path.write_bytes(data)
        out(f"\n{path}:\n{text}\n")
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
