"""Every reading SQL statement: functions list_, get_ and count_ that return frozen dataclasses."""
