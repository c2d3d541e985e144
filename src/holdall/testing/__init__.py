"""The contract that every format must pass, and its parts: a zoo of models, a comparison, hypothesis strategies.

It needs the extra ``holdall[testing]``. A plug-in proves itself in three lines::

    from holdall.testing import FormatContract

    class TestMine(FormatContract):
        format = "mine"
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis  # noqa: F401
    import pytest as _pytest  # noqa: F401
except ModuleNotFoundError as error:
    text = "holdall.testing needs pytest and hypothesis: pip install 'holdall[testing]'"
    raise ModuleNotFoundError(text, name=error.name) from error

from holdall.testing.compare import assert_same, restrict_to, write_read
from holdall.testing.contract import FormatContract
from holdall.testing.damage import Sample, changes, probe, truncations
from holdall.testing.isolation import Cost, cost_of, run_isolated
from holdall.testing.recording import RecordingSource
from holdall.testing.registration import register
from holdall.testing.zoo import ZOO, sample_values

__all__ = ["ZOO", "Cost", "FormatContract", "RecordingSource", "Sample", "assert_same", "changes", "cost_of"]
__all__ += ["probe", "register", "restrict_to", "run_isolated", "sample_values", "truncations", "write_read"]
