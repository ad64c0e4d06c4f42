"""Recompiles as chains: each frame's compiles in order, each with the guards that failed before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.compiles import CompileRow
from compileboard.app.queries.run_recompiles import RecompileRow
from compileboard.collectors.categories import BY_NAME, Category

UNKNOWN = BY_NAME["unknown"]


@dataclass(frozen=True)
class Step:
    """Hold one compile of a chain and the recompile that it is; the first is none."""

    compile: CompileRow
    recompile: RecompileRow | None

    @property
    def category(self) -> Category | None:
        """Return the kind of guard that failed on the newest cache entry."""
        if self.recompile is None:
            return None
        guards = self.recompile.guards
        return label_category(guards[0].category) if guards else UNKNOWN


def label_category(name: str) -> Category:
    """Return a category with its label and meaning; a name that is not known stays itself."""
    return BY_NAME.get(name) or Category(name, name.replace("_", " "), "")


def build_steps(compiles: Sequence[CompileRow], recompiles: Sequence[RecompileRow]) -> list[Step]:
    """Put each compile of a frame beside its recompile."""
    by_compile = {it.compile_key: it for it in recompiles}
    return [Step(it, by_compile.get(it.id)) for it in compiles]


def shorten_steps(steps: Sequence[Step], most: int = 40) -> tuple[list[Step], int]:
    """Keep the first and the newest steps of a long chain; return them and how many were left out between."""
    if len(steps) <= most:
        return list(steps), 0
    first = most // 4
    return [*steps[:first], *steps[len(steps) - (most - first) :]], len(steps) - most
