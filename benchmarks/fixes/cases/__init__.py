"""Programs of real code that people report trouble with, each with what would be right and what
would be harm, written down before any advice was asked for.
"""
