"""Uploaded logs: received into a private folder, read one at a time by a limited process."""
