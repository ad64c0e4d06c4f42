"""The answer of `repro minify` as stored in `repro_results`. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from compileboard.collectors.repro.repro import OUT_OF_MEMORY, TIMED_OUT, Failure

MINIFIED = "minified"
NOT_FINISHED = "not_finished"  # ended before nothing more could be taken out: `why`
NOT_REPRODUCED = "not_reproduced"  # the graph passes here
OTHER_FAILURE = "other_failure"  # it fails here in another way than it was captured with
STATUSES = (MINIFIED, NOT_FINISHED, NOT_REPRODUCED, OTHER_FAILURE)


@dataclass(frozen=True)
class Reduction:
    seconds: float  # since the start of this search
    node_count: int
    query: int


@dataclass(frozen=True)
class Minification:
    status: str  # one of STATUSES
    nodes_before: int = 0  # call nodes
    nodes_after: int = 0
    operations: tuple[str, ...] = ()  # of the smallest graph, in its order: "aten.atan.default"
    level: str = "aot"  # of the graph that was minified: dynamo where only that one fails
    failure: str | None = None  # how it fails, in words
    why: str | None = None  # it was not finished, or not reproduced
    fails_in_eager: bool = False  # it fails without a compiler as well
    is_together: bool = False  # none of its operations fails alone
    is_fusion: bool = False  # and together they pass where nothing is fused
    is_confirmed: bool = False  # the smallest graph failed once more when it was tried again
    # Its values do not matter: the program alone shows the failure.
    fails_with_random_inputs: bool | None = None
    tried_count: int = 0  # trials in a process of their own
    # Questions that had been answered before, in this search or an earlier one.
    remembered_count: int = 0
    limited_count: int = 0  # trials that reached a limit of time or memory: taken as passing
    seconds: float = 0.0
    history: tuple[Reduction, ...] = ()

    @property
    def answers(self) -> bool:
        return self.status in (MINIFIED, NOT_FINISHED)

    def sentence(self) -> str:
        if not self.answers:
            return f"{self.why}."
        names = ", ".join(self.operations[:5]) + (", …" if len(self.operations) > 5 else "")
        sizes = f"{self.nodes_before} → {self.nodes_after} operations: {names}."
        if self.status == NOT_FINISHED:
            return f"{sizes} Not finished: {self.why}; the same command goes on from here."
        if self.is_fusion:
            return f"{sizes} They fail only when fused: alone, or not fused, each is right."
        if self.is_together:
            return f"{sizes} They fail only together: alone each is right."
        return f"{sizes} It fails without a compiler as well." if self.fails_in_eager else sizes


def dump_minification(answer: Minification) -> dict[str, Any]:
    return asdict(answer)


def load_minification(body: Mapping[str, Any]) -> Minification:
    known = {entry.name: body[entry.name] for entry in fields(Minification) if entry.name in body}
    known["operations"] = tuple(known.get("operations", ()))
    names = [entry.name for entry in fields(Reduction)]
    known["history"] = tuple(
        Reduction(**{name: part[name] for name in names}) for part in known.get("history", ())
    )
    return Minification(**known)


@dataclass(frozen=True)
class Question:
    query: int
    node_count: int  # call nodes of the graph that was tried
    fewest: int  # of the smallest graph known to fail
    fails: bool
    outcome: str
    seconds: float  # of this question
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
            if answer.status not in (TIMED_OUT, OUT_OF_MEMORY):  # another limit may be set now
                self._answers[body["key"]] = answer
        except (
            ValueError,
            TypeError,
            KeyError,
        ):  # the line that was being written when the power went
            return

    def find(self, key: str) -> Failure | None:
        return self._answers.get(key)

    def forget(self) -> None:
        self._answers.clear()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def add(self, key: str, answer: Failure, node_count: int, seconds: float) -> None:
        self._answers[key] = answer
        if self._path is None:
            return
        body = {
            "key": key,
            "failure": answer.to_json(),
            "nodes": node_count,
            "seconds": round(seconds, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            # a first newline ends a line that a lost process left open
            file.write(("" if self._ends_with_newline() else "\n") + json.dumps(body) + "\n")

    def _ends_with_newline(self) -> bool:
        if self._path is None or not self._path.exists() or not self._path.stat().st_size:
            return True
        with self._path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) == b"\n"
