"""Reads the header, the directory and the sections in it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from holdall.base.check import Check
from holdall.errors import FormatError, MissingError, UnsupportedError
from holdall.format.mcf import modelinfo, rules
from holdall.format.mcf.layout import (
    ALIGN,
    HEADER,
    LOOSE,
    MAGIC,
    MAJOR,
    MODEL_INFO,
    SECTION,
    SECTION_NAMES,
    TENSOR_INDEX,
    section_name,
    section_type,
)
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.payload import Payload, SourceRange
from holdall.source import Source
from holdall.source.ledger import Ledger

__all__ = ["McfNative", "Section", "read_directory", "read_header"]


@dataclass(frozen=True, slots=True)
class Section:
    """One section. Its bytes are read when ``data`` is asked for."""

    type: int
    version: int
    payload: Payload

    @property
    def name(self) -> str:
        """The name of its type, such as "TensorIndex" or "config.json"; an unknown type in hex."""
        return section_name(self.type)

    @property
    def offset(self) -> int:
        """The offset in the file; 0 for a section that is not in a file."""
        return self.payload.offset if isinstance(self.payload, SourceRange) else 0

    @property
    def size(self) -> int:
        """The number of bytes, without padding."""
        return self.payload.size

    @property
    def data(self) -> bytes:
        """The bytes; each call reads them."""
        return self.payload.read()


@dataclass(frozen=True, slots=True)
class McfNative:
    """The content that only MCF has: sections in the order of the directory, minor version, flags of the header.

    >>> McfNative().get("ModelInfo") is None
    True
    """

    minor: int = 1
    flags: int = 0
    sections: tuple[Section, ...] = ()
    limits: Limits = DEFAULT_LIMITS

    def get(self, name: str | int) -> Section | None:
        """Return the section called ``name`` ("ModelInfo", "tokenizer.json", "0x0200", 512); None if there is none.

        Of several with the same type the first counts.
        """
        wanted = section_type(name)
        if wanted is None:
            raise UnsupportedError(f"mcf has no section called {name!r}")
        return next((section for section in self.sections if section.type == wanted), None)

    @property
    def repeated(self) -> list[Section]:
        """The sections that have the type of an earlier one."""
        firsts: dict[int, Section] = {}
        return [section for section in self.sections if firsts.setdefault(section.type, section) is not section]

    @property
    def own(self) -> list[Section]:
        """What other formats have no place for: sections of types that the format does not define or that come again.

        Also TensorData and QuantInfo without a TensorIndex.
        """
        loose = () if self.get(TENSOR_INDEX) is not None else LOOSE
        again = set(map(id, self.repeated))
        return [
            section
            for section in self.sections
            if section.type not in SECTION_NAMES or section.type in loose or id(section) in again
        ]

    def section(self, name: str | int) -> Section:
        """The section called ``name``; raises MissingError if there is none."""
        found = self.get(name)
        if found is None:
            has = ", ".join(section.name for section in self.sections) or "none"
            raise MissingError(f"the file has no section {name!r}; its sections are: {has}")
        return found

    @property
    def model_info(self) -> modelinfo.ModelInfo | None:
        """ModelInfo, parsed anew; None if it is absent or not structured; raises FormatError if it is damaged."""
        return self.parse_model_info(Check(limits=self.limits))

    @property
    def reads_model_info(self) -> bool:
        """Whether there is a ModelInfo that can be read as metadata."""
        try:
            return self.model_info is not None
        except FormatError:
            return False

    def parse_model_info(self, check: Check) -> modelinfo.ModelInfo | None:
        """ModelInfo, parsed with the breaches reported to ``check``; None if it is absent or not structured."""
        section = self.get(MODEL_INFO)
        if section is None:
            return None
        check.limit("metadata_bytes", section.size, section.offset, "mcf: ModelInfo")
        return modelinfo.decode(section.data, section.offset, check)


def read_header(source: Source, check: Check, ledger: Ledger) -> SimpleNamespace:
    """Read the header; checks that the directory lies in the file."""
    size = source.size
    if size < HEADER.size:
        check.fail(rules.SIZE, size, f"mcf: {size} bytes cannot hold the header of {HEADER.size}")
    header = HEADER.read(source.read(0, HEADER.size), 0)
    at = HEADER.offset_of
    if header.magic != MAGIC:
        check.fail(rules.MAGIC, 0, f"mcf: the file begins with {header.magic!r}, not {MAGIC!r}")
    if header.major != MAJOR:
        check.fail(rules.MAJOR, at("major"), f"mcf: major version {header.major} is unknown; {MAJOR} is known")
    if header.file_size != size:
        message = f"mcf: the header says {header.file_size} bytes, the file has {size}"
        check.fail(rules.FILE_SIZE, at("file_size"), message, needs=header.file_size)
    if not HEADER.size <= header.header_size <= size:
        message = f"mcf: header_size is {header.header_size}; it must lie in {HEADER.size}..{size}"
        check.fail(rules.SIZE, at("header_size"), message)
    if header.section_count == 0:
        check.fail(rules.COUNT, at("section_count"), "mcf: there are no sections")
    start, count = header.section_dir_offset, header.section_count
    if start < header.header_size or start + count * SECTION.size > size:
        message = f"mcf: a directory of {count} sections at {start} does not lie in {header.header_size}..{size}"
        check.fail(rules.DIRECTORY, at("section_dir_offset"), message)
    ledger.record(HEADER, 0)
    if header.header_size > HEADER.size:
        ledger.region("header extension", HEADER.size, header.header_size - HEADER.size)
    return header


def read_directory(source: Source, header: SimpleNamespace, check: Check, ledger: Ledger) -> tuple[Section, ...]:
    """Read the sections in the order of the directory; checks that they lie in the file and share no byte."""
    import numpy as np

    from holdall.binary.columns import find_overlaps, fit

    size, start, count = source.size, header.section_dir_offset, header.section_count
    check.limit("sections", count, start, "mcf: sections")
    table = SECTION.table(source.read(start, count * SECTION.size), 0, count)
    types, offsets, sizes = table["type"], table["offset"], table["size"]
    ledger.table(SECTION, start, count, lambda row: section_name(int(types[row])))

    def locate(row: int) -> int:
        return int(start + row * SECTION.size)

    def what(row: int) -> str:
        return f"mcf: section {row} ({section_name(int(types[row]))}): {sizes[row]} bytes at {offsets[row]}"

    inside = fit(offsets, sizes, size)
    check.rows(inside, rules.SECTION_PLACE, locate, lambda row: f"{what(row)} run past the end of the file at {size}")
    behind = offsets >= np.uint64(header.header_size)
    check.rows(
        behind, rules.SECTION_PLACE, locate,
        lambda row: f"{what(row)} lie in the header of {header.header_size} bytes",
    )  # fmt: skip
    ends, stop = offsets + sizes, np.uint64(start + count * SECTION.size)
    apart = (ends <= np.uint64(start)) | (offsets >= stop) | (sizes == 0)
    check.rows(apart, rules.SECTION_PLACE, locate, lambda row: f"{what(row)} overlap the directory at {start}..{stop}")
    aligned = offsets % np.uint64(ALIGN) == 0
    check.rows(aligned, rules.SECTION_ALIGN, locate, lambda row: f"{what(row)} start on no multiple of {ALIGN}")
    free = np.ones(count, np.bool_)
    free[[row for _, row in find_overlaps(offsets, sizes)]] = False
    check.rows(free, rules.SECTION_OVERLAP, locate, lambda row: f"{what(row)} overlap the section before them")
    first = np.zeros(count, np.bool_)
    first[np.unique(types, return_index=True)[1]] = True
    check.rows(
        first, rules.SECTION_REPEATED, locate, lambda row: f"{what(row)}: there is a section of this type already"
    )
    rows = zip(types.tolist(), table["version"].tolist(), offsets.tolist(), sizes.tolist(), strict=True)
    return tuple(Section(type, version, SourceRange(source, offset, nbytes)) for type, version, offset, nbytes in rows)
