"""What the tests of the contract share: facts that a subclass states, models to write, and files to read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest

import holdall
from holdall.format import registry
from holdall.format.base import Format
from holdall.model.dtypes import DTYPES, find_dtype
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor
from holdall.testing import corpus
from holdall.testing.compare import restrict_to
from holdall.testing.isolation import sparse_writes
from holdall.testing.registration import register
from holdall.testing.trials import BIG_SIZE
from holdall.testing.zoo import ZOO, sample_values

__all__ = ["ContractBase"]

_MIB = 1 << 20


class ContractBase:
    """What the tests of a contract share: the facts that a subclass states, its models and its files."""

    format: ClassVar[str]
    locator: ClassVar[str | None] = None
    options: ClassVar[Mapping[str, Any]] = {}
    corpus: ClassVar[Path | None] = None
    corpus_prefix: ClassVar[str] = ""
    corpus_suffixes: ClassVar[tuple[str, ...]] = ()  # where they are not those of the format
    damage_cases: ClassVar[int] = int(os.environ.get("HOLDALL_DAMAGE_CASES", "1500"))  # changes; a third of it cuts
    partial_reads: ClassVar[bool] = True  # False: payloads are compressed, a slice has to read all of one
    large_bytes: ClassVar[int] = 1 << 30  # of a sparse file of zeros; 0: the format holds no large file
    # Why changed bytes of a payload may go unnoticed although the format has rules of level full; "": they may not.
    payloads_without_hash: ClassVar[str] = ""
    extra_metadata: ClassVar[bool] = True  # the format may state facts about itself among the metadata
    bad_file_seconds: ClassVar[float] = 2.0  # of processor time to read a damaged file in every way
    bad_file_bytes: ClassVar[int] = 200 * _MIB  # and by how much memory may grow

    # -- what a subclass may change ---------------------------------------------------------------------------------

    def prepare(self, model: Model) -> Model:
        """Add to ``model`` what the format demands beside tensors, such as a configuration."""
        return model

    def takes(self, tensor: Tensor) -> bool:
        """Whether the format holds this tensor, for reasons that ``Holds`` cannot express."""
        return True

    def expect(self, model: Model) -> Model:
        """Return the model that reading gives back, if the format's document says that it differs."""
        return model

    def models(self) -> dict[str, Model]:
        """Return the models to write: what the format holds of the zoo."""
        kept = {name: self._restrict(make()) for name, make in ZOO.items()}
        return {name: self.prepare(model) for name, model in kept.items() if model is not None}

    def small_model(self) -> Model:
        """Return a model of a few hundred bytes that uses as much of the format as possible."""
        wanted = [name for name in ("f32", "i4", "bf16", "u8", "i64") if name in self.described.holds.dtypes]
        dtypes = wanted or sorted(self.described.holds.dtypes)[:2]
        tensors = [Tensor.of(f"t.{name}", sample_values(name, (2, 3)), name) for name in dtypes if name in DTYPES]
        tensors.append(Tensor("declared", find_dtype("f32"), (4, 4), None))
        model = self._restrict(Model(tensors, metadata={"note": "small", "n": 3}))
        return self.prepare(model or self._restrict(Model(tensors)) or Model())

    def samples(self) -> list[Path]:
        """Return small files to damage, for a format that cannot be written."""
        return sorted(self._good_files(), key=lambda path: path.stat().st_size)[:2]

    # -- machinery --------------------------------------------------------------------------------------------------

    def in_registry(self) -> AbstractContextManager[Format | None]:
        """Register the format inside the context, if it is not installed."""
        return nullcontext() if self.locator is None else register(self.locator)

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with self.in_registry():
            yield

    @property
    def described(self) -> Format:
        """The format under test."""
        return registry.find(self.format)

    def write(self, folder: Path, name: str, model: Model) -> Path:
        """Write ``model`` to a new file or folder inside ``folder``."""
        path = self._target(folder, name)
        holdall.save(path, model, format=self.format, fsync=False, **self.options)
        return path

    def _restrict(self, model: Model) -> Model | None:
        kept = restrict_to(model, self.described)
        if kept is None:
            return None
        tensors = [tensor for tensor in kept.tensors if self.takes(tensor)]
        if len(kept) and not tensors:
            return None
        return Model(tensors, metadata=kept.metadata, assets=kept.assets)

    def _target(self, folder: Path, name: str) -> Path:
        return folder / f"{name}{(self.described.suffixes or ('',))[0]}"

    def _skip_if_read_only(self) -> None:
        if not self.described.writes:
            pytest.skip(f"{self.format} is read, not written")

    def _small_file(self, folder: Path) -> Path:
        if not self.described.writes:
            found = self.samples()
            if not found:
                pytest.skip(f"{self.format}: no file to read")
            target = folder / found[0].name
            (shutil.copytree if found[0].is_dir() else shutil.copyfile)(found[0], target)
            return target
        return self.write(folder, "small", self.small_model())

    def _large_file(self, folder: Path, size: int) -> Path:
        if not size:
            pytest.skip(f"{self.format} does not hold tensors of 16 MiB")
        dtype = find_dtype(next(name for name in ("f32", "u8", *DTYPES) if name in self.described.holds.dtypes))
        shape = (BIG_SIZE * 8 // dtype.bits // 1024, 1024)
        zeros = bytes(4 * _MIB)
        payloads = [Computed(BIG_SIZE, lambda: repeat(zeros, BIG_SIZE // len(zeros))) for _ in range(size // BIG_SIZE)]
        model = Model(Tensor(f"t{n:02}", dtype, shape, payload) for n, payload in enumerate(payloads))
        with sparse_writes():
            return self.write(folder, "large", self.prepare(model))

    def _good_files(self) -> list[Path]:
        return [] if self.corpus is None else corpus.good_files(*self._corpus(), sets=self.described.folder)

    def _corpus(self, kind: str = "") -> tuple[Path, tuple[str, ...], str]:
        assert self.corpus is not None
        return self.corpus / kind, self.corpus_suffixes or self.described.suffixes, self.corpus_prefix
