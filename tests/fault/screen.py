"""Render terminal output on a small screen: enough of a VT100 to see what is where."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b([78DM])|(.)", re.DOTALL)


class Screen:
    """Rows of text, a cursor and a scroll region. An escape sequence it does not know is an
    error.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.lines = [[" "] * columns for _ in range(rows)]
        self.row = self.column = self.top = 0
        self.bottom = rows - 1
        self.saved = (0, 0)
        self.region_count = 0  # how often a scroll region was set

    def feed(self, text: str) -> None:
        for numbers, final, single, character in _TOKEN.findall(text):
            if final:
                self._control(final, [int(n) for n in numbers.split(";") if n.isdigit()])
            elif single:
                self._escape(single)
            else:
                self._put(character)

    def text(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._down()
        elif character >= " ":
            if self.column == self.columns:
                self.column = 0
                self._down()
            self.lines[self.row][self.column] = character
            self.column += 1

    def _down(self) -> None:
        if self.row == self.bottom:
            del self.lines[self.top]
            self.lines.insert(self.bottom, [" "] * self.columns)
        elif self.row < self.rows - 1:
            self.row += 1

    def _escape(self, single: str) -> None:
        if single == "7":
            self.saved = (self.row, self.column)
        elif single == "8":
            self.row, self.column = self.saved
        elif single == "D":
            self._down()

    def _control(self, final: str, numbers: list[int]) -> None:
        if final == "r":
            self.top, self.bottom = (
                (numbers[0] - 1, numbers[1] - 1) if numbers else (0, self.rows - 1)
            )
            self.row = self.column = 0
            self.region_count += bool(numbers)
        elif final == "H":
            row, column = numbers or [1, 1]
            self.row, self.column = min(row, self.rows) - 1, column - 1
        elif final == "K":
            start = 0 if numbers == [2] else self.column
            self.lines[self.row][start:] = [" "] * (self.columns - start)
        elif final == "A":
            self.row = max(self.row - (numbers or [1])[0], self.top)
        else:
            assert final == "m", final
