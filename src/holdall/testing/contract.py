"""What every format must do, as a class of pytest tests that anyone's plug-in can run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import holdall
from holdall import registry
from holdall.dtypes import DTYPES, DType, named
from holdall.errors import ClosedError, UnsupportedError
from holdall.format import Format
from holdall.model import Model
from holdall.payload import Made
from holdall.source import source_of
from holdall.tensor import Tensor
from holdall.testing import corpus, strategies
from holdall.testing.compare import assert_same, held, write_read
from holdall.testing.damage import Sample, changes, exercise, probe, truncations
from holdall.testing.fresh import digests
from holdall.testing.isolation import isolated, sparse_writes
from holdall.testing.recording import RecordingSource
from holdall.testing.registration import registered
from holdall.testing.trials import (
    BIG_SIZE,
    large_file_costs,
    never_writable_window,
    outline,
    probe_all,
    random_files,
    refuse_all,
    verification_cost,
)
from holdall.testing.zoo import ZOO, sample_values

__all__ = ["FormatContract"]

_MIB = 1 << 20
_SETTINGS = settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # models are small as they are, and shrinking them takes long
)


class FormatContract:
    """Subclass it, name the format, and pytest does the rest.

    ``format`` is the id; ``locator`` ("package.module:ATTRIBUTE") registers a format that is not installed.
    A format that asks more of a model than :class:`~holdall.format.Holds` can say overrides :meth:`prepare`,
    or :meth:`small_model` and :meth:`models` altogether. ``corpus`` is a folder of good, ``bad/`` and ``odd/``
    files (see :mod:`holdall.testing.corpus`), ``corpus_prefix`` tells its formats apart.
    """

    format: ClassVar[str]
    locator: ClassVar[str | None] = None
    options: ClassVar[Mapping[str, Any]] = {}
    corpus: ClassVar[Path | None] = None
    corpus_prefix: ClassVar[str] = ""
    corpus_suffixes: ClassVar[tuple[str, ...]] = ()  # where they are not those of the format
    damage_cases: ClassVar[int] = int(os.environ.get("HOLDALL_DAMAGE_CASES", "1500"))  # changes; a third of it cuts
    partial_reads: ClassVar[bool] = True  # False: payloads are compressed, a slice has to read all of one
    large_bytes: ClassVar[int] = 1 << 30  # of a file of zeros, written as holes; 0: the format holds none so large
    extra_metadata: ClassVar[bool] = True  # the format may state facts about itself among the metadata
    bad_file_seconds: ClassVar[float] = 2.0  # of processor time that any damaged file may take, all that reads together
    bad_file_bytes: ClassVar[int] = 200 * _MIB  # and by how much memory may grow

    # -- what a subclass may change ---------------------------------------------------------------------------------

    def prepare(self, model: Model) -> Model:
        """``model`` with what the format demands beside tensors, such as a configuration."""
        return model

    def takes(self, tensor: Tensor) -> bool:
        """Whether the format holds this tensor, where ``Holds`` has no words for what it refuses."""
        return True

    def expected(self, model: Model) -> Model:
        """What comes back of a written model, where the format's document says that it differs."""
        return model

    def models(self) -> dict[str, Model]:
        """The models to be written: what the format holds of the zoo."""
        kept = {name: self._held(make()) for name, make in ZOO.items()}
        return {name: self.prepare(model) for name, model in kept.items() if model is not None}

    def small_model(self) -> Model:
        """A model of a few hundred bytes that uses as much of the format as it can."""
        wanted = [name for name in ("f32", "i4", "bf16", "u8", "i64") if name in self.described.holds.dtypes]
        dtypes = wanted or sorted(self.described.holds.dtypes)[:2]
        tensors = [Tensor.of(f"t.{name}", sample_values(name, (2, 3)), name) for name in dtypes if name in DTYPES]
        tensors.append(Tensor("declared", named("f32"), (4, 4), None))
        model = self._held(Model(tensors, metadata={"note": "small", "n": 3}))
        return self.prepare(model or self._held(Model(tensors)) or Model())

    def samples(self) -> list[Path]:
        """Small files to be damaged where the format cannot be written."""
        return sorted(self._good_files(), key=lambda path: path.stat().st_size)[:2]

    # -- machinery --------------------------------------------------------------------------------------------------

    def in_registry(self) -> AbstractContextManager[Format | None]:
        """Registers the format for as long as it is entered, when it has to be."""
        return nullcontext() if self.locator is None else registered(self.locator)

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with self.in_registry():
            yield

    @property
    def described(self) -> Format:
        """The format itself."""
        return registry.find(self.format)

    def write(self, folder: Path, name: str, model: Model) -> Path:
        """``model`` in a new file or folder inside ``folder``."""
        path = self._target(folder, name)
        holdall.save(path, model, format=self.format, fsync=False, **self.options)
        return path

    def _held(self, model: Model) -> Model | None:
        kept = held(model, self.described)
        if kept is None:
            return None
        tensors = [tensor for tensor in kept.tensors if self.takes(tensor)]
        if len(kept) and not tensors:
            return None
        return Model(tensors, metadata=kept.metadata, assets=kept.assets)

    def _target(self, folder: Path, name: str) -> Path:
        return folder / f"{name}{(self.described.suffixes or ('',))[0]}"

    def _writes(self) -> None:
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
        dtype = named(next(name for name in ("f32", "u8", *DTYPES) if name in self.described.holds.dtypes))
        shape = (BIG_SIZE * 8 // dtype.bits // 1024, 1024)
        zeros = bytes(4 * _MIB)
        payloads = [Made(BIG_SIZE, lambda: repeat(zeros, BIG_SIZE // len(zeros))) for _ in range(size // BIG_SIZE)]
        model = Model(Tensor(f"t{n:02}", dtype, shape, payload) for n, payload in enumerate(payloads))
        with sparse_writes():
            return self.write(folder, "large", self.prepare(model))

    def _good_files(self) -> list[Path]:
        return [] if self.corpus is None else corpus.good_files(*self._corpus(), sets=self.described.folder)

    def _corpus(self, kind: str = "") -> tuple[Path, tuple[str, ...], str]:
        assert self.corpus is not None
        return self.corpus / kind, self.corpus_suffixes or self.described.suffixes, self.corpus_prefix

    # -- writing ----------------------------------------------------------------------------------------------------

    def test_every_zoo_model_survives(self, tmp_path: Path) -> None:
        self._writes()
        for name, model in self.models().items():
            path = self._target(tmp_path, name)
            try:
                with write_read(path, model, self.format, **self.options) as back:
                    assert_same(self.expected(model), back, extra_metadata=self.extra_metadata)
                report = holdall.verify(path, level="strict", format=self.format)
                assert report.ok, report.findings
            except Exception as error:
                raise AssertionError(f"the model {name!r}: {type(error).__name__}: {error}") from error

    def test_any_model_survives(self, tmp_path: Path) -> None:
        self._writes()
        numbers = iter(range(1 << 30))

        @_SETTINGS
        @given(strategies.models(self.described))
        def check(drawn: Model) -> None:
            model = self.prepare(self._held(drawn) or Model())
            path = self._target(tmp_path, f"drawn{next(numbers)}")
            with write_read(path, model, self.format, **self.options) as back:
                assert_same(self.expected(model), back, extra_metadata=self.extra_metadata)

        check()

    def test_plans_are_pure_and_bytes_the_same_twice(self, tmp_path: Path) -> None:
        self._writes()
        settled = self.described.settings(self.options)
        for name, model in self.models().items():
            shapes = [outline(self.described.plan(model, settled)) for _ in range(2)]
            assert shapes[0] == shapes[1], name
            first, second = (digests(self.write(tmp_path, f"{name}.{n}", model)) for n in range(2))
            assert first == second, name

    def test_another_process_writes_the_same_bytes(self, tmp_path: Path) -> None:
        self._writes()
        kind = type(self)
        environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            [sys.executable, "-m", "holdall.testing.fresh", f"{kind.__module__}:{kind.__qualname__}"],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
        here = {name: digests(self.write(tmp_path, name, model)) for name, model in self.models().items()}
        assert json.loads(ran.stdout.splitlines()[-1]) == here

    def test_an_option_that_does_not_exist_is_refused(self, tmp_path: Path) -> None:
        self._writes()
        with pytest.raises(UnsupportedError, match="no_such_option"):
            holdall.save(tmp_path / "x", self.small_model(), format=self.format, no_such_option=1)
        assert not list(tmp_path.iterdir())

    # -- reading ----------------------------------------------------------------------------------------------------

    def test_it_is_found_by_its_content(self, tmp_path: Path) -> None:
        path = self._small_file(tmp_path)
        with holdall.open(path) as model:
            assert model.format == self.format
        with pytest.raises((holdall.FormatError, UnsupportedError)):
            holdall.open(path, allowed=["some-other-format"])

    def test_a_good_file_has_no_errors_and_no_unowned_bytes(self, tmp_path: Path) -> None:
        report = holdall.verify(self._small_file(tmp_path), level="strict", format=self.format)
        assert report.ok, report.findings
        assert report.format == self.format

    def test_mapped_and_read_are_the_same_and_never_writable(self, tmp_path: Path) -> None:
        path = self._small_file(tmp_path)
        with holdall.open(path) as mapped, holdall.open(path, mmap=False) as read:
            assert_same(mapped, read)
            for name in mapped:
                if mapped[name].has_data:
                    for tensor in (mapped[name], read[name]):
                        assert tensor.raw().readonly
                        never_writable_window(tensor)
                    assert mapped[name].numpy().tobytes() == read[name].numpy().tobytes()

    def test_views_outlive_the_model(self, tmp_path: Path) -> None:
        path = self._small_file(tmp_path)
        model = holdall.open(path)
        stored = [tensor for tensor in model.tensors if tensor.has_data]
        views = [(tensor.raw(), tensor.numpy()) for tensor in stored]
        before = [(bytes(raw), array.tobytes()) for raw, array in views]
        model.close()
        model.close()
        assert [(bytes(raw), array.tobytes()) for raw, array in views] == before
        with pytest.raises(ClosedError):
            list(model)
        if stored and stored[0].nbytes:
            with pytest.raises(ClosedError):
                stored[0].raw()

    def test_a_pickled_model_opens_its_file_again(self, tmp_path: Path) -> None:
        path = self._small_file(tmp_path)
        with holdall.open(path) as model:
            travelled = pickle.dumps(model)
            with pickle.loads(travelled) as again:
                assert_same(model, again)
                assert (again.format, again.version) == (model.format, model.version)

    def test_slices_are_numpys(self, tmp_path: Path) -> None:
        path = self._small_file(tmp_path)
        with holdall.open(path) as mapped, holdall.open(path, mmap=False) as read:
            names = [tensor.name for tensor in mapped.tensors if tensor.has_data]

            @_SETTINGS
            @given(st.data())
            def check(data: st.DataObject) -> None:
                name = data.draw(st.sampled_from(names))
                expected = mapped[name].numpy()
                index = data.draw(strategies.basic_indices(expected.shape))
                for tensor in (mapped[name], read[name]):
                    found = tensor[index]
                    assert found.shape == expected[index].shape
                    assert found.tobytes() == expected[index].tobytes()

            if names:
                check()

    def test_slices_read_only_what_they_need(self, tmp_path: Path) -> None:
        self._writes()
        dtypes = [name for name in ("f32", "i4", "bool", "u2") if name in self.described.holds.dtypes]
        if not self.partial_reads or not dtypes:
            pytest.skip(f"{self.format} has no payloads that can be read in part")
        tensors = [Tensor.of(f"t.{name}", sample_values(name, (64, 8192)), name) for name in dtypes]
        path = self.write(tmp_path, "sliced", self.prepare(Model(tensors)))
        source = RecordingSource(source_of(path, map=False))
        with holdall.open(source, format=self.format) as model:
            for tensor in tensors:
                assert isinstance(tensor.dtype, DType)
                model[tensor.name][0, 0]  # a set may open the file that it is in only now
                for index, count in (((slice(3, 5),), 2 * 8192), ((7, slice(100, 900)), 800), ((9, 11), 1)):
                    source.reads.clear()
                    expected = tensor.numpy()[index]
                    assert model[tensor.name][index].tobytes() == expected.tobytes()
                    needed = count * tensor.dtype.bits // 8 + 2
                    assert source.bytes_read <= needed, f"{tensor.dtype}[{index}] read {source.bytes_read} bytes"

    def test_one_tensor_of_a_gigabyte_touches_its_own_pages(self, tmp_path: Path) -> None:
        self._writes()
        path = self._large_file(tmp_path, self.large_bytes)
        opened, touched = isolated(large_file_costs, path, self.format, memory=4 << 30)  # a map is address space
        assert opened < 8 * _MIB, f"opening took {opened >> 20} MiB"
        assert touched < BIG_SIZE + 8 * _MIB, f"one tensor of 16 MiB made {touched >> 20} MiB resident"

    def test_verifying_takes_no_more_memory_than_a_few_chunks(self, tmp_path: Path) -> None:
        self._writes()
        path = self._large_file(tmp_path, self.large_bytes // 4)
        verified = isolated(verification_cost, path, self.format, memory=4 << 30)
        assert verified < 64 * _MIB, f"verifying {self.large_bytes >> 22} MiB took {verified >> 20} MiB"

    # -- damage -----------------------------------------------------------------------------------------------------

    def test_every_cut_is_refused_in_words(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(truncations(sample, self.damage_cases // 3), tmp_path / "cut")

    def test_every_changed_byte_is_read_or_refused_in_words(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(changes(sample, self.damage_cases), tmp_path / "changed")

    def test_random_bytes_are_refused_in_words(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(random_files(sample, self.damage_cases // 10), tmp_path / "random")

    def _probe(self, cases: Iterator[tuple[str, Sample]], scratch: Path) -> None:
        isolated(probe_all, cases, scratch, self.format, self.bad_file_seconds, self.bad_file_bytes)

    # -- the corpus -------------------------------------------------------------------------------------------------

    def test_good_files_of_the_corpus(self) -> None:
        files = self._good_files()
        assert files or self.corpus is None, f"{self.corpus} has no file of {self.format}"
        for path in files:
            with holdall.open(path) as model:
                assert model.format == self.format, path.name
                assert exercise(model), path.name
            report = holdall.verify(path, level="full")
            assert report.ok, (path.name, report.findings)

    def test_odd_files_of_the_corpus_are_answered_in_words(self, tmp_path: Path) -> None:
        if self.corpus is not None:
            for path in corpus.good_files(*self._corpus("odd"), sets=self.described.folder):
                probe(path, None)

    def test_bad_files_of_the_corpus_are_refused_quickly(self) -> None:
        files = [] if self.corpus is None else corpus.bad_files(*self._corpus(), sets=self.described.folder)
        wrong = []
        for path, stage, demand, cost in isolated(refuse_all, files):
            if corpus.STAGES.index(stage) > corpus.STAGES.index(demand):
                wrong.append(f"{path.name}: must be refused at {demand}, was at {stage}")
            if cost.seconds > self.bad_file_seconds or cost.peak_bytes > self.bad_file_bytes:
                wrong.append(f"{path.name}: took {cost.seconds:.1f} s and {cost.peak_bytes >> 20} MiB")
        assert not wrong, "\n".join(wrong)
