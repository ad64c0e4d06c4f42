"""Which operation, pass or setting makes a repro fail: every node judged, compiles bisected."""
