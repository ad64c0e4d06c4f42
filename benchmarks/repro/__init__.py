"""Repros, measured."""
