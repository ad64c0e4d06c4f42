"""Storage of the dashboard: one SQLite file, or a folder beside ClickHouse.

In a folder the board (`board.db`) is an ordinary database. Data across runs is published from it to
ClickHouse. A run that ended is sealed: its detail moves into one SQLite file in `runs/`, its
roll-ups stay in ClickHouse alone.
"""
