"""Trials: run a recorded command with and without a fix, and compare."""
