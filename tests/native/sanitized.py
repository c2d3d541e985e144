"""Puts the sanitized extension in the place of the ordinary one: ``pytest -p tests.native.sanitized`` does so first.

The environment names the extension in ``HOLDALL_SANITIZED``; ``make fuzz-native`` builds it and sets everything up.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

_NAME = "holdall.binary.kernels._native"


def _installed() -> ModuleType:
    """The sanitized extension, as the one that holdall imports from now on."""
    assert "holdall.binary.kernels" not in sys.modules, "holdall has chosen its kernels already"
    spec = importlib.util.spec_from_file_location(_NAME, os.environ["HOLDALL_SANITIZED"])
    assert spec is not None and spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    sys.modules[_NAME] = native
    return native


native = _installed()
