"""Name the first cause of programs with models of libraries, and compare it with what is right.

    python -m benchmarks.fixes.models [NAME ...]

Needs transformers, accelerate, timm and torchvision; the weights are random. Of each program was
written down what is right to say, the user's line that it must be said of (or none, where nothing
is to be changed), the words of which one must be in it, and a word that must not.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

from benchmarks.common import Row, print_table
from benchmarks.fixes.recorded import Program, Recording, list_programs
from compileboard.collectors.fixes.causes import Cause

FOLDER = Path(__file__).parent
LIBRARIES = ("timm", "torchvision", "transformers.modeling_utils", "transformers.trainer")
HEADINGS = ("program", "breaks, eager, recompiles", "first line, its place", "own file", "right")


def find_place(program: Program, cause: Cause) -> tuple[str, str | None]:
    """Return the place that is named, and the line that is there where the file is the user's."""
    place = cause.called_at or f"{cause.file}:{cause.line}"
    match = re.match(rf"{program.name}\.py:(\d+)", place)
    return place, program.text.splitlines()[int(match[1]) - 1].strip() if match else None


def judge(program: Program, recording: Recording) -> Row:
    counts = recording.counts
    seen = f"{counts.graph_break_count}, {counts.skipped_frame_count}, {counts.recompile_count}"
    expected = program.facts["Place"]
    cause = next(iter(recording.causes), None)  # what is as it should be stands last
    if cause is None or (cause.is_expected and expected == "none"):
        return Row(program.name, seen, "nothing to fix", "", "yes" if expected == "none" else "no")
    fix = cause.fixes[0].title if cause.fixes else "no fix"
    place, line = find_place(program, cause)
    said = f"{cause.title}. {fix}"
    is_right = (
        line is not None
        and expected in line
        and any(word in said for word in program.facts["Names"].split(" | "))
        and program.facts.get("Never", said + ".") not in said
    )
    return Row(
        program.name,
        seen,
        f"{said} ({place})",
        "yes" if line is not None else "no",
        "yes" if is_right else f"no: {program.facts['Right']}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="Programs. Default: all.")
    for name in LIBRARIES:
        importlib.import_module(name)  # once, before the programs are forked
    rows = []
    for program in list_programs(FOLDER, parser.parse_args().names):
        rows.append(judge(program, Recording.make(program.name, program.text)))
        print(f"{program.name}: {rows[-1].reach}", file=sys.stderr)
    count = sum(row.reach == "yes" for row in rows)
    note = f"{count} of {len(rows)} first lines are right."
    print_table("The first line on programs with models", rows, note, headings=HEADINGS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
