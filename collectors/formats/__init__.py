"""Upstream's benchmark files, both ways: CSV and JSON to events, and events to the same files. Standard library alone."""
