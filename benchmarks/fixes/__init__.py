"""Advice on graph breaks and recompiles, followed literally."""
