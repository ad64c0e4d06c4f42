"""The GitHub Action, on this machine."""
