"""Compare a run with a baseline under named rules: find both sides, decide, write what came of it."""
