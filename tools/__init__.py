"""Campaigns that need the repository: fuzzing, failing system calls, kills, the conversion matrix."""
