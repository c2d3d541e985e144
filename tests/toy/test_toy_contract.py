import numpy as np

from holdall.plugin import Model, Tensor
from holdall.testing import FormatContract
from tests.toy.read import ToyNative


class TestToy(FormatContract):
    format = "toy"
    locator = "tests.toy:FORMAT"
    large_bytes = 256 << 20  # it has four digests of everything

    def small_model(self) -> Model:
        shared = Tensor.of("a", np.arange(6, dtype=np.float32).reshape(2, 3))
        tensors = [
            shared,
            shared.replace(name="a.again"),
            Tensor.of("side.b", np.arange(-4, 5).reshape(3, 3), "i4"),
            Tensor("declared", shared.dtype, (7,), None),
        ]
        return Model(tensors, metadata={"k": "v"}, native=ToyNative(((b"WHAT", b"ever"),)))
