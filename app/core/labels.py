"""Labels of phases, outcomes and caches, the same on pages, in reports and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from compileboard.collectors.contract.record_names import PATH_NOT_ENDED


class Label(NamedTuple):
    word: str
    kind: str
    meaning: str


class Phase(NamedTuple):
    name: str
    label: str
    color: str
    meaning: str


PHASES = (
    Phase("dynamo", "dynamo", "phase-dynamo", "tracing Python into a graph"),
    Phase("aot", "AOTAutograd", "phase-aot", "splitting forward and backward, functionalization"),
    Phase("inductor", "inductor", "phase-inductor", "graph passes, fusing and scheduling"),
    Phase("codegen", "code generation", "phase-codegen", "writing kernels"),
    Phase(
        "triton",
        "kernels",
        "phase-triton",
        "waiting for kernels to compile: triton's, or C++ on a CPU",
    ),
    Phase("cudagraph", "CUDA graphs", "phase-cudagraph", "recording CUDA graphs"),
    Phase("restart", "restarts", "phase-restart", "attempts that ended in a restart"),
    Phase(
        "first_calls",
        "first calls",
        "phase-other",
        "first calls of compiled code, mostly autotuning",
    ),
)

OUTCOMES = {
    "compiled": Label("compiled", "good", "Compiled at the first attempt, without a graph break."),
    "restarted": Label("restarted", "busy", "Compiled after at least one restart."),
    "broke": Label(
        "broke and resumed",
        "warn",
        "A graph break split the function. The rest is compiled separately.",
    ),
    "loaded": Label("loaded", "good", "Code of an earlier process came from a saved package."),
    "empty": Label("empty", "quiet", "The function has no tensor operation to compile."),
    "skipped": Label("skipped", "warn", "The function fell back to eager."),
    "failed": Label("failed", "bad", "The compile raised an exception."),
    "recompile_limit": Label(
        "recompile limit", "bad", "Recompiled too often: the function fell back to eager."
    ),
    "started": Label("started", "busy", "Tracing began; its end was not recorded."),
    "announced": Label("announced", "quiet", "Events are recorded, but neither start nor end."),
}

FAILURE_PHASES = {
    "compile": Label("compile", "bad", "The compile raised it."),
    "forward": Label("forward", "bad", "Compiled code raised it, in the forward pass."),
    "backward": Label("backward", "bad", "Compiled code raised it, in the backward pass."),
    "wrapper": Label(
        "wrapper", "bad", "AOTAutograd's code around a graph raised it, when the graph was called."
    ),
    "program": Label("program", "bad", "The program raised it, outside compiled code."),
}

BREAK_OUTCOMES = {
    "resumed": Label("resumed", "warn", "The code after the break is compiled as another graph."),
    "skipped": Label("skipped", "bad", "The function fell back to eager."),
    "unknown": Label("unknown", "quiet", "Not recorded by this version of torch."),
}

CACHES = {"fx_graph": "FX graph cache", "aot_autograd": "AOTAutograd cache"}
CACHE_RESULTS = {
    "hit": Label("hit", "good", "Compiled code came from the cache."),
    "miss": Label("miss", "quiet", "Not in the cache: compiled."),
    "bypass": Label("bypass", "warn", "This graph cannot be cached: every process compiles it."),
}

# What a missing capability means for the reader.
CAPABILITIES = {
    "metrics": "compilation records: times, counts, configuration",
    "graph_calls": "exceptions that compiled code raises and the program catches",
    "backward_calls": "exceptions that compiled backwards raise and the program catches",
    "repro_backend_calls": "repros of compiles that fail",
    "repro_script": "repros of graphs that fail",
    "repro_graph_script": "repros of inductor's code that fails",
    "repro_graph_calls": "graphs that --repro=crash and --repro=accuracy watch",
    "repro_compiles": "graphs of AOTAutograd that --repro=accuracy checks",
    "minifier": "repro minify",
    "minifier_program": "programs that repro minify leaves",
    "graph_compiler": "repro commands on graphs of AOTAutograd",
    "backward_passes": "gradients compared by `try`",
    "skip_code": "dynamo kept out of the collector's own code around compiled code",
    "events": "graph breaks, recompiles, caches and failures as torch reports them",
    "graph_breaks": "graph breaks",
    "recompiles": "recompiles",
    "failed_guards": "every failed guard of a recompile, not the first of each cache entry alone",
    "compile_context": "which compile an event belongs to",
    "counters": "torch's final counters",
    "compile_times": "torch's own table of phase times",
    "cudagraph_skips": "reasons for CUDA graph skips",
    "cudagraph_recordings": "CUDA graphs recorded, and why again",
    "cudagraph_warm_ups": "runs to warm up before a CUDA graph",
    "step_calls": "times of steps, with `--steps`",
    "profiler_starts": "that a program uses torch's profiler, for `--steps`",
    "profiler_older_starts": "that a program uses torch's older profiler, for `--steps`",
    "config_defaults": "what differs from torch's default configuration",
    "trace": "everything in torch's trace log",
}


def describe_losses(
    losses: dict[str, int] | None, reported: bool, final: bool, live: bool
) -> Label:
    if losses and (count := sum(losses.values())):
        return Label(
            f"{count} dropped record{'s' if count > 1 else ''}", "bad", "Reasons are listed below."
        )
    if not live:
        return Label("dropped records unknown", "quiet", "Trace logs do not count dropped records.")
    if final:
        return Label("no dropped records", "good", "Counted to the end of the process.")
    if reported:
        return Label(
            "no dropped records so far",
            "quiet",
            "Counted to its last report; its end was not recorded.",
        )
    return Label("dropped records unknown", "quiet", "The process has not reported its totals.")


def split_capabilities(
    capabilities: Mapping[str, str],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Split capabilities into missing ones with their reason, and remarks on present ones."""
    pairs = [
        (name, text) for name, text in sorted(capabilities.items()) if text not in ("ok", "later")
    ]
    missing = [(name, text) for name, text in pairs if not text.startswith("ok ")]
    return missing, [(name, text) for name, text in pairs if text.startswith("ok ")]


def describe_outcome(outcome: str, running: bool = True) -> Label:
    if outcome == "started" and not running:
        return Label("not finished", "warn", "Tracing began; its end was not recorded.")
    return OUTCOMES.get(outcome, Label(outcome, "quiet", ""))


def describe_failure_phase(phase: str) -> Label:
    return FAILURE_PHASES.get(
        phase, Label(phase, "bad", "A phase that this version does not know.")
    )


# Source: CheckInvariantStatus of torch/_inductor/cudagraph_utils.py, 2.6 to 2.13; the last is ours.
CUDA_GRAPH_STATUSES = {
    "StaticInputIdxMismatch": Label(
        "Parameter, buffer or static input moved",
        "warn",
        "A graph reads these inputs at the addresses that they had when it was recorded. A call "
        "passed one at another address.",
    ),
    "CudagraphManagedIdxMismatch": Label(
        "Output of another CUDA graph moved",
        "warn",
        "A graph reads an earlier graph's output where that graph wrote it. A call passed one at "
        "another address: another output, or one of another recording.",
    ),
    "ExpectedDeadIndicesBeforeGraphMismatch": Label(
        "Earlier output still in use",
        "warn",
        "When the graph was recorded, an output of an earlier graph was free. In a later call the "
        "program still held it, so its memory could not be used again.",
    ),
    PATH_NOT_ENDED: Label(
        "Called while an earlier output is in use",
        "warn",
        "At other calls the function begins a path of graphs. At this one the program still held "
        "an output of the graph before it, so torch recorded it after that graph too.",
    ),
}


def describe_cuda_graph_status(status: str) -> Label:
    return CUDA_GRAPH_STATUSES.get(status, Label(status, "warn", "torch's word for it."))


def describe_break_outcome(outcome: str) -> Label:
    return BREAK_OUTCOMES.get(outcome, Label(outcome, "quiet", ""))


class HasPhases(Protocol):
    def get(self, phase: str) -> int | None: ...


@dataclass(frozen=True)
class PhaseShare:
    phase: Phase
    time_us: int
    start: float
    width: float


def list_shares(phases: HasPhases, whole_us: int | None = None) -> list[PhaseShare]:
    times = [(phase, phases.get(phase.name) or 0) for phase in PHASES]
    whole = whole_us or sum(time for _phase, time in times)
    shares, start = [], 0.0
    for phase, time_us in times:
        if time_us > 0 and whole > 0:
            width = 100 * time_us / whole
            shares.append(PhaseShare(phase, time_us, round(start, 2), round(width, 2)))
            start += width
    return shares


def sum_phases(phases: HasPhases) -> int | None:
    times = [time for phase in PHASES if (time := phases.get(phase.name)) is not None]
    return sum(times) if times else None
