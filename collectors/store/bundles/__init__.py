"""Bundles: runs as one portable database."""
