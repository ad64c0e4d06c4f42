"""The JSON API: everything that a page shows, under /api/v1, described by its own OpenAPI document.

A new address is a view with `@operation(path)`: its signature is its parameters and its answer. Its section goes into
docs/api.md. tests/contract/test_openapi.py says what of these is missing.
"""
