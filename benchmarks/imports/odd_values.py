"""Put 13 odd values into every field of every recorded record, import each, count the losses.

python -m benchmarks.imports.odd_values [LOG …] [--kinds NAME …] [--every N] [--cli N]
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import subprocess
import sys
import tarfile
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT, Row, clean_environment, print_table, scratch_folder
from tests.tools.odd_values import ODD_VALUES, TABLES, OddLogs, Record, read_records, surroundings
from tests.unit.decode.recorded_logs import LOGS, log_bytes

CAPTURES = ROOT / "tests" / "data" / "captures"
SPAN_PAIR = 1  # a phase that begins and never ends, or the reverse, is one row as the pair was


@dataclass
class Cost:
    """Count what the odd values in one kind of record cost."""

    field_count: int = 0
    value_count: int = 0
    most_lost: int = 0
    exit_count: int = 0
    traceback_count: int = 0
    examples: list[str] = field(default_factory=list)


def list_logs(paths: list[Path]) -> Iterator[list[Record]]:
    """Read the given logs; by default those of the tests and of the captures."""
    for path in paths:
        yield read_records(path.read_bytes())
    if paths:
        return
    for name in LOGS:
        yield read_records(log_bytes(name))
    for archive in sorted(CAPTURES.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.endswith(".log") and (file := tar.extractfile(member)):
                    yield read_records(file.read())


def choose(logs: Iterator[list[Record]]) -> dict[str, tuple[list[Record], int]]:
    """Choose of each kind the record with the most fields."""
    chosen: dict[str, tuple[int, list[Record], int]] = {}
    for records in logs:
        for position, record in enumerate(records):
            count = len(list(record.places()))
            is_eligible = record.name != "str" and not record.name.startswith("artifact:case_")
            if is_eligible and count > chosen.get(record.name, (0, [], 0))[0]:
                chosen[record.name] = (count, records, position)
    return {
        name: (records, position) for name, (_count, records, position) in sorted(chosen.items())
    }


def measure(odd_logs: OddLogs, records: list[Record], target: int, every: int) -> Cost:
    """Import a record with each odd value in each of its fields."""
    before, after = (
        b"".join(record.write() for record in part) for part in surroundings(records, target)
    )
    cost, record = Cost(), records[target]
    _done, whole = odd_logs.load(before, record.write(), after)
    for number, position in enumerate(record.places()):
        if number % every:
            continue
        cost.field_count += 1
        marked = record.marked(position)
        for name, odd in ODD_VALUES.items():
            cost.value_count += 1
            try:
                _done, loaded = odd_logs.load(before, marked.write(odd), after)
            except Exception:  # the command would end with 2, or with a traceback
                cost.exit_count += 1
                cost.traceback_count += 1
                cost.examples.append(
                    f"{position}: {name}: {traceback.format_exc(limit=-1).splitlines()[-1]}"
                )
                continue
            # The odd record's own place is not among them: one more is lost where others are.
            lost = {table: len(whole[table]) - len(loaded[table]) for table in TABLES}
            lost["spans"] -= SPAN_PAIR
            others = max(0, *lost.values())
            if others:
                cost.examples.append(f"{position}: {name}: {lost}")
            cost.most_lost = max(
                cost.most_lost, 1 + others if others else int(_is_gone(odd_logs, len(before)))
            )
    return cost


def _is_gone(odd_logs: OddLogs, offset: int) -> bool:
    """Return whether the odd record itself is in no table."""
    with closing(sqlite3.connect(odd_logs.database)) as connection:
        tables = [table for table in TABLES if table not in ("spans", "compilations")]
        sql = " union all ".join(
            f"select 1 from {table} where sequence = :offset" for table in tables
        )
        row = connection.execute(sql, {"offset": offset}).fetchone()
        spans = connection.execute("select count(*) from spans").fetchone()[0]
        return row is None and not spans


def through_the_command(
    folder: Path, chosen: dict[str, tuple[list[Record], int]], count: int
) -> Cost:
    """Run the import command itself over some of them, drawn."""
    rng, cost = random.Random(0), Cost()
    for number in range(count):
        records, target = chosen[rng.choice(sorted(chosen))]
        before, after = (
            b"".join(record.write() for record in part) for part in surroundings(records, target)
        )
        position = rng.choice(list(records[target].places()))
        odd = records[target].marked(position).write(ODD_VALUES[rng.choice(sorted(ODD_VALUES))])
        log = folder / f"{number}.log"
        log.write_bytes(before + odd + after)
        command = [
            sys.executable,
            "-m",
            "compileboard.collectors",
            "import",
            str(log),
            "--db",
            str(folder / f"{number}.db"),
        ]
        ended = subprocess.run(
            command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=False
        )
        cost.value_count += 1
        cost.exit_count += ended.returncode != 0
        cost.traceback_count += "Traceback" in ended.stderr
    return cost


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if a value cost more than its record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports.odd_values", description=__doc__
    )
    parser.add_argument("logs", nargs="*", type=Path, metavar="LOG")
    parser.add_argument("--kinds", nargs="*", help="kinds of records, by torch's names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth field alone")
    parser.add_argument(
        "--cli", type=int, default=26, metavar="N", help="how many go through the command itself"
    )
    arguments = parser.parse_args(argv)
    chosen = choose(list_logs(arguments.logs))
    if arguments.kinds:
        chosen = {name: chosen[name] for name in arguments.kinds}
    costs: dict[str, Cost] = {}
    with scratch_folder() as folder:
        odd_logs = OddLogs(folder)
        for name, (records, target) in chosen.items():
            costs[name] = measure(odd_logs, records, target, arguments.every)
        costs["(through the command)"] = through_the_command(folder, chosen, arguments.cli)
    total = Cost(
        *(
            sum(getattr(cost, name) for cost in costs.values())
            for name in ("field_count", "value_count")
        ),
        max(cost.most_lost for cost in costs.values()),
        *(
            sum(getattr(cost, name) for cost in costs.values())
            for name in ("exit_count", "traceback_count")
        ),
    )
    print_table(
        (
            f"Odd values: {len(chosen)} kinds of records × their fields × {len(ODD_VALUES)} "
            "values, imported"
        ),
        [
            Row(
                name,
                f"{cost.field_count} fields, {cost.value_count} imports",
                *map(str, (cost.most_lost, cost.exit_count, cost.traceback_count)),
            )
            for name, cost in [*costs.items(), ("all", total)]
        ],
        headings=("kind", "what", "records lost at most", "exits other than 0", "tracebacks"),
    )
    for name, cost in costs.items():
        for example in cost.examples[:3]:
            print(f"{name}: {example}")
    return int(total.most_lost > 1 or total.exit_count > 0)


if __name__ == "__main__":
    sys.exit(main())
