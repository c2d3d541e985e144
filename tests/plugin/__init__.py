"""Other people's formats: found by entry points, imported when they are needed, kept out by an allowlist."""
