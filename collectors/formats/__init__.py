"""PyTorch's benchmark files: read CSV and JSON into events and write the same files. Standard
library only.
"""
