"""The contract of formats as a class of pytest tests, which any plug-in can run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import holdall
from holdall.errors import ClosedError, UnsupportedError
from holdall.model.dtypes import DType
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.source import source_of
from holdall.testing import corpus, strategies
from holdall.testing.compare import assert_same, write_read
from holdall.testing.damage import Sample, changes, exercise, probe, truncations
from holdall.testing.fresh import digest_of
from holdall.testing.isolation import run_isolated
from holdall.testing.promises import PromiseTests
from holdall.testing.recording import RecordingSource
from holdall.testing.trials import (
    BIG_SIZE,
    assert_no_writable_window,
    measure_large_file,
    measure_verification,
    outline,
    probe_all,
    random_files,
    refuse_all,
)
from holdall.testing.zoo import sample_values

__all__ = ["FormatContract"]

_MIB = 1 << 20
_SETTINGS = settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # without shrinking, which takes long: the models are small
)


class FormatContract(PromiseTests):
    """The tests of one format: subclass it and set ``format``.

    ``format`` is the id; ``locator`` ("package.module:ATTRIBUTE") registers a format that is not installed.
    A format that demands more of a model than :class:`~holdall.plugin.Holds` can express overrides
    :meth:`prepare`, or both :meth:`small_model` and :meth:`models`. ``corpus`` is a folder of good, ``bad/`` and
    ``odd/`` files (see :mod:`holdall.testing.corpus`), ``corpus_prefix`` tells its formats apart.
    """

    # -- writing ----------------------------------------------------------------------------------------------------

    def test_every_zoo_model_survives(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        for name, model in self.models().items():
            path = self._target(tmp_path, name)
            try:
                with write_read(path, model, self.format, **self.options) as back:
                    assert_same(self.expect(model), back, extra_metadata=self.extra_metadata)
                report = holdall.verify(path, level="strict", format=self.format)
                assert report.ok, report.findings
            except Exception as error:
                raise AssertionError(f"the model {name!r}: {type(error).__name__}: {error}") from error

    def test_any_model_survives(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        numbers = iter(range(1 << 30))

        @_SETTINGS
        @given(strategies.models(self.described))
        def check(drawn: Model) -> None:
            model = self.prepare(self._restrict(drawn) or Model())
            path = self._target(tmp_path, f"drawn{next(numbers)}")
            with write_read(path, model, self.format, **self.options) as back:
                assert_same(self.expect(model), back, extra_metadata=self.extra_metadata)

        check()

    def test_plans_are_pure_and_bytes_the_same_twice(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        options = self.described.settings(self.options)
        for name, model in self.models().items():
            shapes = [outline(self.described.plan(model, options)) for _ in range(2)]
            assert shapes[0] == shapes[1], name
            first, second = (digest_of(self.write(tmp_path, f"{name}.{n}", model)) for n in range(2))
            assert first == second, name

    def test_another_process_writes_the_same_bytes(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        kind = type(self)
        environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            [sys.executable, "-m", "holdall.testing.fresh", f"{kind.__module__}:{kind.__qualname__}"],
            env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
        here = {name: digest_of(self.write(tmp_path, name, model)) for name, model in self.models().items()}
        assert json.loads(ran.stdout.splitlines()[-1]) == here

    def test_an_option_that_does_not_exist_is_refused(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
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
                        assert_no_writable_window(tensor)
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
            with pickle.loads(travelled) as reopen:
                assert_same(model, reopen)
                assert (reopen.format, reopen.version) == (model.format, model.version)

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
        self._skip_if_read_only()
        dtypes = [name for name in ("f32", "i4", "bool", "u2") if name in self.described.holds.dtypes]
        if not self.partial_reads or not dtypes:
            pytest.skip(f"{self.format} has no payloads that can be read in part")
        tensors = [Tensor.of(f"t.{name}", sample_values(name, (64, 8192)), name) for name in dtypes]
        path = self.write(tmp_path, "sliced", self.prepare(Model(tensors)))
        source = RecordingSource(source_of(path, map=False))
        with holdall.open(source, format=self.format) as model:
            for tensor in tensors:
                assert isinstance(tensor.dtype, DType)
                model[tensor.name][0, 0]  # a set may open the member only now
                for index, count in (((slice(3, 5),), 2 * 8192), ((7, slice(100, 900)), 800), ((9, 11), 1)):
                    source.reads.clear()
                    expected = tensor.numpy()[index]
                    assert model[tensor.name][index].tobytes() == expected.tobytes()
                    needed = count * tensor.dtype.bits // 8 + 2
                    assert source.bytes_read <= needed, f"{tensor.dtype}[{index}] read {source.bytes_read} bytes"

    def test_one_tensor_of_a_gigabyte_touches_its_own_pages(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        path = self._large_file(tmp_path, self.large_bytes)
        opened, touched = run_isolated(
            measure_large_file, path, self.format, memory=4 << 30
        )  # the map counts as address space
        assert opened < 8 * _MIB, f"opening took {opened >> 20} MiB"
        assert touched < BIG_SIZE + 8 * _MIB, f"one tensor of 16 MiB made {touched >> 20} MiB resident"

    def test_verifying_takes_no_more_memory_than_a_few_chunks(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        path = self._large_file(tmp_path, self.large_bytes // 4)
        verified = run_isolated(measure_verification, path, self.format, memory=4 << 30)
        assert verified < 64 * _MIB, f"verifying {self.large_bytes >> 22} MiB took {verified >> 20} MiB"

    # -- damage -----------------------------------------------------------------------------------------------------

    def test_every_cut_is_refused_with_a_reason(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(truncations(sample, self.damage_cases // 3), tmp_path / "cut")

    def test_every_changed_byte_is_read_or_refused_with_a_reason(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(changes(sample, self.damage_cases), tmp_path / "changed")

    def test_random_bytes_are_refused_with_a_reason(self, tmp_path: Path) -> None:
        sample = Sample.of(self._small_file(tmp_path), self.format)
        self._probe(random_files(sample, self.damage_cases // 10), tmp_path / "random")

    def _probe(self, cases: Iterator[tuple[str, Sample]], scratch: Path) -> None:
        run_isolated(probe_all, cases, scratch, self.format, self.bad_file_seconds, self.bad_file_bytes)

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

    def test_odd_files_of_the_corpus_are_answered_with_a_reason(self, tmp_path: Path) -> None:
        if self.corpus is not None:
            for path in corpus.good_files(*self._corpus("odd"), sets=self.described.folder):
                probe(path, None)

    def test_bad_files_of_the_corpus_are_refused_quickly(self) -> None:
        files = [] if self.corpus is None else corpus.bad_files(*self._corpus(), sets=self.described.folder)
        wrong = []
        for path, stage, demand, cost in run_isolated(refuse_all, files):
            if corpus.STAGES.index(stage) > corpus.STAGES.index(demand):
                wrong.append(f"{path.name}: must be refused at {demand}, was at {stage}")
            if cost.seconds > self.bad_file_seconds or cost.peak_bytes > self.bad_file_bytes:
                wrong.append(f"{path.name}: took {cost.seconds:.1f} s and {cost.peak_bytes >> 20} MiB")
        assert not wrong, "\n".join(wrong)
