"""Read CSVs as upstream's checkers do: short rows and pandas' NA words are empty cells."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from compileboard.app.checks.model import CannotCompare, RuleInput, Side
from compileboard.app.checks.rules.counts import metric_margin
from compileboard.start import PACKAGE

# pandas.read_csv takes these for NaN.
_EMPTY = frozenset(
    [
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
        "",
    ]
)
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")


def is_file(text: str) -> bool:
    """Return whether a text is the path of a CSV rather than something in the database; a
    baseline's name may have slashes.
    """
    if text.startswith("baseline:"):
        return False
    return text.lower().endswith(".csv") or text.startswith((os.sep, f".{os.sep}", f"..{os.sep}"))


def read_table(path: str) -> Side:
    """Read an upstream CSV, with or without a header. Raises CannotCompare if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except IsADirectoryError:
        raise CannotCompare(
            f"{path} is a folder; give one CSV, or import the folder and name its run"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotCompare(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; expected a CSV"
        ) from None
    lines = list(_read_lines(path, text))
    if not lines:
        raise CannotCompare(
            f"{path} is empty; expected a CSV with the columns name and accuracy, speedup, …"
        )
    _line, first = lines[0]
    if "name" in first:
        return Side(path, tuple(_read_row(first, cells) for _number, cells in lines[1:]))
    if len(first) in (3, 4) and first[2].strip().lstrip("-").isdigit():
        return Side(path, tuple(_read_counts(path, lines)))
    raise CannotCompare(
        f"{path}:{_line}: the heading is {','.join(first)[:80]!r}; expected a column `name`, "
        "or pr_time_benchmarks' "
        "rows of benchmark,metric,count[,margin]"
    )


def _read_lines(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(keepends=True))
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) and len(cells) < 2:
                continue
            if cells[0].startswith(_CONFLICT):
                raise CannotCompare(
                    f"{path}:{reader.line_num}: a conflict of a merge; resolve it first"
                )
            yield reader.line_num, cells
    except csv.Error as error:
        raise CannotCompare(f"{path}:{reader.line_num}: {error}; expected a CSV") from None


def _read_row(columns: list[str], cells: list[str]) -> RuleInput:
    padded = [*cells, *[""] * (len(columns) - len(cells))]
    cells_by_column = {
        column: math.nan if cell in _EMPTY else cell for column, cell in zip(columns, padded)
    }
    name = cells_by_column.pop("name")
    return RuleInput(name if isinstance(name, str) else "", cells_by_column)


def _read_counts(path: str, lines: list[tuple[int, list[str]]]) -> Iterator[RuleInput]:
    counts_by_name: dict[str, dict[str, object]] = {}
    for line, cells in lines:
        try:
            name, metric, count = cells[0].strip(), cells[1].strip(), int(cells[2])
            margin = float(cells[3]) if len(cells) > 3 else None
        except (ValueError, IndexError):
            line_text = ",".join(cells)[:80]
            raise CannotCompare(
                f"{path}:{line}: {line_text!r}; expected benchmark,metric,count[,margin]"
            ) from None
        counts = counts_by_name.setdefault(name, {})
        if metric in counts:
            raise CannotCompare(
                f"{path}:{line}: {name},{metric} appears twice; remove one of the lines"
            )
        counts[metric] = count
        counts[metric_margin(metric)] = margin
    return (RuleInput(name, counts) for name, counts in counts_by_name.items())


FILE = Path(PACKAGE) / "collectors" / "bench" / "plan" / "model_facts.json"


@cache
def list_flaky() -> frozenset[str]:
    try:
        suites = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        model
        for models in suites.values()
        for model, facts in models.items()
        if any(fact["fact"] == "flaky" and not fact.get("when") for fact in facts)
    )
