"""Try a repro's graph, optionally edited or with other settings, in a trial process.

The trial loads the graph itself, because the driver must not touch a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.graph_loading import list_calls, load_graph
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.judging import Judge, clone_together, judge
from compileboard.collectors.repro.locate.surgery import (
    cut_after,
    expose,
    name_operation,
    survey_graph,
)
from compileboard.collectors.repro.repro import Failure, NotRunnable, Repro, captured_failure
from compileboard.collectors.repro.rerun import make_judge, read_failure
from compileboard.collectors.repro.trials import OK, Outcome
from compileboard.collectors.terminal.values import first_line


@dataclass(frozen=True)
class GraphEdit:
    cut: int | None = None  # number of calls
    exposed: tuple[str, ...] = ()  # nodes


WHOLE = GraphEdit()


def find_shortest_failing(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return the smallest number of first calls that fails, or None if the whole graph passes."""
    if not fails(count):
        return None
    passing, failing = 0, count
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if fails(middle):
            failing = middle
        else:
            passing = middle
    return failing


def find_hidden(names: Sequence[str], fails: Callable[[tuple[str, ...]], bool]) -> list[str]:
    """Return, in order, the nodes whose values must not be returned for the graph to fail.

    `fails` is called with the additional outputs. Without any of them the graph fails.
    """
    exposed: set[str] = set()
    size = len(names)
    while size:
        rest = [name for name in names if name not in exposed]
        for start in range(0, len(rest), size):
            part = rest[start : start + size]
            if fails(tuple(name for name in names if name in exposed or name in part)):
                exposed.update(part)
        size = size // 2 if size > 1 else 0
    return [name for name in names if name not in exposed]


@dataclass
class RepeatedTry:
    """Trials of one repro at one level. The first one, unedited, determines the failure to look
    for.
    """

    task: ReproTask
    how: Judge
    first: Failure | None = None
    count: int = 0
    limited_count: int = 0  # ended by a limit
    other_count: int = 0  # failed in another way

    def run(self, function: Callable[..., Any], *arguments: Any) -> Outcome:
        self.count += 1
        self.task.load_compiler(self.how.level)
        outcome = self.task.runner.run(
            function, self.task.repro, self.task.device, self.how, *arguments
        )
        self.task.progress({"text": f"{self.count} tries"})
        return outcome

    def attempt(
        self, edit: GraphEdit = WHOLE, settings: Mapping[str, Any] | None = None
    ) -> Failure:
        return self.read(self.run(try_edited, edit, settings or {}))

    def read(self, outcome: Outcome) -> Failure:
        result = read_failure(outcome, self.first or captured_failure(self.task.repro.manifest))
        self.limited_count += result.status in (failure.TIMED_OUT, failure.OUT_OF_MEMORY)
        if self.first is None:
            self.first = result
        elif result.fails and not self.is_same(result):
            self.other_count += 1
        return result

    def describe_others(self) -> tuple[str, ...]:
        counts = (
            (self.limited_count, "reached a limit"),
            (self.other_count, "failed in another way"),
        )
        return tuple(
            f"{count} of {self.count} tries {text} and count as passing"
            for count, text in counts
            if count
        )

    def fails(self, edit: GraphEdit) -> bool:
        return self.is_same(self.attempt(edit))

    @property
    def is_reproduced(self) -> bool:
        if self.first is None or not self.first.fails:
            return False
        return self.how.kind != "accuracy" or self.first.status in failure.WRONG_ANSWERS

    def is_same(self, result: Failure) -> bool:
        return self.first is not None and self.first.fails and result.is_like(self.first)


def list_judges(task: ReproTask) -> list[Judge]:
    """Return one judge per level: the requested level, or every level that the repro has."""
    manifest, level = task.repro.manifest, task.options.get("level")
    levels = [level or manifest.level]
    if level is None and manifest.level == "aot" and task.repro.dynamo_program is not None:
        levels.append("dynamo")
    is_strict = bool(task.options.get("strict"))
    return [make_judge(task.repro, level, manifest.kind, is_strict=is_strict) for level in levels]


def read_value(outcome: Outcome) -> Any:
    outcome.check()
    if outcome.status != OK:
        line = first_line(outcome.message, 300)
        raise NotRunnable(f"the graph could not be taken apart: {line}")
    return outcome.value


def try_edited(
    repro: Repro, device: str | None, how: Judge, edit: GraphEdit, settings: Mapping[str, Any]
) -> dict[str, Any]:
    module, inputs = load_graph(repro, how.level, device=device)
    if edit.cut is not None:
        module = cut_after(module, edit.cut, clone_together(inputs))
    if edit.exposed:
        module, _ = expose(module, edit.exposed, survey_graph(module, clone_together(inputs)))
    return judge(module, inputs, replace(how, settings=settings))


def list_operations(repro: Repro, device: str | None, how: Judge) -> list[tuple[str, str]]:
    module, _ = load_graph(repro, how.level, device=device)
    return [(node.name, name_operation(module, node)) for node in list_calls(module)]
