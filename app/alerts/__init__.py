"""Alerts: send alerts, when they open and when they recover."""
