"""Every reading SQL statement: a module a noun, functions list_ get_ count_ that return frozen dataclasses."""
