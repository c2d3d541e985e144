"""Documents inside files: strict JSON and msgpack, with the place of everything."""
