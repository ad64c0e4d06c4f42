"""A run's state as a word, a colour and an explanation."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from app.format import format_duration


class Run(Protocol):
    """What is needed of a run: RunRow and anything like it."""

    @property
    def state(self) -> str: ...
    @property
    def heartbeat_us(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> str | None: ...


class RunState(NamedTuple):
    """Hold a state's word, the kind of its badge and what it means."""

    word: str
    kind: str
    explanation: str


def describe_state(run: Run, now_us: int, stale_after_s: int) -> RunState:
    """Say how a run stands; a running one whose recorder fell silent is "interrupted?"."""
    if run.state == "running":
        silent_us = now_us - run.heartbeat_us
        if silent_us > stale_after_s * 1_000_000:
            silence = format_duration(stale_after_s * 1_000_000)
            explanation = (
                f"No sign of life from its recorder for over {silence}: the recorder "
                "was stopped, or its machine sleeps. What it wrote is kept, and the next collector command picks it up."
            )
            return RunState("interrupted?", "warn", explanation)
        return RunState("running", "busy", "Its recorder is alive; this page refreshes itself.")
    code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
    if run.state == "finished":
        return RunState("finished", "good", f"The program ended{code}.")
    if run.state == "failed":
        return RunState("failed", "bad", f"The program ended{code}.")
    if run.state == "killed":
        return RunState("killed", "bad", f"The program was ended by {run.signal or 'a signal'}.")
    if run.state == "imported":
        return RunState("imported", "quiet", "Read from torch's own log, which does not say how the program ended.")
    return RunState("interrupted", "warn", "The recorder ended before the program said that it had.")
