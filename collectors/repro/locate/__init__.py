"""Find the operation, pass or setting that makes a repro fail, by judging nodes and bisection."""
