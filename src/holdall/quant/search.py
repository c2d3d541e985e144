"""How mode ``best`` finds its scales: the definition that the kernel repeats bit for bit."""
from __future__ import annotations
def block_scales(*a): raise NotImplementedError
def super_scales(*a): raise NotImplementedError
