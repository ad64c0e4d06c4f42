"""A run's state as a label, a colour and an explanation, and its failures."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from compileboard.app.core.format import format_duration, format_plural
from compileboard.app.core.newest import RecorderClock


class HasRunState(Protocol):
    @property
    def state(self) -> str: ...
    @property
    def heartbeat_us(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> str | None: ...
    @property
    def failure_count(self) -> int | None: ...
    @property
    def failed_result_count(self) -> int: ...


class RunState(NamedTuple):
    word: str
    kind: str
    explanation: str
    problems: tuple[str, ...] = ()


def list_problems(run: HasRunState) -> tuple[str, ...]:
    """List the failures: compiles that raised, exceptions in compiled code, failed results."""
    counts = (
        (run.failure_count, "failure", "failures"),
        (run.failed_result_count, "result failed", "results failed"),
    )
    return tuple(format_plural(number, noun, many) for number, noun, many in counts if number)


def describe_state(run: HasRunState, now_us: int, stale_after_s: int) -> RunState:
    state = _describe_program(run, now_us, stale_after_s)
    problems = list_problems(run)
    return state._replace(
        kind="warn" if problems and state.kind == "good" else state.kind, problems=problems
    )


def _describe_program(run: HasRunState, now_us: int, stale_after_s: int) -> RunState:
    if run.state == "running":
        if not RecorderClock(now_us, stale_after_s).is_running(run.state, run.heartbeat_us):
            silence = format_duration(stale_after_s * 1_000_000)
            explanation = (
                f"No sign of life from its recorder for over {silence}: the recorder "
                "was stopped, or its machine sleeps. What it wrote is kept, and the next "
                "collector command picks it up."
            )
            return RunState("interrupted?", "warn", explanation)
        return RunState("running", "busy", "Recording. This page refreshes itself.")
    if run.state in ("finished", "failed", "killed"):
        return RunState(
            run.state, "good" if run.state == "finished" else "bad", f"{describe_end(run)}."
        )
    if run.state == "imported":
        return RunState("imported", "quiet", "Imported from a trace log, which has no exit code.")
    return RunState("interrupted", "warn", "The recorder ended before the program.")


class HasStreamState(Protocol):
    @property
    def is_here(self) -> bool: ...
    @property
    def updated_us(self) -> int: ...
    @property
    def ended_us(self) -> int | None: ...
    @property
    def is_replaced(self) -> bool: ...


def describe_stream(stream: HasStreamState, clock: RecorderClock) -> RunState:
    """Describe the state of a pushed stream; one that fell silent before its end is lost."""
    if not stream.is_here:
        return RunState("deleted", "quiet", "The run was deleted, or nothing of it was stored yet.")
    if stream.ended_us is not None:
        return RunState("delivered", "good", "All that its recorder wrote is stored.")
    if stream.updated_us >= clock.alive_since_us:
        return RunState("receiving", "busy", "The box sends.")
    if stream.is_replaced:
        return RunState(
            "replaced", "quiet", "The run's recorder began anew: a later stream has all of it."
        )
    silence = format_duration(clock.now_us - stream.updated_us)
    return RunState(
        "silent",
        "warn",
        f"Nothing came for {silence}. What waits on the box goes out when it is back.",
    )


def describe_end(run: HasRunState) -> str:
    if run.state == "killed":
        return f"The program was ended by {run.signal or 'a signal'}"
    return "The program ended" + (
        "" if run.exit_code is None else f" with exit code {run.exit_code}"
    )
