"""Plotly figures of results. Only this package imports plotly."""
