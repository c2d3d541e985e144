"""Mutants of every format, and of the files beside them, through every command and every verb of the library.

=================== ===================================================================================================
``material``        the seeds: those of the formats, files that carry an original, sentence encoders; and their mutants
``recipe_files``    recipes in files and mutants of them, and models that the recipes of holdall know
``desk``            the folder of one case: two models, the files beside them that a case needs, and bait outside
``words``           a random command line, made from what click knows of the commands: a new option is met at once
``verbs``           the calls of the library: open, save, convert, slices, ParamStore, fronts and the rest
``guard``           watches one call: exceptions, exit code, time, memory, descriptors, files, processes, network
``cases``           one case by its number: the same seed and number give the same case
``workers``         cases in forked processes with limits; one that dies or hangs is a finding
=================== ===================================================================================================

``python -m tools.fuzz.operations --count 10000 --seed 1 --jobs 2`` prints one line of JSON, and keeps one case of each
cause in ``.fuzz/operations``. ``--case 17`` runs case 17 alone and shows what it does.
"""
