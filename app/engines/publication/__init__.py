"""What of the board is in ClickHouse, and how it gets there.

snapshot    one run as the tables have it
publisher   what the tables are told of runs
passes      what of the board is not there yet
commits     the board's commits
months      sums of months
sweep       rows that no run names
"""
