"""The place of a graph break: its line parsed, what becomes of its value, and which fixes fit."""
