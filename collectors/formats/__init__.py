"""Upstream's benchmark files, both ways: CSV and JSON to events, and back to the same files. Standard library alone."""
