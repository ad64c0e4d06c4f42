"""A task of N ranks: a launcher starts a process for each, and makes one result of theirs."""
