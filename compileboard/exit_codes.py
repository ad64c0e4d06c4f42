"""Exit codes of both command lines, see docs/exit-codes.md."""

DONE = 0
FAILED = 1  # it was done, and the answer is no, or a part of it failed
REFUSED = 2  # nothing was done: wrong usage, or what was named is not there or cannot be used
EMPTY = 3  # `report`: no suite has a run in these days; `bench`: every model was skipped
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # `run` alone: its program, as a shell says it
INTERRUPTED, UNREAD = 130, 141  # by Ctrl-C; nobody reads the output any more
