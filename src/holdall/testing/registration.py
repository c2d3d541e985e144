"""A format in the registry for the length of a test, without being installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint

from holdall import registry
from holdall.format import Format

__all__ = ["registered"]


@contextmanager
def registered(locator: str) -> Iterator[Format]:
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
