"""Conversion: from any container into any other, and back to an original that was carried along."""
