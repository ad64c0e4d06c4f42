"""A task of N ranks: a launcher starts one process per rank and merges their results."""
