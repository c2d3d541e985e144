"""Fuzzing: small files of every format, changed with knowledge of the format, through everything that reads.

=================== ===================================================================================================
``subjects``        what is fuzzed; ``Subject.probe`` is the fuzz function, plain Python
``seeds``           ``tiny`` models by the library's own writers, and ``forms`` that those do not write
``mutate``          one change: to a field of the ``anatomy``, or in the ``trees`` of ``documents``
``mend``            makes sizes, offsets and checksums right again
``framing``         the files of a set as one byte string, and back
``findings``        what must not happen, kept with its input
``smoke``           a short run without a fuzzer, for the tests
``guided``          the run under atheris, guided by coverage
``campaign``        so many inputs for every format, in turns that can be stopped and taken up
``lines``           which lines of the readers a corpus reaches
=================== ===================================================================================================
"""

from __future__ import annotations

from holdall.testing.fuzz.smoke import smoke
from holdall.testing.fuzz.subjects import SUBJECTS, Subject

__all__ = ["SUBJECTS", "Subject", "smoke"]
