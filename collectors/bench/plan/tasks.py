"""The tasks of a bench run: every model with every experiment, and the reasons for skipped ones."""

from __future__ import annotations

import hashlib
import json
import pickle
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.experiments import MODES, find, settings_for
from compileboard.collectors.bench.plan.model_facts import facts_for
from compileboard.collectors.bench.plan.models import UNSET, ModelRef
from compileboard.collectors.bench.plan.settings import DIGEST, BenchSettings
from compileboard.collectors.bench.suites import find_suite

TASK = "task.pickle"


@dataclass(frozen=True)
class Task:
    """One experiment of one model."""

    experiment: str
    ref: ModelRef
    asked: BenchSettings  # The command's settings with the model's own batch size.
    number: int = 0
    left_out: str | None = None

    @cached_property
    def settings(self) -> BenchSettings:
        return settings_for(self.experiment, self.asked)

    @property
    def name(self) -> str:
        return f"{self.ref.suite}/{self.ref.name}/{self.experiment}"

    @property
    def has_own_caches(self) -> bool:
        return self.settings.begins_cold or self.experiment not in MODES

    def change(self, **settings: Any) -> Task:
        return replace(self, asked=replace(self.asked, **settings))

    def write(self, folder: Path) -> None:
        (folder / TASK).write_bytes(pickle.dumps(self))


def read_task(folder: Path) -> Task:
    task: Task = pickle.loads((folder / TASK).read_bytes())  # noqa: S301  our own, of this run
    return task


def make_plan(
    models: Sequence[ModelRef],
    experiments: Iterable[str],
    settings: BenchSettings,
    *,
    no_skip: bool,
    batch_sizes: Mapping[str, int],
) -> list[Task]:
    plan = []
    pairs = [(ref, experiment) for ref in models for experiment in experiments]
    for number, (ref, experiment) in enumerate(pairs, start=1):
        left_out = None if no_skip else _find_skip_reason(ref, experiment, settings)
        own_size = batch_sizes.get(ref.name)
        if own_size == UNSET:
            left_out = "--batch-size-file leaves its batch size unset: -1"
        task = Task(experiment, _set_experiment_size(ref, experiment), settings, number, left_out)
        plan.append(task if own_size in (None, UNSET) else task.change(batch_size=own_size))
    return plan


def _set_experiment_size(ref: ModelRef, experiment: str) -> ModelRef:
    size = None if ":" in ref.only else find_suite(ref.suite).accuracy_batch_size
    return ref if experiment != "accuracy" or size is None else replace(ref, batch_size=size)


def _find_skip_reason(ref: ModelRef, experiment: str, settings: BenchSettings) -> str | None:
    if settings.is_training and not ref.trains:
        return "it has no training step"
    facts = facts_for(ref.suite, ref.name)
    return facts.reason(
        "skip",
        mode=settings.mode,
        device=settings.device,
        dtype=settings.dtype,
        backend=settings.backend,
        freezing=settings.freezing,
    )


def plan_hash(
    models: Sequence[ModelRef],
    experiments: Iterable[str],
    settings: BenchSettings,
    batch_sizes: Mapping[str, int] | None = None,
) -> str:
    body: dict[str, Any] = {
        "models": [asdict(ref) for ref in models],
        "experiments": list(experiments),
        "settings": settings.identity(),
    }
    if batch_sizes:
        body["batch_sizes"] = dict(batch_sizes)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def repeat_command(task: Task, program: str) -> str:
    experiment = find(task.experiment)
    words = [*([] if experiment.setting else [experiment.flag]), *task.asked.list_arguments()]
    if ":" not in task.ref.only:
        words += ["--suite", task.ref.suite]
    words += ["--only", task.ref.only]
    variables = [pair for pair in task.asked.environment if DIGEST not in pair]
    prefix = ["env", *map(shlex.quote, variables)] if variables else []
    return " ".join([*prefix, program, *map(shlex.quote, words)])
