"""Fixes of recompiles, by subject: sizes, tensor properties, values, attributes, objects, global state."""
