"""Where the dashboard's data is: in one SQLite file, or in a folder beside ClickHouse.

    address     what `--db` names
    store       what pages and commands open: the board, the engine across runs, a run's own file
    client      connections to ClickHouse, over HTTP or in this process (chdb)
    clickhouse  the engine over it, for app.queries
    tables      its tables (tables.sql), replicated and distributed ones too
    publication what of the board is in them, and how it gets there
    sealing     a run's detail, from the board into one file and back

In a folder the board (`board.db`) is an ordinary database: recorders, pushes and imports write into it as ever. What
crosses runs is published from it to ClickHouse. A run that ended is sealed: its detail goes into one SQLite file in
`runs/`, its roll-ups stay in ClickHouse alone.
"""
