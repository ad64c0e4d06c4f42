"""Alerts: tell people of incidents, when they open and when they recover."""
