"""Alerts: messages sent when an incident opens or recovers."""
