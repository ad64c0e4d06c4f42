"""Convert PyTorch's benchmark files (CSV and JSON) to events and back. Needs only the standard
library.
"""
