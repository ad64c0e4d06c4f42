"""The collector: hooks, recorder, imports, benchmark harness and store."""
