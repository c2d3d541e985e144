"""The C kernels under the sanitizers: hostile arguments for every one of them, their own tests, the golden files."""
