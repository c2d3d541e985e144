"""A framework that holdall knows nothing of: its classes end up in the checkpoints of the tests."""

from __future__ import annotations

import argparse
import enum
import pathlib
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

__all__ = ["Cyclic", "Keeper", "Net", "State", "lightning_checkpoint", "make_net", "numpy_checkpoint"]


class Mode(enum.Enum):
    """An enum that is a value and a key."""

    FAST = 1
    SLOW = "slow"


class State(OrderedDict[str, Any]):
    """A state dict of a class of its own."""


class AttrDict(dict[str, Any]):
    """A dict that is its own __dict__, as many frameworks have it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.__dict__ = self


class Slotted:
    """An object with slots."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Keeper:
    """An object that pickles as a call with arguments, and a state that is not a dict."""

    def __init__(self, first: torch.Tensor, rest: tuple[torch.Tensor, ...] = ()) -> None:
        self.first, self.rest = first, rest

    def __reduce__(self) -> tuple[Any, ...]:
        return Keeper, (self.first,), self.rest

    def __setstate__(self, rest: tuple[torch.Tensor, ...]) -> None:
        self.rest = rest


Pair = namedtuple("Pair", "left right")


class Block(torch.nn.Module):
    """A module with a buffer, and a list of tensors that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 2))
        self.register_buffer("scale", torch.rand(2))
        self.register_buffer("nothing", None)
        self.spare = [torch.rand(1), {"deep": torch.rand(2)}]
        self.mode = Mode.FAST

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers."""
        return x @ self.weight * self.scale


class Net(torch.nn.Module):
    """A module with submodules, one of them in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3))
        self.tied = self.first
        self.table = np.arange(6, dtype=np.float64).reshape(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return numbers."""
        return self.layers(self.first(x))


class Cyclic(torch.nn.Module):
    """A module whose child knows it."""

    def __init__(self) -> None:
        super().__init__()
        self.child = Block()
        self.child.owner = [self]
        self.child.me = self.child.spare


def make_net() -> Net:
    """A module with numbers that are always the same."""
    torch.manual_seed(7)
    return Net().eval()


def lightning_checkpoint(net: torch.nn.Module) -> dict[str, Any]:
    """A checkpoint as PyTorch Lightning writes them, with objects of all kinds."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    counts["a"].append(1)
    return {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "state_dict": State(net.state_dict()),
        "hyper_parameters": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("a/b"), mode=Mode.SLOW),
        "hparams": AttrDict(width=3, init=torch.arange(3.0)),
        "callbacks": {
            "Stopper": {"best": torch.tensor(0.5), "wait": 2},
            "Keeper": Keeper(torch.ones(2), (torch.zeros(1),)),
        },
        "by_mode": {Mode.FAST: torch.ones(1), (1, "a"): torch.ones(2), None: 4, 1.5: torch.ones(3)},
        "sets": {1, 2},
        "counts": counts,
        "seen": Counter("aab"),
        "slotted": Slotted(torch.full((2,), 9.0)),
        "pair": Pair(torch.ones(4), "x"),
        "kind": torch.nn.ReLU,
        "types": [torch.float32, torch.Size([2]), torch.device("cpu")],
    }


def numpy_checkpoint() -> dict[str, Any]:
    """A checkpoint with what numpy makes."""
    return {
        "weight": torch.arange(4.0),
        "mean": np.float64(0.25),
        "count": np.int64(-7),
        "flag": np.bool_(True),
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        "big": np.arange(5, dtype=">f8"),
        "complex": np.arange(3, dtype=np.complex64),
        "half": np.arange(3, dtype=np.float16),
        "bool": np.array([True, False]),
        "empty": np.zeros((0, 3), np.uint8),
        "scalar": np.array(5.0),
        "text": np.array(["a", "bc"]),
        "objects": np.array([torch.ones(2), None], dtype=object),
        "large": np.arange(1_500_000, dtype=np.float32),
        "random": np.random.RandomState(3).get_state(),
    }
