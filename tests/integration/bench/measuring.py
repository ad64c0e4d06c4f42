"""Experiments on real models, in one process: each is measured when a test asks for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools.observed import PROGRAMS, PYTHON, ROOT, SEARCHED, forking_environ

PROGRAM = PROGRAMS / "measuring.py"
DATA = ROOT / "tests" / "data" / "bench"
FINE, BREAKS, WRONG = (
    f"path:{DATA}/planted.py,model:{name}" for name in ("Fine", "Breaks", "WrongAnswer")
)
DYNAMIC = {"dynamic_batch_only": True}


class Measured:
    """Measure what is asked for; what was measured is not measured again."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process, self._errors = process, errors
        self._outcomes: dict[str, str] = {}

    def __call__(self, only: str, experiment: str, **changes: Any) -> Any:
        task = json.dumps((only, experiment, changes))
        if task not in self._outcomes:
            assert self._process.stdin and self._process.stdout
            print(task, file=self._process.stdin, flush=True)
            answers = (line for line in self._process.stdout if line.startswith("OUTCOME"))
            answer = next(answers, None)
            assert answer, self._errors.read_text()[-3000:]
            self._outcomes[task] = answer.removeprefix("OUTCOME")
        return json.loads(self._outcomes[task])


@contextmanager
def measuring(folder: Path) -> Iterator[Measured]:
    errors = folder / "stderr.txt"
    environment = {**forking_environ(), "PYTHONPATH": SEARCHED}
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [PYTHON, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=ROOT,
            env=environment,
        ) as process,
    ):
        yield Measured(process, errors)
