"""Rerun, check, minify and analyze repros in separate processes that import torch."""
