"""The container formats, one folder each, and what they share."""
