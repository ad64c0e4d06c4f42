"""Flask blueprints: read filters, build a screen, render a template."""
