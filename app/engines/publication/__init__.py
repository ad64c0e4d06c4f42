"""Publication of the board's data in ClickHouse."""
