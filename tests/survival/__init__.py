"""Reads that survive: files that change, disks that fail, descriptors that run out, threads, forks and pickles.

One promise is under test throughout: numbers are right, or there is an error that names the file.
"""
