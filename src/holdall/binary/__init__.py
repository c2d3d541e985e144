"""Bytes at known places: layouts, columns, documents and the kernels that walk them."""
