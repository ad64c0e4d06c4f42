"""Fixes of graph breaks and recompiles, each a pair of programs that tests run."""
