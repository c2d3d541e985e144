import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="session", params=["reference", "_native"])
def kernels(request: pytest.FixtureRequest) -> ModuleType:
    """Each implementation in turn; the C one only where it was compiled."""
    try:
        return importlib.import_module(f"holdall.binary.kernels.{request.param}")
    except ImportError:
        pytest.skip("the C kernels are not compiled")


@pytest.fixture(scope="session")
def twins() -> tuple[ModuleType, ModuleType]:
    """Both implementations, to be compared."""
    native = pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")
    return importlib.import_module("holdall.binary.kernels.reference"), native
