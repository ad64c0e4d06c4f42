"""Minify a failing graph with torch's minifier, each question once and in its own process."""
