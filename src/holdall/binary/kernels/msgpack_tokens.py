"""What the MessagePack walker returns: the kind of each value, or the code of the first fault of the document."""

from typing import TypeAlias

NIL, FALSE, TRUE, UINT, NEGATIVE, FLOAT, STR, BIN, EXT, ARRAY, MAP = range(11)
ABSENT = 255  # the kind of a key that a map does not have

FINE, CUT, RESERVED, DEEP, KEY, TWICE, TEXT, NOT_MAP, MANY = range(9)

# A step of the path to an error: an index into an array, or the position and length of the key in a map.
Step: TypeAlias = int | tuple[int, int]
