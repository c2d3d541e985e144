"""Fuzzing: takes small files of every format, changes them with knowledge of the format, and reads the results.

=================== ===================================================================================================
``subjects``        the formats; ``Subject.probe`` is the fuzz function, plain Python
``seeds``           ``tiny`` models by the library's own writers, and ``forms`` that those do not write
``mutate``          one change: to a field of the ``anatomy``, or in the ``trees`` of ``documents``
``mend``            makes sizes, offsets and checksums right again
``framing``         the files of a set as one byte string, and back
``findings``        keeps the inputs that raise, take long or take much memory
``smoke``           a short run without a fuzzer, for the tests
``guided``          the run under atheris, guided by coverage
``campaign``        a number of inputs for every format, in turns; can be stopped and resumed
``operations``      mutants through every command and every verb of the library; a campaign of its own
``lines``           which lines of the readers a corpus reaches
=================== ===================================================================================================
"""

# Imports nothing: atheris instruments holdall as it is imported, which must happen in `guided` alone.
