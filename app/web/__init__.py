"""Thin blueprints: filters → queries → analysis → template."""
