"""The experiments there are, each one small module: a new one is a line here and a module beside it.

A module has `run(bench: Workbench) -> Outcome`; a child process that has loaded the model calls it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """Name an experiment: the flag asks for it, the module does it."""

    name: str
    flag: str
    help: str

    @property
    def module(self) -> str:
        return f"collectors.bench.experiments.{self.name}"


EXPERIMENTS = (
    Experiment("performance", "--performance", "speedup over eager, latency, compilation time, peak memory"),
    Experiment("accuracy", "--accuracy", "whether compiled computes what eager computes, by upstream's rules"),
)
