"""Minify a failing graph with torch's minifier. Each question runs once, in a process of
its own.
"""
