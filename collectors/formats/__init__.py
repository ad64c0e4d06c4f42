"""PyTorch's benchmark files: CSV and JSON to events and back. Standard library only."""
