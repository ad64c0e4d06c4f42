"""The tasks of a bench run: every model with every experiment, and the reasons for skipped ones."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.bench.experiments import MODES, find, settings_for
from compileboard.collectors.bench.plan.model_facts import facts_for
from compileboard.collectors.bench.plan.models import UNSET, ModelRef
from compileboard.collectors.bench.plan.settings import DIGEST, BenchSettings, load_settings
from compileboard.collectors.bench.suites import find_suite

TASK = "task.json"


@dataclass(frozen=True)
class PlannedTask:
    number: int
    ref: ModelRef
    experiment: str
    left_out: str | None = None
    batch_size: int | None = None  # of this model alone, by --batch-size-file

    def settings_of(self, settings: BenchSettings) -> BenchSettings:
        own = settings if self.batch_size is None else replace(settings, batch_size=self.batch_size)
        return settings_for(self.experiment, own)

    @property
    def name(self) -> str:
        return f"{self.ref.suite}/{self.ref.name}/{self.experiment}"


def make_plan(
    models: Sequence[ModelRef],
    experiments: Iterable[str],
    settings: BenchSettings,
    *,
    no_skip: bool,
    batch_sizes: Mapping[str, int] | None = None,
) -> list[PlannedTask]:
    names, sizes = tuple(experiments), batch_sizes or {}
    pairs = [(ref, experiment) for ref in models for experiment in names]
    return [
        PlannedTask(
            number,
            _sized_for(ref, experiment),
            experiment,
            _why_unset(sizes.get(ref.name))
            or (None if no_skip else _left_out(ref, experiment, settings)),
            None if sizes.get(ref.name) == UNSET else sizes.get(ref.name),
        )
        for number, (ref, experiment) in enumerate(pairs, start=1)
    ]


def _sized_for(ref: ModelRef, experiment: str) -> ModelRef:
    size = None if ":" in ref.only else find_suite(ref.suite).accuracy_batch_size
    return ref if experiment != "accuracy" or size is None else replace(ref, batch_size=size)


def _why_unset(batch_size: int | None) -> str | None:
    return "--batch-size-file leaves its batch size unset: -1" if batch_size == UNSET else None


def _left_out(ref: ModelRef, experiment: str, settings: BenchSettings) -> str | None:
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


def repeat_command(planned: PlannedTask, settings: BenchSettings, program: str) -> str:
    if planned.batch_size is not None:
        settings = replace(settings, batch_size=planned.batch_size)
    experiment = find(planned.experiment)
    words = [*([] if experiment.setting else [experiment.flag]), *settings.list_arguments()]
    if ":" not in planned.ref.only:
        words += ["--suite", planned.ref.suite]
    words += ["--only", planned.ref.only]
    variables = [pair for pair in settings.environment if DIGEST not in pair]
    prefix = ["env", *map(shlex.quote, variables)] if variables else []
    return " ".join([*prefix, program, *map(shlex.quote, words)])


@dataclass(frozen=True)
class Task:
    experiment: str
    ref: ModelRef
    settings: BenchSettings

    @property
    def has_own_caches(self) -> bool:
        return self.settings.begins_cold or self.experiment not in MODES

    def write(self, folder: Path) -> None:
        body = {
            "experiment": self.experiment,
            "ref": self.ref.__dict__,
            "settings": self.settings.dump(),
        }
        (folder / TASK).write_text(json.dumps(body), encoding="utf-8")


def read_task(folder: Path) -> Task:
    body = json.loads((folder / TASK).read_text(encoding="utf-8"))
    return Task(body["experiment"], ModelRef(**body["ref"]), load_settings(body["settings"]))
