"""Reads mutants with holdall and with the format's own library: what both accept must mean the same.

=================== ===================================================================================================
``normal``          the form in which contents are compared
``ours``            what holdall reads, in that form
``theirs``          what the library reads, in that form
``oinf_verifier``   the published verifier of OINF as a reader
``onnx_places``     where the tensors of an ONNX model are, by the library's messages
``child``           the process that the library runs in, which may crash, hang or take all memory
``campaign``        inputs from the seeds and mutators of :mod:`tools.fuzz`, in batches, over several processes
``exceptions``      the differences that stand, each with its reason
=================== ===================================================================================================

``python -m tools.differential --format gguf --count 200000 --seed 1 --jobs 8``. The same seed gives the same inputs,
whatever the number of jobs.
"""
