"""What a format's tests need: a zoo of models, a comparison, hypothesis strategies, and the contract itself.

A plug-in proves itself in three lines (pytest and hypothesis have to be installed)::

    from holdall.testing import FormatContract

    class TestMine(FormatContract):
        format = "mine"
"""

from __future__ import annotations

from holdall.testing.compare import assert_same, held, write_read
from holdall.testing.contract import FormatContract
from holdall.testing.damage import Sample, changes, probe, truncations
from holdall.testing.isolation import Cost, cost_of, isolated
from holdall.testing.recording import RecordingSource
from holdall.testing.registration import registered
from holdall.testing.zoo import ZOO, sample_values

__all__ = [
    "ZOO",
    "Cost",
    "FormatContract",
    "RecordingSource",
    "Sample",
    "assert_same",
    "changes",
    "cost_of",
    "held",
    "isolated",
    "probe",
    "registered",
    "sample_values",
    "truncations",
    "write_read",
]
