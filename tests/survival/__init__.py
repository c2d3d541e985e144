"""Reads that survive: files that change, disks that fail, descriptors that run out, threads, forks and pickles.

All tests check one promise: numbers are right, or an error names the file.
"""
