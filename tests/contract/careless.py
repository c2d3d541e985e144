"""Formats with one fault each: what the contract is there to find."""

import mmap
import os
from dataclasses import replace

from holdall.plugin import FormatError, Model
from tests.toy import Toy
from tests.toy.read import ToyNative


class Bare(Toy):
    """Damage comes out as a KeyError."""

    def read(self, source, check, ledger):
        try:
            return super().read(source, check, ledger)
        except FormatError as error:
            raise KeyError(str(error)) from error


class Blind(Toy):
    """Verification calls fine what opening refuses."""

    def read(self, source, check, ledger):
        if check.collecting:
            return Model(format="toy", sources=[source])
        return super().read(source, check, ledger)

    def audit(self, model, check, on_progress):
        return None


class Fickle(Toy):
    """No two files are the same."""

    def plan(self, model, options):
        return super().plan(Model(model.tensors, native=ToyNative(((b"RAND", os.urandom(8)),))), options)


class Forgetful(Toy):
    """Metadata is dropped without a word."""

    def plan(self, model, options):
        return super().plan(Model(model.tensors, native=model.native), options)


class Greedy(Toy):
    """Opening reads everything."""

    def read(self, source, check, ledger):
        model = super().read(source, check, ledger)
        model.kept = [_read_into_new_pages(tensor) for tensor in model.tensors if tensor.nbytes]
        return model


def _read_into_new_pages(tensor):
    """The bytes of a tensor in a map of their own: malloc may take pages that the process has had before."""
    pages = mmap.mmap(-1, tensor.nbytes)
    pages.write(tensor.payload.source.read(tensor.offset, tensor.nbytes))
    return pages


class Meddling(Toy):
    """Writing changes the model that is written."""

    def plan(self, model, options):
        planned = super().plan(model, options)
        model.native = "written"
        return planned


class Trusting(Toy):
    """The hashes are written, and never compared."""

    def audit(self, model, check, on_progress):
        return None


class Unproven(Toy):
    """Verification compares the hashes, conversion does not."""

    def proofs(self, model, spans):
        return ()


class Merging(Toy):
    """Of two entries with one key, the last is written."""

    def plan(self, model, options):
        return super().plan(Model(model.tensors, metadata=dict(model.metadata), native=model.native), options)


class Gullible(Toy):
    """Half of a surrogate pair comes out of Holds as a UnicodeEncodeError."""

    holds = replace(Toy.holds, refuses_name=lambda name: None if name.encode() else "a name is empty")


class Generous(Toy):
    """Holds admits names that the writer refuses."""

    holds = replace(Toy.holds, refuses_name=lambda name: None)


class Stringy(Toy):
    """Every value is written as text."""

    def plan(self, model, options):
        texts = {key: repr(value) for key, value in model.metadata.items() if key.isascii() and 0 < len(key) < 99}
        return super().plan(Model(model.tensors, metadata=texts, native=model.native), options)


class Doubling(Toy):
    """Of two tensors with one name, the last is written."""

    def plan(self, model, options):
        return super().plan(Model({tensor.name: tensor for tensor in model.tensors}.values()), options)


TRUSTING, UNPROVEN, MERGING, GULLIBLE, GENEROUS = Trusting(), Unproven(), Merging(), Gullible(), Generous()
STRINGY, DOUBLING = Stringy(), Doubling()
BARE, BLIND, FICKLE, FORGETFUL, GREEDY, MEDDLING = Bare(), Blind(), Fickle(), Forgetful(), Greedy(), Meddling()
