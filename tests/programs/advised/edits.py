"""Programs with other lines."""

from __future__ import annotations


def edit_program(program: str, *changes: tuple[str, str]) -> str:
    """Replace each text, which occurs once, by another.

    Raises ValueError if one is missing or there twice.
    """
    for old, new in changes:
        if program.count(old) != 1:
            raise ValueError(
                f"{old!r} is {program.count(old)} times in the program, once is expected"
            )
        program = program.replace(old, new)
    return program


def with_settings(text: str, *statements: str) -> str:
    """Return a program that runs statements right after its imports."""
    lines = text.splitlines()
    last_import = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    return "\n".join([*lines[: last_import + 1], "", *statements, *lines[last_import + 1 :]]) + "\n"
