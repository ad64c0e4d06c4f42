"""Identify a failure, so that a smaller graph can be required to fail in the same way.

An exception is identified by type and message without values, a crash by its signal, a wrong result
by how it is wrong. The compiler's wrapper exceptions are removed first, since they differ between
levels.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from compileboard.collectors.contract.repros import ReproManifest, error_pattern

PASSED, RAISED, SIGNAL, DIFFERS, NOT_FINITE, OTHER_INTEGERS = (
    "passed",
    "raised",
    "signal",
    "differs",
    "not_finite",
    "other_integers",
)
TIMED_OUT, OUT_OF_MEMORY = "timed_out", "out_of_memory"
WRONG_ANSWERS = (DIFFERS, NOT_FINITE, OTHER_INTEGERS)

# "InductorError: LoweringException: NotImplementedError: text": the type of the error is the last
_WRAPPED = re.compile(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning))\s*:\s*")
_BACKEND_RAISED = re.compile(r"^\s*backend=.{1,200}? raised:\s*$")
_COMPILER_SAYS = re.compile(r"\berror: (.+)")
_LOWERING_TARGET = re.compile(r"^\s+target: (\S+)$", re.MULTILINE)
# The same error of a device, as the driver, triton and torch report it; its type depends on who
# does.
_DEVICE_ERROR = re.compile(r"^(?:Triton Error \[(CUDA|HIP)\]|(CUDA|HIP)(?: driver)? error): ")
DEVICE_ERROR = "AcceleratorError"
_DIGITS = re.compile(r"\d+")
MOST_MESSAGE_CHARS = 20_000


@dataclass(frozen=True)
class Failure:
    status: str
    error_type: str | None = None
    pattern: str | None = None
    signal: str | None = None
    message: str | None = None  # as it came; no part of what is compared

    @property
    def identity(self) -> tuple[str | None, ...]:
        return (self.status, self.error_type, self.pattern, self.signal)

    @property
    def fails(self) -> bool:
        """Return whether the graph failed; reaching a limit is not a failure."""
        return self.status in (RAISED, SIGNAL, *WRONG_ANSWERS)

    def is_same(self, other: Failure) -> bool:
        return self.fails and self.identity == other.identity

    def describe(self) -> str:
        if self.status == RAISED:
            return f"{self.error_type}: {self.pattern}" if self.pattern else str(self.error_type)
        if self.status == SIGNAL:
            return f"the process dies of {self.signal}"
        return _WORDS[self.status]

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


_WORDS = {
    PASSED: "passes",
    DIFFERS: "differs from eager",
    NOT_FINITE: "NaN or infinity where eager has none",
    OTHER_INTEGERS: "other integers than eager",
    TIMED_OUT: "reached the time limit",
    OUT_OF_MEMORY: "reached the memory limit",
}


def raised(error_type: str, message: str) -> Failure:
    kind, text = unwrap_error(error_type, message)
    if match := _DEVICE_ERROR.match(text):
        kind, text = DEVICE_ERROR, f"{match[1] or match[2]} error: {text[match.end() :]}"
    return Failure(
        RAISED, kind.rsplit(".", 1)[-1], _find_pattern(text), message=message[:MOST_MESSAGE_CHARS]
    )


def captured_failure(manifest: ReproManifest) -> Failure:
    if manifest.kind == "crash":
        return Failure(SIGNAL, signal=manifest.signal, message=manifest.message)
    if manifest.kind == "accuracy":
        return Failure(str(manifest.accuracy.get("status") or DIFFERS), message=manifest.message)
    return raised(manifest.error_type or "Exception", manifest.message or "")


def unwrap_error(error_type: str, message: str) -> tuple[str, str]:
    text = message
    lines = text.split("\n", 1)
    if len(lines) == 2 and _BACKEND_RAISED.match(lines[0]):
        text = lines[1]
    while match := _WRAPPED.match(text):
        error_type, text = match[1], text[match.end() :]
    return error_type, text


def find_operation(message: str | None) -> str | None:
    match = _LOWERING_TARGET.search(message or "")
    return match[1] if match else None


def _find_pattern(text: str) -> str:
    pattern = error_pattern(text)
    compiler = _COMPILER_SAYS.search(text, len(text.split("\n", 1)[0]))
    if compiler is None:
        return pattern
    return f"{pattern}: {error_pattern(_DIGITS.sub('N', compiler[1]))}"
