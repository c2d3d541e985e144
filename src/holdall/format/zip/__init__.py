"""Zip archives, which npz and PyTorch files are."""
