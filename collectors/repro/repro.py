"""A repro with its programs, input values and origin."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import (
    Event,
    ProcessStarted,
    ReproCaptured,
    ReproValues,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.contract.repros import (
    KEPT,
    ReproInput,
    ReproManifest,
    dump_manifest,
    normalize_error_message,
)
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.record.spool import home, new_run_id, replace_file
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.repros import ReproResult, save_result


class NotRunnable(ValueError):
    """Nothing could be run. The message is shown to the user."""


def advise_preload(recorded: tuple[str, ...]) -> str:
    if not recorded:
        return "name its module or file with --preload"
    registers = "does not by being imported" if len(recorded) == 1 else "do not by being imported"
    return (
        f"{', '.join(recorded)} {registers}; name the function that does: --preload "
        f"{recorded[-1]}:FUNCTION"
    )


def advise_passing(recorded: tuple[str, ...]) -> list[str]:
    if not recorded:
        return []
    names = ", ".join(recorded)
    return [
        (
            f"{names} was imported. What a function of it registers needs --preload "
            f"{recorded[-1]}:FUNCTION."
        )
    ]


@dataclass(frozen=True)
class Repro:
    manifest: ReproManifest
    program: str  # The program of the manifest's level.
    dynamo_program: str | None = None  # if `program` is AOTAutograd's
    values: Mapping[str, bytes] = field(default_factory=dict)  # a storage's raw bytes, by SHA-256
    name: str = "the repro"  # shown to people: the id or the file
    id: str | None = None  # content id in `database`
    database: str | None = None  # it was loaded from this database
    server: RunConfig | None = None  # settings of the server it was loaded from
    run_id: str | None = None  # The id of its run.
    path: str | None = None  # the file or folder it was loaded from
    # torch's content store, with the values of a script of torch.
    storage_folder: str | None = None
    storage_hashes: Mapping[int, str] = field(
        default_factory=dict
    )  # Digests in the store, by storage number.
    folders: tuple[str, ...] = ()  # Folders of its run on this machine, searched for its files.
    distrust: str | None = None  # why it needs --trust; None: it is the user's own

    def text(self, level: str | None = None) -> str:
        if level is None or level == self.manifest.level:
            return self.program
        if level == "dynamo" and self.dynamo_program is not None:
            return self.dynamo_program
        raise NotRunnable(
            f"{self.name} has no graph of level {level}, only of {self.manifest.level}"
        )

    def inputs(self, level: str | None = None) -> tuple[ReproInput, ...]:
        if level is None or level == self.manifest.level:
            return self.manifest.inputs
        return self.manifest.dynamo_inputs

    def has_values(self, spec: ReproInput) -> bool:
        is_kept = spec.values == KEPT and spec.digest in self.values
        return is_kept or spec.storage in self.storage_hashes

    def check_trust(self, *, is_trusted: bool) -> None:
        """Raises NotRunnable for an untrusted repro that was not recorded on this machine."""
        if self.distrust is not None and not is_trusted:
            raise NotRunnable(
                f"{self.distrust}, and to run it is to run its code: read it first (`repro "
                "show --program`), "
                "then say --trust"
            )


PASSED, RAISED, SIGNAL, DIFFERS, NOT_FINITE, OTHER_INTEGERS = (
    "passed",
    "raised",
    "signal",
    "differs",
    "not_finite",
    "other_integers",
)
# Signals with which people and schedulers end a hanging process, and the kernel one that uses too
# much memory.
ENDED_BY_OTHERS = ("SIGINT", "SIGTERM", "SIGKILL", "SIGHUP", "SIGALRM", "SIGXCPU")
TIMED_OUT, OUT_OF_MEMORY = "timed_out", "out_of_memory"
WRONG_ANSWERS = (DIFFERS, NOT_FINITE, OTHER_INTEGERS)

# "InductorError: LoweringException: NotImplementedError: text": the error's type is the last
_WRAPPED = re.compile(r"^\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning))\s*:\s*")
_BACKEND_RAISED = re.compile(r"^\s*backend=.{1,200}? raised:\s*$")
_COMPILER_SAYS = re.compile(r"\berror: (.+)")
# The same device error as the driver, triton and torch report it; its type depends on the reporter.
_DEVICE_ERROR = re.compile(r"^(?:Triton Error \[(CUDA|HIP)\]|(CUDA|HIP)(?: driver)? error): ")
DEVICE_ERROR = "AcceleratorError"
_DIGITS = re.compile(r"\d+")
MAX_MESSAGE_CHARS = 20_000


@dataclass(frozen=True)
class Failure:
    status: str
    error_type: str | None = None
    pattern: str | None = None
    signal: str | None = None
    message: str | None = None  # unchanged, and not compared

    @property
    def identity(self) -> tuple[str | None, ...]:
        return (self.status, self.error_type, self.pattern, self.signal)

    @property
    def fails(self) -> bool:
        """Return whether the graph failed; reaching a limit is not a failure."""
        return self.status in (RAISED, SIGNAL, *WRONG_ANSWERS)

    def is_same(self, other: Failure) -> bool:
        return self.fails and self.identity == other.identity

    def is_like(self, other: Failure) -> bool:
        """Return whether both are the same failure. If values were not kept, any two wrong answers
        are.
        """
        if other.status in WRONG_ANSWERS:
            return self.status in WRONG_ANSWERS
        return self.is_same(other)

    def describe(self) -> str:
        if self.status == RAISED:
            return f"{self.error_type}: {self.pattern}" if self.pattern else str(self.error_type)
        if self.status == SIGNAL and self.signal in ENDED_BY_OTHERS:
            return f"it goes on until {self.signal} or a limit ends it"
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
        RAISED, kind.rsplit(".", 1)[-1], _find_pattern(text), message=message[:MAX_MESSAGE_CHARS]
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


def _find_pattern(text: str) -> str:
    pattern = normalize_error_message(text)
    compiler = _COMPILER_SAYS.search(text, len(text.split("\n", 1)[0]))
    if compiler is None:
        return pattern
    return f"{pattern}: {normalize_error_message(_DIGITS.sub('N', compiler[1]))}"


VERSIONS = ("torch", "python", "cuda", "triton")


def list_import_events(
    repros: Sequence[Repro], digest: str, name: str, trace: str, **facts: Any
) -> list[Event]:
    """Return the events of a run that has only these repros, all with the same time.

    `digest` is the hash of the content. The same content becomes the same run whenever it is
    imported, so the time in its id stays at its start value.
    """
    run_id, process_id = new_run_id(0, int(digest[:20], 16)), digest[:32]
    time_us, first = read_clock_us(), repros[0].manifest
    versions: dict[str, Any] = {f"{name}_version": first.versions.get(name) for name in VERSIONS}
    started = RunStarted(run_id, 0, time_us, run_id, name, source="import", **facts)
    process = ProcessStarted(
        process_id,
        0,
        time_us,
        run_id,
        pid=0,
        capabilities={"trace": trace},
        **versions,
    )
    events: list[Event] = [started, process]
    for position, repro in enumerate(repros):
        events.append(
            ReproCaptured(
                process_id,
                1 + position,
                time_us,
                position=position,
                manifest=dump_manifest(repro.manifest),
                program=repro.program,
                dynamo_program=repro.dynamo_program,
            )
        )
    for position, repro in enumerate(repros):
        for digest, body in sorted(repro.values.items()):
            packed = base64.b64encode(zlib.compress(body)).decode()
            events.append(
                ReproValues(
                    process_id, len(events) - 1, time_us, position, digest=digest, body=packed
                )
            )
    return [*events, RunEnded(run_id, 1, time_us, run_id, "imported")]


def save_answer(repro: Repro, result: ReproResult) -> str:
    """Save an answer in the repro's database or in `<file>.repro/`; return the place.

    Raises StoreError or OSError.
    """
    if repro.database is not None and repro.id is not None:
        with closing(open_writer(repro.database, create=False)) as connection:
            save_result(connection, repro.id, result)
            checkpoint(connection)
        return repro.database
    folder = Path(f"{repro.path or repro.name}.repro")
    folder.mkdir(exist_ok=True)
    stem = f"{result.command}-{result.started_us}"
    if result.program is not None:
        replace_file(folder / f"{stem}.py", result.program)
    body = {name: value for name, value in asdict(result).items() if name != "program"}
    path = folder / f"{stem}.json"
    replace_file(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return str(path)


def work_folder(repro: Repro, environment: Mapping[str, str]) -> Path:
    body = "\x1e".join(
        (repro.manifest.kind, repro.manifest.level, repro.program, repro.dynamo_program or "")
    )
    name = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    folder = home(environment) / "repro" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
