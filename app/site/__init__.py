"""The dashboard as static files that any web server can publish."""
