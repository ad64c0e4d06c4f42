"""User programs that the fixes were not written for; each leaves a `result`."""
