"""What the protobuf kernel takes and returns: why a walk stopped, and the columns of a record."""

END, WINDOW, ROOM, WIRE, DEEP = range(5)
# FIRST: the first column of the single fields, two for each. A frame, the message around records, ends before ODD.
FIELD, START, STOP, PARENT, NUMBER, ORDINAL, ODD, COUNT, FIRST = range(9)
FRAME = ODD
RECORD = 255  # in a grammar, instead of the kind of a message
LEVEL = 15  # words of the stack for each message around the place of the walk
