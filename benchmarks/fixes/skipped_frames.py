"""Compare which function is said to run eagerly with the one that did.

    python -m benchmarks.fixes.skipped_frames [PROGRAM …]

Each program of tests/programs/skipped has a graph break that torch cannot resume. It is recorded,
and run again under a profiler: what ran eagerly is a function whose byte code is not Dynamo's. Its
comments name the line of the break and of the block around it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import runpy
import sys
import warnings
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch._dynamo.convert_frame import register_bytecode_hook

from benchmarks.common import Row, print_table
from compileboard.collectors.fixes.causes import Cause
from tests.integration.fixes.recording import record_program
from tests.integration.fixes.running import Outcome, patched_compile, restored_settings
from tests.tools.observed import PROGRAMS

FOLDER = PROGRAMS / "skipped"
HEADINGS = ("program", "ran eagerly", "named first", "in", "break at")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")
_MODULE_CALLS = "torch/nn/modules/module.py"


class Function(NamedTuple):
    file: str
    name: str


def measure_eager(path: Path) -> list[Function]:
    """Run a program; list what runs eagerly in a later call, outermost first: functions with a
    tensor, as they were written.
    """
    made: dict[int, CodeType] = {}
    eager: dict[Function, None] = {}
    called: list[FrameType] = []

    def keep(_old: CodeType, new: CodeType) -> None:
        made[id(new)] = new

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.append(frame)
        elif event == "return" and frame in called:
            holds = any(isinstance(value, torch.Tensor) for value in frame.f_locals.values())
            if holds and id(frame.f_code) not in made:
                kept.add(called.index(frame))

    kept: set[int] = set()
    with _quiet() as stack:
        stack.callback(register_bytecode_hook(keep).remove)
        call = runpy.run_path(str(path), run_name="__main__")["call"]
        sys.setprofile(profile)
        try:
            call()
        finally:
            sys.setprofile(None)
    for position in sorted(kept):
        code = called[position].f_code
        if _is_looked_at(code.co_filename):
            name = getattr(code, "co_qualname", code.co_name)
            eager[Function(code.co_filename, _RESUMED.sub(r"\1", name))] = None
    return list(eager)


def _quiet() -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.enter_context(restored_settings())
    stack.enter_context(patched_compile(Outcome(), "compiled"))
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    return stack


def _is_looked_at(file: str) -> bool:
    """Leave out graphs, how torch calls a module, and what it does inside."""
    if file.startswith("<"):
        return False
    is_torch = "/site-packages/torch/" in file
    return not is_torch or ("/torch/nn/modules/" in file and not file.endswith(_MODULE_CALLS))


def list_marked(path: Path, mark: str) -> list[str]:
    """List the places that a program's comments name, or a package's that it imports."""
    files = (
        [path, *FOLDER.glob("site-packages/*/*.py")]
        if "site-packages" in path.read_text()
        else [path]
    )
    return [
        f"{file.parent.name}/{file.name}:{number}" if file != path else f"{file.name}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if "# the" in line and mark in line.split("# the", 1)[1]
    ]


def judge(path: Path, cause: Cause | None) -> tuple[Row, bool]:
    truth = measure_eager(path)
    outermost = truth[0] if truth else None
    first = cause.eager[0] if cause and cause.eager else None
    named = first is not None and outermost is not None and _is_same(first, outermost)
    others = (
        all(any(_is_same(part, one) for one in truth) for part in cause.eager) if cause else False
    )
    place = f"{cause.file}:{cause.line}" if cause else ""
    block = f"{first.file}:{first.block_line}" if first and first.block_line else ""
    is_at = place.removeprefix("site-packages/") in list_marked(path, "break")
    is_in = block.removeprefix("site-packages/") in list_marked(path, "block") if block else None
    words = {True: "right", False: "WRONG", None: "not named"}
    row = Row(
        path.stem,
        ", ".join(function.name for function in truth),
        f"{first.function if first else None}: {words[named and others]}",
        f"{first.block if first else None}: {words[is_in]}",
        f"{place}: {words[is_at]}",
    )
    return row, named and others and is_at


def _is_same(part: Any, function: Function) -> bool:
    """Compare with what is named; of torch's own modules the bare name is known."""
    name = function.name if not part.file.startswith("torch/") else function.name.rpartition(".")[2]
    return (
        function.file.endswith("/" + part.file.removeprefix("site-packages/"))
        and name == part.function
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="names; all by default")
    names = parser.parse_args().programs
    paths = [FOLDER / f"{name}.py" for name in names] or sorted(FOLDER.glob("*.py"))
    rows = []
    right = 0
    for path in paths:
        with _quiet():
            causes = record_program(path)
        row, is_right = judge(path, causes[0] if causes else None)
        rows.append(row)
        right += is_right
    note = f"{right} of {len(rows)} name the outermost function that ran eagerly, and no other."
    print_table("What runs eagerly", rows, note, headings=HEADINGS)
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
