"""A task of N ranks: a launcher starts a process for each and merges their results."""
