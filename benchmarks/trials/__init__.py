"""Trials of fixes, measured."""
