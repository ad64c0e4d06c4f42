"""Rerun, check, minify and analyze repros in separate processes, where torch is imported."""
