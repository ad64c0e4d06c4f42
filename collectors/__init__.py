"""What runs on a test box: hooks, the recorder, imports, the benchmark harness, and the store that they write."""
