"""The processor's vector instructions, detected once per run of `bench`.

For each, torch compiles and loads a program, cached in a folder that is new for each task; on a CPU
this takes longer than a small model.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.experiments import TIMED
from compileboard.collectors.bench.plan.tasks import Task

VARIABLE = "COMPILEBOARD_BENCH_PROCESSOR"  # names the file of a run's answers


def ask_once(task: Task) -> None:
    settings, path = task.settings, os.environ.get(VARIABLE)
    compiles = settings.is_inductor or settings.backend == "aot_precompile"
    if path is None or not compiles or task.experiment in TIMED:
        return
    try:
        from torch._inductor import cpu_vec_isa  # from torch 2.5 on
    except ImportError:
        return
    keep_answers(cpu_vec_isa.VecISA, Path(path))
    if settings.device == "cpu" or settings.backend == "aot_inductor":
        cpu_vec_isa.valid_vec_isa_list()


def keep_answers(instructions: Any, path: Path) -> None:
    ask = instructions.check_build
    try:
        answers: dict[str, bool] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        answers = {}

    def check_build(self: Any, code: str) -> bool:
        question = hashlib.sha256(f"{self._arch_flags}\n{code}".encode()).hexdigest()
        if question not in answers:
            answers[question] = bool(ask(self, code))
            part = path.with_name(f"{path.name}.{os.getpid()}")
            part.write_text(json.dumps(answers), encoding="utf-8")
            part.replace(path)
        return answers[question]

    instructions.check_build = check_build
