"""The records of a zip archive, and what must hold of them: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule
from holdall.binary.layout import U16, U32, U64, Layout, blob

__all__ = ["CENTRAL", "CENTRAL_FRONT", "END", "END64", "LOCAL", "LOCAL_FRONT", "LOCATOR", "RULES"]

LOCAL: Final = Layout(
    "local header", signature=U32, version=U16, flags=U16, method=U16, time=U16, date=U16, crc=U32, stored=U32,
    size=U32, name_size=U16, extra_size=U16, name=blob("name_size"), extra=blob("extra_size"),
)  # fmt: skip
CENTRAL: Final = Layout(
    "central directory", signature=U32, made_by=U16, version=U16, flags=U16, method=U16, time=U16, date=U16, crc=U32,
    stored=U32, size=U32, name_size=U16, extra_size=U16, comment_size=U16, disk=U16, internal=U16, external=U32,
    offset=U32, name=blob("name_size"), extra=blob("extra_size"), comment=blob("comment_size"),
)  # fmt: skip
LOCAL_FRONT: Final = Layout("local header", **{name: row for name, row in LOCAL.fields.items() if row.kind == "int"})
CENTRAL_FRONT: Final = Layout(
    "central directory", **{name: row for name, row in CENTRAL.fields.items() if row.kind == "int"}
)  # fmt: skip
END: Final = Layout(
    "end of directory", signature=U32, disk=U16, first_disk=U16, here=U16, count=U16, size=U32, offset=U32,
    comment_size=U16,
)  # fmt: skip
LOCATOR: Final = Layout("zip64 locator", signature=U32, disk=U32, offset=U64, disks=U32)
END64: Final = Layout(
    "zip64 end of directory", signature=U32, record_size=U64, made_by=U16, version=U16, disk=U32, first_disk=U32,
    here=U64, count=U64, size=U64, offset=U64,
)  # fmt: skip

LOCAL_SIGNATURE: Final = 0x04034B50
CENTRAL_SIGNATURE: Final = 0x02014B50
END_SIGNATURE: Final = 0x06054B50
END64_SIGNATURE: Final = 0x06064B50
LOCATOR_SIGNATURE: Final = 0x07064B50
DESCRIPTOR: Final = b"PK\7\10"
STORED, DEFLATED = 0, 8
DESCRIBED_FLAG: Final = 8  # sizes and CRC follow the data
ENCRYPTED_FLAGS: Final = 0x2041  # encrypted, strongly encrypted, masked header
UTF8_FLAG: Final = 0x0800  # the name is UTF-8
FOLDER_MARK: Final = 0x10  # of the external attributes, as MS-DOS has them
ZIP64: Final = 1  # the id of the extra field with wide sizes
OTHER_NAME: Final = 0x7075  # the id of the extra field with a name in UTF-8, after a version and a CRC-32 of the name

END_MISSING: Final = Rule("zip.end.missing", "the file ends with the end record of a zip")
END_PLACE: Final = Rule("zip.end.place", "the directory lies directly before the end record")
END_TWICE: Final = Rule("zip.end.twice", "no other end record follows, which another reader might choose")
END_WIDE: Final = Rule("zip.end.wide", "the zip64 end record has its fields and nothing else")
ONE_DISK: Final = Rule("zip.end.disks", "the archive is one file")
DIRECTORY: Final = Rule("zip.directory.entries", "the directory has as many entries as announced, and nothing else")
NAME: Final = Rule("zip.name.text", "names are UTF-8, and say so where they are not ASCII")
NAME_TWICE: Final = Rule("zip.name.twice", "no extra field gives an entry another name")
PATH: Final = Rule("zip.name.path", "names are plain relative paths")
DUPLICATE: Final = Rule("zip.name.duplicate", "names are unique")
CASE: Final = Rule("zip.name.case", "names differ in more than case, where readers ignore it")
FOLDER: Final = Rule("zip.entry.folder", "an entry with content is not called or marked a folder")
ENCRYPTED: Final = Rule("zip.entry.encrypted", "no entry is encrypted", severity="unread")
METHOD: Final = Rule("zip.entry.method", "entries are stored or deflated", severity="unread")
EXTRA: Final = Rule("zip.entry.extra", "wide sizes are where the directory says")
RANGE: Final = Rule("zip.entry.range", "entries lie before the directory")
LOCAL_HEADER: Final = Rule("zip.local.header", "a local header stands before every entry")
AGREE: Final = Rule("zip.local.agree", "the local header agrees with the directory")
OVERLAP: Final = Rule("zip.entry.overlap", "entries do not share bytes")
SIZES: Final = Rule("zip.entry.sizes", "a stored entry is as long as it says")
DEFLATE: Final = Rule("zip.entry.deflate", "deflated bytes inflate to the size they state")
CRC: Final = Rule("zip.entry.crc", "the CRC-32 of an entry is the stated one", "full")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
