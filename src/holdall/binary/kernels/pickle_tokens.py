"""What the pickle kernel returns: a row of columns for each tensor, and what the pickle remembers."""

from enum import IntEnum

__all__ = ["Column", "Kind"]


class Kind(IntEnum):
    """The kind of a remembered value: the low three bits. Above them is the place of a text, a word or a row."""

    OTHER = 0
    TEXT = 1
    WORD = 2
    TENSOR = 3
    ROOT = 4


class Column(IntEnum):
    """The columns of a tensor. DIMS is the place of its shape among the values; its strides follow there."""

    NAME_AT = 0
    NAME_SIZE = 1
    KEY_AT = 2
    KEY_SIZE = 3
    STORAGE = 4
    ELEMENTS = 5
    FIRST = 6
    DIMS = 7
    RANK = 8
    PLACE = 9
