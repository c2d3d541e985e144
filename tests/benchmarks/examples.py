"""A small record, as a run would leave it."""

from __future__ import annotations

from bench.case import at_least, at_most, megabytes, seconds
from bench.record import Line, Record, Result

OTHER = Line("other", [2.0, 20.0, 2.0], 100.0, 10, 0, size=10**9, series="other", x=10**9)
OURS = Line(
    "holdall: oinf",
    [1.0, 10.0, 1.0],
    50.0,
    10,
    0,
    size=10**9,
    kept={"dB": 1.5},
    bars=[at_most(0.6, "other"), at_least(3, "other"), megabytes(60), seconds(2)],
    series="holdall: oinf",
    x=10**9,
)
RESULT = Result("read", "Read 1 GB | all", "", "other", "", "bytes", ["read-size"], [OTHER, OURS])
RECORD = Record(
    "2025-01-02",
    False,
    {"CPU": "Some CPU", "cores": "2", "memory": "16 GB", "Python": "3.11.0"},
    {"numpy": "2.0"},
    1.5,
    [RESULT],
    ["this"],
)
