"""The answers to a minification's questions, kept so that an interrupted search goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.repro.repro import OUT_OF_MEMORY, TIMED_OUT, Failure


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
