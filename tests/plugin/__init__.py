"""Plug-ins are found by entry points, imported when they are needed, and kept out by an allowlist."""
