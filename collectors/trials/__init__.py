"""Trials: run a recorded command again beside a copy with a fix applied, and compare the two."""
