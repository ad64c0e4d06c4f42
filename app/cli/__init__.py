import compileboard.command_line  # noqa: F401  first: it says in one sentence that click is not installed
