"""Minify a failing graph with torch's minifier, each question in its own process.

torch's minifier truncates the graph and replaces nodes by inputs while it still fails. Added here:
the same failure is required, answers are kept on disk (half of all questions repeat, and an
interrupted search continues), intermediates are taken up to the operation that crashes, and inputs
that the graph writes to are preserved. Runs in the driver.
"""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch._functorch.fx_minifier as fx_minifier

from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.judging import COMPILED, EAGER, Judge, judge
from compileboard.collectors.repro.minify.findings import (
    MINIFIED,
    NOT_FINISHED,
    NOT_REPRODUCED,
    OTHER_FAILURE,
    Minification,
    QueryLog,
    Question,
    Reduction,
)
from compileboard.collectors.repro.minify.smallest import (
    annotate,
    call_nodes,
    count_nodes,
    graph_key,
    isolate_node,
    operation_name,
    placeholders,
)
from compileboard.collectors.repro.repro import Failure, find_operation
from compileboard.collectors.repro.trials import OK, RAISED, SIGNAL, TIMED_OUT, Outcome, TrialLimits

MOST_GUESSES = 3
# What stands in a graph without computing anything.
PLUMBING = ("getitem", "alias", "detach", "_to_copy")
# Settings of inductor under which no two operations become one kernel.
WITHOUT_FUSION = {
    "max_fusion_size": 1,
    "realize_opcount_threshold": -1,
    "epilogue_fusion": False,
    "prologue_fusion": False,
}


class TrialRunner(Protocol):
    limits: TrialLimits

    def run(
        self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
    ) -> Outcome: ...


@dataclass(frozen=True)
class SmallestGraph:
    module: Any
    inputs: list[Any]
    failure: Failure
    answer: Minification


_NO_TIME_LEFT = "the time that was given is spent"


class _Stopped(BaseException):
    pass


_OF_KIND = {
    "compile": (failure.RAISED,),
    "runtime": (failure.RAISED,),
    "accuracy": failure.WRONG_ANSWERS,
    "crash": (failure.SIGNAL,),
}


def _matches(expected: Failure, first: Failure) -> bool:
    if (
        first.status in failure.WRONG_ANSWERS
    ):  # where values were not kept, NaN may come as a wrong number
        return expected.status in failure.WRONG_ANSWERS
    if first.status == failure.SIGNAL and expected.signal is None:
        return expected.status == failure.SIGNAL
    return expected.is_same(first)


def minify(
    module: Any,
    inputs: Sequence[Any],
    how: Judge,
    trials: TrialRunner,
    *,
    expected: Failure | None = None,
    log: QueryLog | None = None,
    report: Callable[[Question], None] | None = None,
    max_seconds: float | None = None,
    operation: str | None = None,
    suspect: Callable[[Any, Sequence[Any]], Sequence[str]] | None = None,
    keep: Callable[[Any, Sequence[Any]], None] = lambda module, inputs: None,
    load_compiler: Callable[[], None] = lambda: None,
) -> SmallestGraph:
    """Reduce a graph to the fewest nodes that fail in the same way.

    `expected` is the captured failure and `operation` the one it names, `suspect` returns nodes to
    try first, `keep` gets each smaller graph, `load_compiler` runs before a trial that compiles.
    """
    search = _Search(module, list(inputs), how, trials, log or QueryLog(None), report, max_seconds)
    search.suspect, search.keep, search.load_compiler = suspect, keep, load_compiler
    return search.run(expected, operation)


def failure_of(outcome: Outcome, expected: Failure) -> Failure:
    if outcome.status == OK:
        return Failure(**outcome.value["failure"])
    chain = [failure.raised(*entry) for entry in outcome.errors]
    same = next((entry for entry in chain if entry.is_same(expected)), None)
    if same is not None or outcome.status == RAISED:
        return same or chain[0]
    if outcome.status == SIGNAL:
        return Failure(failure.SIGNAL, signal=outcome.signal)
    return Failure(failure.TIMED_OUT if outcome.status == TIMED_OUT else failure.OUT_OF_MEMORY)


class _Search:
    def __init__(
        self,
        module: Any,
        inputs: list[Any],
        how: Judge,
        trials: TrialRunner,
        log: QueryLog,
        report: Callable[[Question], None] | None,
        max_seconds: float | None,
    ) -> None:
        self.suspect: Callable[[Any, Sequence[Any]], Sequence[str]] | None = None
        self.keep: Callable[[Any, Sequence[Any]], None] = lambda module, inputs: None
        self.load_compiler: Callable[[], None] = lambda: None
        self._start = time.monotonic()
        self._how, self._trials, self._log, self._report = how, trials, log, report
        self._deadline = None if max_seconds is None else self._start + max_seconds
        self._target = Failure(failure.PASSED)
        self._nodes_before = len(call_nodes(module.graph))
        self._best: tuple[Any, list[Any]] = (module, inputs)
        self._call_names = {node.name for node in call_nodes(module.graph)}
        self._asked: set[str] = set()
        self._history: list[Reduction] = []
        self._counts = {"tried": 0, "remembered": 0, "limited": 0}
        self._query = 0

    def run(self, expected: Failure | None, operation: str | None) -> SmallestGraph:
        module, inputs = self._best
        status, why = MINIFIED, None
        self._target = expected or self._target
        try:
            first = self._ask_first(module, inputs, expected)
            if not first.fails:
                return self._finish(NOT_REPRODUCED, first, f"here the graph {first.describe()}")
            if first.status not in _OF_KIND[self._how.kind] or (
                expected is not None and not _matches(expected, first)
            ):
                expected = expected or Failure(_OF_KIND[self._how.kind][0])
                return self._finish(
                    OTHER_FAILURE,
                    first,
                    f"captured: {expected.describe()}; here: {first.describe()}",
                )
            self._target = first
            self._search(module, inputs, operation or find_operation(first.message))
        except (_Stopped, KeyboardInterrupt) as error:
            status, why = NOT_FINISHED, str(error) or "interrupted"
        return self._finish(status, self._target, why)

    def _ask_first(self, module: Any, inputs: list[Any], expected: Failure | None) -> Failure:
        if self._how.kind in ("runtime", "crash"):
            eager = self._how.in_eager()
            first = self._ask_anew(module, inputs, eager)
            if first.status in _OF_KIND[self._how.kind] and (
                expected is None or _matches(expected, first)
            ):
                self._how = eager
                return first
        return self._ask_anew(module, inputs, self._how)

    def _ask_anew(self, module: Any, inputs: list[Any], how: Judge) -> Failure:
        before = self._log.find(graph_key(module, inputs, how))
        answer = self._ask(module, inputs, how, is_new=True)
        if before is not None and before.identity != answer.identity:
            self._log.forget()
        return answer

    def _search(self, module: Any, inputs: list[Any], operation: str | None) -> None:
        annotate(module, inputs, self._how.level, self._count_harmless(module, inputs))
        start_module, start_inputs = self._guess(module, inputs, operation) or (module, inputs)
        # RuntimeError: "final graph is not failing": the best so far is what counts
        with _quiet(), _annotated_already(), contextlib.suppress(RuntimeError):
            fx_minifier.minifier(
                start_module,
                start_inputs,
                module_fails=self._fails,
                dump_state=lambda module, inputs: None,
                skip_sanity=True,
            )

    def _count_harmless(self, module: Any, inputs: list[Any]) -> int | None:
        with tempfile.NamedTemporaryFile(prefix="nodes-") as file:
            outcome = self._trials.run(count_nodes, module, inputs, file.name)
            is_dead = any(
                failure.raised(*entry).error_type == failure.DEVICE_ERROR
                for entry in outcome.errors
            )
            if outcome.status in (OK, RAISED) and not is_dead:  # an error ends `annotate` by itself
                return None
            return int.from_bytes(Path(file.name).read_bytes()[:8], "little")

    def _guess(
        self, module: Any, inputs: list[Any], operation: str | None
    ) -> tuple[Any, list[Any]] | None:
        """Try the suspected operation alone, which saves most of the search if it fails."""
        for node in self._list_suspects(module, inputs, operation)[:MOST_GUESSES]:
            alone = isolate_node(module, inputs, node)
            if alone is not None and self._fails(*alone):
                return alone
        return None

    def _list_suspects(self, module: Any, inputs: list[Any], operation: str | None) -> list[Any]:
        nodes = call_nodes(module.graph)
        if operation is not None:
            return [
                node
                for node in nodes
                if operation_name(node) in (operation, operation.removeprefix("torch.ops."))
            ]
        names = self.suspect(module, inputs) if self.suspect is not None else ()
        return [node for name in names for node in nodes if node.name == name]

    def _fails(self, module: Any, inputs: Sequence[Any]) -> bool:
        if not call_nodes(module.graph):
            return False  # nothing is left to fail: no compile for it
        values = list(inputs)
        self._rename_inputs(module)
        if not self._target.is_same(self._ask(module, values, self._how)):
            return False
        count, fewest = len(call_nodes(module.graph)), len(call_nodes(self._best[0].graph))
        if count <= fewest:
            self._best = (torch.fx.GraphModule(module, copy.deepcopy(module.graph)), values)
        if count < fewest:
            self._history.append(
                Reduction(round(time.monotonic() - self._start, 3), count, self._query)
            )
            self.keep(*self._best)
        return True

    def _rename_inputs(self, module: Any) -> None:
        """Name an input that replaced an operation after its value, since a compiler may use
        names.
        """
        for node in placeholders(module.graph):
            if node.target in self._call_names:
                node.target = f"{node.target}_value"
                node._rename(node.target)
        module.recompile()

    def _ask(self, module: Any, inputs: list[Any], how: Judge, is_new: bool = False) -> Failure:
        if self._is_late():
            raise _Stopped(_NO_TIME_LEFT)
        key = graph_key(module, inputs, how)
        answer, is_remembered = None if is_new else self._log.find(key), True
        if answer is None and how.mode == COMPILED:
            self.load_compiler()
        start = time.monotonic()
        if answer is None:
            outcome = self._trials.run(judge, module, inputs, how, limits=self._limits())
            answer, is_remembered = failure_of(outcome, self._target), False
            if answer.status == failure.TIMED_OUT and self._is_late():
                raise _Stopped(_NO_TIME_LEFT)
            self._log.add(key, answer, len(call_nodes(module.graph)), time.monotonic() - start)
            self._counts["tried"] += 1
            self._counts["limited"] += answer.status in (failure.TIMED_OUT, failure.OUT_OF_MEMORY)
        else:
            self._counts["remembered"] += 1
        self._tell(
            module,
            answer,
            is_remembered and key in self._asked,
            is_remembered,
            time.monotonic() - start,
        )
        self._asked.add(key)
        return answer

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _limits(self) -> TrialLimits:
        limits = self._trials.limits
        if self._deadline is None:
            return limits
        return replace(
            limits, seconds=max(1.0, min(limits.seconds, self._deadline - time.monotonic()))
        )

    def _tell(
        self, module: Any, answer: Failure, is_repeat: bool, is_remembered: bool, seconds: float
    ) -> None:
        if self._report is None or is_repeat:
            return
        self._query += 1
        fails = self._target.is_same(answer) or (
            self._target.status == failure.PASSED and answer.fails
        )
        count = len(call_nodes(module.graph))
        fewest = min(len(call_nodes(self._best[0].graph)), count if fails else self._nodes_before)
        self._report(
            Question(self._query, count, fewest, fails, answer.describe(), seconds, is_remembered)
        )

    def _finish(self, status: str, answer: Failure, why: str | None) -> SmallestGraph:
        module, inputs = self._best
        operations = tuple(operation_name(node) for node in call_nodes(module.graph))
        computing = [name for name in operations if not any(part in name for part in PLUMBING)]
        is_together, is_fusion = status == MINIFIED and len(computing) > 1, False
        if is_together:
            with contextlib.suppress(_Stopped):
                is_fusion = self._passes_without_fusion(module, inputs)
        reduced = Minification(
            status,
            self._nodes_before,
            len(operations),
            operations,
            level=self._how.level,
            failure=answer.describe(),
            why=why,
            fails_in_eager=self._how.mode == EAGER,
            is_together=is_together,
            is_fusion=is_fusion,
            tried_count=self._counts["tried"],
            remembered_count=self._counts["remembered"],
            limited_count=self._counts["limited"],
            seconds=round(time.monotonic() - self._start, 3),
            history=tuple(self._history),
        )
        return SmallestGraph(module, inputs, answer, reduced)

    def _passes_without_fusion(self, module: Any, inputs: list[Any]) -> bool:
        if self._how.mode != COMPILED or self._how.backend != "inductor":
            return False
        known = {
            name: value
            for name, value in WITHOUT_FUSION.items()
            if hasattr(torch._inductor.config, name)
        }
        return (
            self._ask(module, inputs, replace(self._how, settings=known)).status == failure.PASSED
        )


@contextlib.contextmanager
def _annotated_already() -> Iterator[None]:
    """Keep torch's minifier from running the graph in this process, on inputs that it writes to."""

    class Nothing:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def propagate(self, *_: Any) -> None: ...

    original = fx_minifier.ConcreteProp
    fx_minifier.ConcreteProp = Nothing
    try:
        yield
    finally:
        fx_minifier.ConcreteProp = original


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
