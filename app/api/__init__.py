"""The JSON API: everything that a page shows, under /api/v1, described by its own OpenAPI document.

A new address is one entry of operations.py, its view (which gives an Answer), its schema in schemas_*.py and its
section in docs/api.md. tests/contract/test_openapi.py says what of these is missing.
"""
