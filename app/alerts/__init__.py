"""Alerts: tell people of confirmed findings, each of them once."""
