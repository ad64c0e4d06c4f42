"""Uploaded logs: received into a private folder, read by a child process under limits, one at a
time.
"""
