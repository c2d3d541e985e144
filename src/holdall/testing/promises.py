"""The part of the contract that a careless format would break unnoticed: its writer refuses what its reader cannot
give back, and the hashes that its rules name are compared, by verification and by conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import holdall
from holdall.errors import ContentError, FormatError
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.testing.compare import assert_same
from holdall.testing.contract_base import ContractBase
from holdall.testing.zoo import AWKWARD_NAMES, AWKWARD_VALUES, sample_values

__all__ = ["PromiseTests"]

_SHOWN = 300  # letters of a message
_ELSEWHERE = "safetensors"  # the target of formats that are only read


class PromiseTests(ContractBase):
    """Tests of what ``Holds`` and ``rules`` promise."""

    def test_names_are_held_or_refused_with_a_reason(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        refuses = self.described.holds.refuses_name
        self._hold_or_refuse(
            tmp_path,
            [
                (f"a name that is {what}", Model([self._tensor(name)]), partial(refuses, name))
                for what, name in AWKWARD_NAMES.items()
            ],
        )
        with pytest.raises(ContentError):
            self.write(tmp_path, "twice", self.prepare(Model([self._tensor("twice"), self._tensor("twice")])))

    def test_metadata_is_held_or_refused_with_a_reason(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        if not self.described.holds.metadata:
            return
        refuses = self.described.holds.refuses_metadata
        pairs = [(f"a value that is {what}", "key", make()) for what, make in AWKWARD_VALUES.items()]
        pairs += [(f"a key that is {what}", name, "value") for what, name in AWKWARD_NAMES.items()]
        self._hold_or_refuse(
            tmp_path,
            [
                (what, Model([self._tensor("w")], metadata={key: value}), partial(refuses, key, value))
                for what, key, value in pairs
            ],
        )

    def test_assets_are_held_or_refused_with_a_reason(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        if not self.described.holds.assets:
            return
        refuses = self.described.holds.refuses_asset
        names = {**AWKWARD_NAMES, "outside the folder": "../outside.bin"}
        self._hold_or_refuse(
            tmp_path,
            [
                (f"an asset that is {what}", Model([self._tensor("w")], assets={name: b""}), partial(refuses, name))
                for what, name in names.items()
            ],
        )
        assert not (tmp_path / "outside.bin").exists()

    def test_a_metadata_key_that_comes_twice_is_kept_or_refused(self, tmp_path: Path) -> None:
        self._skip_if_read_only()
        holds = self.described.holds
        if not holds.metadata or holds.refuses_metadata("twice", "one") is not None:
            return
        entries = [Entry("twice", "one"), Entry("between", "none"), Entry("twice", "two")]
        model = self.prepare(Model([self._tensor("w")], metadata=Metadata(entries)))
        try:
            path = self.write(tmp_path, "repeated", model)
        except ContentError:
            return
        with holdall.open(path, format=self.format) as back:
            found = [entry.value for entry in back.metadata.entries if entry.key == "twice"]
        assert found == ["one", "two"], f"two entries of one key were written without an error, and {found} came back"

    def test_changed_payloads_are_found_and_not_converted(self, tmp_path: Path) -> None:
        hashes = any(rule.level == "full" and rule.severity == "error" for rule in self.described.rules)
        if not hashes or self.payloads_without_hash:
            return
        path = self._small_file(tmp_path)
        target = self.format if self.described.writes else _ELSEWHERE
        for name, file, at in self._payload_ends(path):
            with _change_byte(file, at):
                report = holdall.verify(path, level="full", format=self.format)
                assert not report.ok, (
                    f"verify finds nothing wrong with tensor {name!r}, whose last byte was changed: "
                    "write audit(), or say in payloads_without_hash why not"
                )
                try:
                    done = holdall.convert(path, tmp_path / "converted", format=target, fsync=False)
                except FormatError:
                    continue
            raise AssertionError(
                f"convert copies tensor {name!r}, whose last byte was changed, with checked={done.checked}: "
                "write proofs(), or say in payloads_without_hash why not"
            )

    # -- machinery --------------------------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Tensor:
        dtypes = self.described.holds.dtypes
        dtype = "f32" if "f32" in dtypes else min(dtypes)
        return Tensor.of(name, sample_values(dtype, (2, 4)), dtype)

    def _payload_ends(self, path: Path) -> list[tuple[str, Path, int]]:
        """Return name, file and last byte of each payload of the model at ``path``."""
        with holdall.open(path, format=self.format) as model:
            stored = [(tensor.name, tensor.payload) for tensor in model.tensors if tensor.payload is not None]
            spans = [(name, span) for name, payload in stored for span in payload.spans()]
            home = path if path.is_dir() else path.parent  # the names of some members are relative to it
            ends = [(name, home / source.name, stop - 1) for name, (source, start, stop) in spans if start < stop]
        assert ends, "the small model has no payload in a file"
        return ends

    def _hold_or_refuse(self, folder: Path, cases: Iterable[tuple[str, Model, Callable[[], str | None]]]) -> None:
        """Assert that each model is refused with ContentError, or written and read back, and that Holds knows which."""
        wrong = []
        for number, (what, model, refuses) in enumerate(cases):
            path = self._target(folder, f"model{number}")
            if breach := self._find_breach(path, self.prepare(model), refuses):
                wrong.append(f"{what}: {breach}"[:_SHOWN])
        assert not wrong, "\n".join(wrong)

    def _find_breach(self, path: Path, model: Model, refuses: Callable[[], str | None]) -> str | None:
        try:
            reason = refuses()
        except Exception as error:
            return f"Holds raises {type(error).__name__} instead of returning the reason: {error}"
        try:
            holdall.save(path, model, format=self.format, fsync=False, **self.options)
        except ContentError as error:
            return None if reason is not None else f"Holds admits it, and the writer refuses it: {error}"
        except Exception as error:
            return f"the writer raises {type(error).__name__} instead of ContentError: {error}"
        try:
            with holdall.open(path, format=self.format) as back:
                assert_same(self.expect(model), back, extra_metadata=self.extra_metadata)
        except Exception as error:
            return f"was written, and does not come back: {type(error).__name__}: {error}"
        return None


@contextmanager
def _change_byte(file: Path, at: int) -> Iterator[None]:
    """Flip the lowest bit of a byte for the length of a block."""
    before = file.read_bytes()
    file.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
    try:
        yield
    finally:
        file.write_bytes(before)
