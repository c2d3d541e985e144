"""What npy and npz files must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule
from holdall.format.zip import layout as zip_layout

__all__ = ["RULES"]

ENTRY: Final = Rule("npz.entry.name", "every entry is an array, called NAME.npy")
SHADOW: Final = Rule("npz.entry.shadow", "no array has the name of another entry, which numpy would take for it")
MAGIC: Final = Rule("npz.npy.magic", "an array begins with \\x93NUMPY")
VERSION: Final = Rule("npz.npy.version", "the version of an array is 1.0, 2.0 or 3.0")
SHORT: Final = Rule("npz.npy.short", "the header of an array ends inside it")
HEADER: Final = Rule("npz.npy.header", "the header is a dict of descr, fortran_order and shape, of literals only")
HEADERS: Final = Rule("npz.npy.headers", "the headers of all arrays stay in proportion to the file")
DESCR: Final = Rule("npz.npy.descr", "descr names a type")
OBJECT: Final = Rule(
    "npz.npy.object", "no array holds Python objects: they would have to be unpickled", severity="unread"
)
SHAPE: Final = Rule("npz.npy.shape", "shape is a tuple of sizes")
SIZE: Final = Rule("npz.npy.size", "an array has as many bytes as descr and shape need")
METADATA: Final = Rule("npz.metadata.json", "__metadata__ is JSON if it is an array of bytes that begins with {")

RULES: Final = (*zip_layout.RULES, *(value for value in list(globals().values()) if isinstance(value, Rule)))
