"""The tokens of a JSON tape: a buffer of tokens in document order, four uint32 each.

::

    kind   the low 4 bits are one of the constants below, ESCAPED marks a string with escapes,
           and from bit 8 on it is the number of containers that are open around the token
    start  of a string: after its opening quote
    end    of a string: at its closing quote
    link   the index after this value and everything inside it: the next sibling, or the end of the container

An object is followed by KEY, value, KEY, value, ...; an array by its values.
"""

OBJECT, ARRAY, KEY, STRING, INT, FLOAT, TRUE, FALSE, NULL = range(1, 10)
KIND, ESCAPED, DEPTH_SHIFT = 15, 16, 8
ABSENT = 255  # the answer of json_words for a string that is none of the words
