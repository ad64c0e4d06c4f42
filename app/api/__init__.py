"""The JSON API: everything that a page shows, under /api/v1, described by its own OpenAPI document."""
