"""Formats with one fault each: what the contract is there to find."""

import os

from holdall.errors import FormatError
from holdall.model import Model
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

    def audit(self, model, check, tick):
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
        model.kept = [
            tensor.payload.source.read(tensor.offset, tensor.nbytes) for tensor in model.tensors if tensor.nbytes
        ]
        return model


class Meddling(Toy):
    """Writing changes the model that is written."""

    def plan(self, model, options):
        planned = super().plan(model, options)
        model.native = "written"
        return planned


BARE, BLIND, FICKLE, FORGETFUL, GREEDY, MEDDLING = Bare(), Blind(), Fickle(), Forgetful(), Greedy(), Meddling()
