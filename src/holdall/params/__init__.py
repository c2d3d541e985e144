"""Parameters on demand: loaded when first needed, kept under a budget, in whatever form the program wants them.

>>> import numpy as np
>>> from holdall.model import model_of
>>> store = ParamStore.from_model(model_of({"w": np.ones((2, 3), np.float32)}), budget=1000)
>>> store["w"].shape, store["w"].sum(), store.figures().loads
((2, 3), np.float32(6.0), 1)
"""

from __future__ import annotations

from holdall.params.cache import Cache
from holdall.params.store import Figures, Parameters, ParamStore, Resolver
from holdall.params.streaming import Streaming

__all__ = ["Cache", "Figures", "ParamStore", "Parameters", "Resolver", "Streaming"]
