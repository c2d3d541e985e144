"""Packed models made by the libraries of the quantizers, with the numbers that these libraries read from them.

Each module makes the models of some schemes. Only ``make packed`` imports them: what they need is large.
"""
