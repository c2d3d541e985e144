"""Parameters on demand: loaded when first used, kept under a budget, in any form that the program wants.

>>> import numpy as np
>>> from holdall.model.model import model_of
>>> store = ParamStore.from_model(model_of({"w": np.ones((2, 3), np.float32)}), budget=1000)
>>> store["w"].shape, store["w"].sum(), store.figures().loads
((2, 3), np.float32(6.0), 1)
"""

from __future__ import annotations

from holdall.params.cache import Cache
from holdall.params.disk import DiskForms
from holdall.params.lazy import LazyParameter
from holdall.params.store import Figures, Parameters, ParamStore, Resolver
from holdall.params.streaming import Streaming

__all__ = ["Cache", "DiskForms", "Figures", "LazyParameter", "ParamStore", "Parameters", "Resolver", "Streaming"]
