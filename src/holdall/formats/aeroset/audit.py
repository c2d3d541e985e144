"""The hashes of a set: SHA-256 of every file, and all that its parts have of their own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.errors import FormatError
from holdall.formats.aero.audit import audit as audit_aero
from holdall.formats.aeroset import rules
from holdall.formats.aeroset.document import Member
from holdall.formats.aeroset.read import AerosetNative
from holdall.model import Model
from holdall.sizes import tuned
from holdall.source import Source

if TYPE_CHECKING:
    from holdall.format import Tick

__all__ = ["audit"]

_SMALL = tuned(1 << 20)  # bytes in all that are hashed before threads would have started


def audit(model: Model, check: Check, tick: Tick) -> None:
    """Prove every file of the set, and every part by itself."""
    native = model.native
    assert isinstance(native, AerosetNative)
    files: list[tuple[Member, Source]] = [(part.member, part.source) for part in native.parts]
    if native.index is not None and native.document.index is not None:
        files.append((native.document.index, native.index.sources[0]))
    if sum(source.size for _, source in files) <= _SMALL:
        digests = [_sha256(source) for _, source in files]
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1, "holdall-hash") as pool:
            digests = list(pool.map(lambda pair: _sha256(pair[1]), files))
    for (member, _), digest in zip(files, digests, strict=True):
        if isinstance(digest, str) and digest != member.sha256:
            message = f"aeroset: the SHA-256 of {member.path!r} is {digest}, the index says {member.sha256}"
            check.note(rules.HASH, None, message)
    for part in native.parts:
        check.file = part.member.path
        try:
            with check.scope():
                audit_aero(part.model, check, tick)
        finally:
            check.file = None


def _sha256(source: Source) -> str | FormatError:
    """The digest; a file that cannot be read has been reported when it was opened."""
    import hashlib

    running = hashlib.sha256()
    try:
        for piece in source.chunks(0, source.size):
            running.update(piece)
    except FormatError as error:
        return error
    return running.hexdigest()
