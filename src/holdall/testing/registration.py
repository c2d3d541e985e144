"""Registers a format for the length of a test, without installing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint

from holdall.format import registry
from holdall.format.base import Format

__all__ = ["register"]


@contextmanager
def register(locator: str) -> Iterator[Format]:
    """Register the format at ``locator`` ("package.module:ATTRIBUTE") as an installed plug-in would be."""
    module, _, attribute = locator.partition(":")
    format: Format = EntryPoint("", locator, registry.GROUP).load()
    plug_ins = registry.plug_ins()
    assert format.name not in registry.names(), f"{format.name} is registered already"
    plug_ins[format.name] = EntryPoint(format.name, f"{module}:{attribute}", registry.GROUP)
    try:
        yield format
    finally:
        del plug_ins[format.name]
