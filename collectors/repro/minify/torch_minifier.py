"""Minify a failing graph with torch's minifier, each question in a process of its own. Runs in the
driver.

torch's minifier truncates the graph and replaces nodes by inputs while it still fails. Added here
are: the same failure is required; answers are kept on disk (half of all questions repeat, and an
interrupted search continues); intermediates are recorded up to the operation that crashes; and
inputs that the graph modifies are preserved.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch._functorch.fx_minifier as fx_minifier

from compileboard.collectors.contract import repros
from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.findings import (
    MINIFIED,
    NOT_FINISHED,
    NOT_REPRODUCED,
    OTHER_FAILURE,
    Minification,
    Reduction,
)
from compileboard.collectors.repro.graph_loading import list_calls, list_placeholders
from compileboard.collectors.repro.judging import COMPILED, EAGER, NO_FUSION, Judge, judge
from compileboard.collectors.repro.locate.surgery import find_operation
from compileboard.collectors.repro.minify.smallest import (
    annotate,
    count_nodes,
    graph_key,
    isolate_node,
)
from compileboard.collectors.repro.repro import OUT_OF_MEMORY, TIMED_OUT, Failure
from compileboard.collectors.repro.rerun import read_failure
from compileboard.collectors.repro.trials import OK, ForkedRunner, TrialLimits


@dataclass(frozen=True)
class Question:
    query: int
    node_count: int  # call nodes of the tried graph
    fewest: int  # Number of nodes of the smallest graph known to fail.
    fails: bool
    outcome: str
    seconds: float  # Duration of this question.
    is_remembered: bool


class QueryLog:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._answers: dict[str, Failure] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                self._read_line(line)

    def _read_line(self, line: str) -> None:
        try:
            body = json.loads(line)
            answer = Failure(**body["failure"])
            if answer.status not in (TIMED_OUT, OUT_OF_MEMORY):  # the limit may differ now
                self._answers[body["key"]] = answer
        except (
            ValueError,
            TypeError,
            KeyError,
        ):  # a line cut off by a power failure
            return

    def find(self, key: str) -> Failure | None:
        return self._answers.get(key)

    def forget(self) -> None:
        self._answers.clear()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def add(self, key: str, answer: Failure) -> None:
        self._answers[key] = answer
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                # Start with a newline, because a lost process may have left a line open.
                file.write("\n" + json.dumps({"key": key, "failure": answer.to_json()}))


MAX_GUESSES = 3
# Nodes of a graph that compute nothing.
PLUMBING = ("getitem", "alias", "detach", "_to_copy")


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


@dataclass
class GraphSearch:
    """A search for the fewest nodes of a graph that fail in the same way."""

    module: Any
    inputs: list[Any]
    how: Judge
    runner: ForkedRunner
    expected: Failure | None = None  # captured with the repro
    operation: str | None = None  # named by the expected failure
    log: QueryLog = field(default_factory=lambda: QueryLog(None))
    report: Callable[[Question], None] = lambda question: None
    max_seconds: float = math.inf
    suspect: Callable[[Any, Sequence[Any]], Sequence[str]] = (
        lambda module, inputs: ()
    )  # Suspected nodes, tried first.
    keep: Callable[[Any, Sequence[Any]], None] = lambda module, inputs: (
        None
    )  # called with each smaller graph
    load_compiler: Callable[[], None] = lambda: None  # called before a trial that compiles

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        self._target = self.expected or Failure(failure.PASSED)
        self._nodes_before = len(list_calls(self.module))
        self._best: tuple[Any, list[Any]] = (self.module, self.inputs)
        self._call_names = {node.name for node in list_calls(self.module)}
        self._asked: set[str] = set()
        self._history: list[Reduction] = []
        self._counts = {"tried": 0, "remembered": 0, "limited": 0}
        self._query = 0

    def run(self) -> SmallestGraph:
        module, inputs, kinds = self.module, self.inputs, _OF_KIND[self.how.kind]
        status, why = MINIFIED, None
        try:
            first = self._ask_first(module, inputs)
            if not first.fails:
                return self._finish(NOT_REPRODUCED, first, f"here the graph {first.describe()}")
            if first.status not in kinds or not self._is_expected(first):
                expected = self.expected or Failure(kinds[0])
                return self._finish(
                    OTHER_FAILURE,
                    first,
                    f"captured: {expected.describe()}; here: {first.describe()}",
                )
            self._target = first
            self._search(module, inputs, self.operation or repros.find_operation(first.message))
        except (_Stopped, KeyboardInterrupt) as error:
            status, why = NOT_FINISHED, str(error) or "interrupted"
        return self._finish(status, self._target, why)

    def _is_expected(self, first: Failure) -> bool:
        if self.expected is None:
            return True
        if first.status == failure.SIGNAL and self.expected.signal is None:
            return self.expected.status == failure.SIGNAL
        return first.is_like(self.expected)

    def _ask_first(self, module: Any, inputs: list[Any]) -> Failure:
        if self.how.kind in ("runtime", "crash"):
            eager = replace(self.how, mode=EAGER)
            first = self._ask_anew(module, inputs, eager)
            if first.status in _OF_KIND[self.how.kind] and self._is_expected(first):
                self.how = eager
                return first
        return self._ask_anew(module, inputs, self.how)

    def _ask_anew(self, module: Any, inputs: list[Any], how: Judge) -> Failure:
        before = self.log.find(graph_key(module, inputs, how))
        answer = self._ask(module, inputs, how, is_new=True)
        if before is not None and before.identity != answer.identity:
            self.log.forget()
        return answer

    def _search(self, module: Any, inputs: list[Any], operation: str | None) -> None:
        annotate(module, inputs, self.how.level, self._count_harmless(module, inputs))
        start_module, start_inputs = self._find_failing_suspect(module, inputs, operation) or (
            module,
            inputs,
        )
        # RuntimeError: "final graph is not failing": keep the best so far
        with _silenced(), _annotated_already(), contextlib.suppress(RuntimeError):
            fx_minifier.minifier(
                start_module,
                start_inputs,
                module_fails=self._fails,
                dump_state=lambda module, inputs: None,
                skip_sanity=True,
            )

    def _count_harmless(self, module: Any, inputs: list[Any]) -> int | None:
        with tempfile.NamedTemporaryFile(prefix="nodes-") as file:
            outcome = self.runner.run(count_nodes, module, inputs, file.name)
            is_dead = any(
                failure.raised(*entry).error_type == failure.DEVICE_ERROR
                for entry in outcome.errors
            )
            if (
                outcome.status in (OK, failure.RAISED) and not is_dead
            ):  # an error ends `annotate` anyway
                return None
            return int.from_bytes(Path(file.name).read_bytes()[:8], "little")

    def _find_failing_suspect(
        self, module: Any, inputs: list[Any], operation: str | None
    ) -> tuple[Any, list[Any]] | None:
        """Try the suspected operation alone. If it fails, most of the search is saved."""
        for node in self._list_suspects(module, inputs, operation)[:MAX_GUESSES]:
            alone = isolate_node(module, inputs, node)
            if alone is not None and self._fails(*alone):
                return alone
        return None

    def _list_suspects(self, module: Any, inputs: list[Any], operation: str | None) -> list[Any]:
        nodes = list_calls(module)
        if operation is not None:
            return [
                node
                for node in nodes
                if find_operation(module, node).name == operation.removeprefix("torch.ops.")
            ]
        names = self.suspect(module, inputs)
        return [node for name in names for node in nodes if node.name == name]

    def _fails(self, module: Any, inputs: Sequence[Any]) -> bool:
        if not list_calls(module):
            return False  # nothing is left to fail
        values = list(inputs)
        self._rename_inputs(module)
        if not self._target.is_same(self._ask(module, values, self.how)):
            return False
        count, fewest = len(list_calls(module)), len(list_calls(self._best[0]))
        if count <= fewest:
            self._best = (torch.fx.GraphModule(module, copy.deepcopy(module.graph)), values)
        if count < fewest:
            self._history.append(
                Reduction(round(time.monotonic() - self._start, 3), count, self._query)
            )
            self.keep(*self._best)
        return True

    def _rename_inputs(self, module: Any) -> None:
        """Give an input that replaced an operation the name of the operation's value, because a
        compiler may use names.
        """
        for node in list_placeholders(module):
            if node.target in self._call_names:
                node.target = f"{node.target}_value"
                node._rename(node.target)
        module.recompile()

    def _ask(self, module: Any, inputs: list[Any], how: Judge, is_new: bool = False) -> Failure:
        if self._left_s() < 0:
            raise _Stopped(_NO_TIME_LEFT)
        key = graph_key(module, inputs, how)
        answer, is_remembered = None if is_new else self.log.find(key), True
        if answer is None and how.mode == COMPILED:
            self.load_compiler()
        start = time.monotonic()
        if answer is None:
            outcome = self.runner.run(judge, module, inputs, how, limits=self._limits())
            answer, is_remembered = read_failure(outcome, self._target), False
            if answer.status == failure.TIMED_OUT and self._left_s() < 0:
                raise _Stopped(_NO_TIME_LEFT)
            self.log.add(key, answer)
            self._counts["tried"] += 1
            self._counts["limited"] += answer.status in (failure.TIMED_OUT, failure.OUT_OF_MEMORY)
        else:
            self._counts["remembered"] += 1
        if not (is_remembered and key in self._asked):
            self._report_question(module, answer, is_remembered, time.monotonic() - start)
        self._asked.add(key)
        return answer

    def _left_s(self) -> float:
        return self._start + self.max_seconds - time.monotonic()

    def _limits(self) -> TrialLimits:
        limits = self.runner.limits
        return replace(limits, seconds=max(1.0, min(limits.seconds, self._left_s())))

    def _report_question(
        self, module: Any, answer: Failure, is_remembered: bool, seconds: float
    ) -> None:
        self._query += 1
        fails = self._target.is_same(answer) or (
            self._target.status == failure.PASSED and answer.fails
        )
        count = len(list_calls(module))
        fewest = min(len(list_calls(self._best[0])), count if fails else self._nodes_before)
        self.report(
            Question(self._query, count, fewest, fails, answer.describe(), seconds, is_remembered)
        )

    def _finish(self, status: str, answer: Failure, why: str | None) -> SmallestGraph:
        module, inputs = self._best
        operations = tuple(find_operation(module, node).name for node in list_calls(module))
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
            level=self.how.level,
            failure=answer.describe(),
            why=why,
            fails_in_eager=self.how.mode == EAGER,
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
        if self.how.mode != COMPILED or self.how.backend != "inductor":
            return False
        known = {
            name: value
            for name, value in NO_FUSION.items()
            if hasattr(torch._inductor.config, name)
        }
        return self._ask(module, inputs, replace(self.how, settings=known)).status == failure.PASSED


@contextlib.contextmanager
def _annotated_already() -> Iterator[None]:
    """Keep torch's minifier from running the graph in this process, on inputs that the graph
    modifies.
    """

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
def _silenced() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
