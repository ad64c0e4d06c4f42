"""Findings: what changed for good in every series, since when, and what may have caused it."""
