"""The JSON API under /api/v1, described by its own OpenAPI document.

To add an endpoint, write a view with `@operation(path)`, and add its section to docs/api.md.
"""
