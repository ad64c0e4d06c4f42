"""Compare a run with a baseline under named rules."""
