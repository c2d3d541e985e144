"""Everything that the author of a format imports: the contract, and the parts that readers and writers are made of.

>>> from holdall.plugin import U32, Layout, raw
>>> Layout("header", magic=raw(4), version=U32).size
8

docs/adding-a-format.md builds a format from these names alone; ``holdall.testing.FormatContract`` tests it.
"""

from __future__ import annotations

from holdall.base.check import Check, Rule, figure
from holdall.base.repeats import find_repeat
from holdall.base.utf8 import utf8_breach
from holdall.binary.columns import Shapes, fit
from holdall.binary.documents import json, msgpack
from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.outline import Item
from holdall.binary.kernels import texts
from holdall.binary.layout import (
    F32,
    F64,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Columns,
    Layout,
    array,
    blob,
    elements,
    raw,
    text,
)
from holdall.errors import ContentError, FormatError, UnsupportedError
from holdall.format.base import Format, Holds, OnProgress, Option, Patch
from holdall.format.outline import Outline, Place, open_regions, outline_json, outline_msgpack, outline_text
from holdall.format.proof import Proof
from holdall.format.refusals import check_entries, refuse_repeats
from holdall.model.dtypes import DTYPES, DType, find_dtype
from holdall.model.encodings import Encoding, Opaque
from holdall.model.metadata import Assets, Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Computed, InMemory, Payload, SourceRange, Span
from holdall.model.table import ColumnTable, ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.model.vocab import Vocab
from holdall.sink.plan import FolderPlan, Plan, Results
from holdall.source import Source
from holdall.source.buffers import Buffers
from holdall.source.ledger import Ledger

# The format itself.
__all__ = ["ContentError", "Format", "FormatError", "Holds", "OnProgress", "Option", "Patch", "Proof"]
__all__ += ["UnsupportedError"]
# Tables of bytes.
__all__ += ["F32", "F64", "I32", "I64", "U8", "U16", "U32", "U64", "Columns", "Layout", "array", "blob", "elements"]
__all__ += ["raw", "text"]
# Reading.
__all__ += ["Check", "DocumentError", "Ledger", "Rule", "Shapes", "Source", "figure", "find_repeat", "fit", "json"]
__all__ += ["msgpack", "texts"]
# Explaining.
__all__ += ["Item", "Outline", "Place", "open_regions", "outline_json", "outline_msgpack", "outline_text"]
# Content.
__all__ += ["DTYPES", "Assets", "ColumnTable", "DType", "Encoding", "Entry", "ListTable", "Metadata", "Model", "Opaque"]
__all__ += ["Tensor", "TensorTable", "Vocab", "find_dtype"]
# Writing.
__all__ += ["Buffers", "Computed", "FolderPlan", "InMemory", "Payload", "Plan", "Results", "SourceRange", "Span"]
__all__ += ["check_entries", "refuse_repeats", "utf8_breach"]
