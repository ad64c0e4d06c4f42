"""A repro: a failed or wrong graph with everything needed to run it elsewhere.

It consists of a manifest (JSON), the graph as a Python module, dynamo's graph if known, and
optionally input values: the bytes of whole storages, not pickles, so reading them runs nothing.
Imported in the observed process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

FORMAT = 1
KINDS = ("compile", "runtime", "accuracy", "crash")
LEVELS = (
    "dynamo",
    "aot",
)  # `program` is dynamo's graph, or the one that AOTAutograd gave to the compiler.
PHASES = ("forward", "backward", "inference")
# States of an input's values.
KEPT, ABSENT, FREED, TOO_LARGE, WITHHELD = "kept", "absent", "freed", "too_large", "withheld"
VALUE_STATES = (KEPT, ABSENT, FREED, TOO_LARGE, WITHHELD)
MAX_REPROS = 20  # per process, one per fingerprint
DEFAULT_VALUES_BYTES = 64 << 20  # per repro
MAX_STORAGE_BYTES = 32 << 20  # per storage: it must fit into one record of the spool
MAX_PROGRAM_CHARS = 16 << 20
MAX_ERROR_CHARS = 8_000

Size = int | str  # an expression of symbols, as sympy writes it: "2*s0 + 1"


@dataclass(frozen=True)
class ReproInput:
    """An input of the graph without its values.

    Inputs with the same `storage` share memory. A symbolic size or stride is written as its
    expression.
    """

    name: str  # The placeholder's name.
    kind: str = "tensor"  # tensor | symint | int | float | bool | none | other
    # Of a number; of a symint its hint; of "other" its class.
    value: int | float | bool | str | None = None
    expression: str | None = None  # a symint's: "s0"
    dtype: str | None = None  # "float32"
    shape: tuple[Size, ...] | None = None
    stride: tuple[Size, ...] | None = None
    storage_offset: Size = 0
    device: str | None = None  # "cuda:0"
    requires_grad: bool = False
    is_parameter: bool = False
    storage: int | None = None  # number of its storage among the repro's
    storage_bytes: int | None = None
    values: str = ABSENT  # one of VALUE_STATES
    digest: str | None = None  # SHA-256 of its storage, if its values are kept


@dataclass(frozen=True)
class ReproManifest:
    kind: str  # one of KINDS
    level: str  # one of LEVELS
    phase: str = "inference"  # one of PHASES
    error_type: str | None = None
    message: str | None = None  # secrets removed; head and tail of a long one
    traceback: str | None = None
    operation: str | None = None  # the failed or wrong one, if known: "aten.atan.default"
    signal: str | None = None  # The signal that ended the process: "SIGSEGV".
    # The error came after the graph had returned, as device errors do: it ran last.
    is_asynchronous: bool = False
    # The values are from the graph's first call, but a later one failed.
    has_earlier_values: bool = False
    function: str | None = None  # the compiled one: qualified name
    file: str | None = None
    line: int | None = None
    backend: str | None = None
    compiler: str | None = None  # the program's own, which AOTAutograd called
    node_count: int | None = None  # call nodes of the graph
    inputs: tuple[ReproInput, ...] = ()
    symbols: dict[str, int] = field(default_factory=dict)  # hint of each symbol
    settings: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # {"inductor": {"max_autotune": "True"}}
    versions: dict[str, str | None] = field(default_factory=dict)  # torch python cuda triton
    device: str | None = None  # the GPU's name, or "cpu"
    preload: tuple[str, ...] = ()  # modules or files that register what the graph needs
    accuracy: dict[str, Any] = field(default_factory=dict)  # The comparison of an accuracy failure.
    dynamo_inputs: tuple[ReproInput, ...] = ()  # of `dynamo_program`, if different
    source: str = "live"  # live | torch: read from files that torch wrote
    format: int = FORMAT


def dump_manifest(manifest: ReproManifest) -> dict[str, Any]:
    body = _drop_defaults(manifest)
    for name in ("inputs", "dynamo_inputs"):
        if name in body:
            body[name] = [_drop_defaults(entry) for entry in getattr(manifest, name)]
    return {"format": manifest.format, **body}


def load_manifest(body: Mapping[str, Any]) -> ReproManifest:
    if (
        not isinstance(body, Mapping)
        or body.get("kind") not in KINDS
        or body.get("level") not in LEVELS
    ):
        raise ValueError(
            f"not a repro: expected a kind of {', '.join(KINDS)} and a level of {', '.join(LEVELS)}"
        )
    if not isinstance(body.get("format"), int) or body["format"] > FORMAT:
        raise ValueError(
            f"a repro of format {body.get('format')!r}: this version reads up to {FORMAT}; "
            "update it"
        )
    known = _check_types(ReproManifest, body)
    for name in ("inputs", "dynamo_inputs"):
        known[name] = tuple(_load_input(entry) for entry in known.get(name, ()))
    known["preload"] = tuple(str(entry) for entry in known.get("preload", ()))
    return ReproManifest(**known)


_OPTIONAL_TEXT, _OPTIONAL_NUMBER = (str, type(None)), (int, type(None))
_TYPES: dict[str, tuple[type, ...]] = {  # JSON types by declared type
    "str": (str,),
    "str | None": _OPTIONAL_TEXT,
    "int": (int,),
    "int | None": _OPTIONAL_NUMBER,
    "bool": (bool,),
    "Size": (int, str),
    "int | float | bool | str | None": (int, float, bool, str, type(None)),
    "tuple[Size, ...] | None": (list, tuple, type(None)),
}


def _check_types(cls: type, body: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for entry in fields(cls):
        if entry.name not in body:
            continue
        value, declared = body[entry.name], str(entry.type)
        expected = _TYPES.get(declared, (dict,) if declared.startswith("dict") else (list, tuple))
        if not isinstance(value, expected):
            raise ValueError(
                f"{entry.name} of this repro is {str(value)[:40]!r}: expected {declared}"
            )
        values[entry.name] = value
    return values


def _load_input(body: Any) -> ReproInput:
    if not isinstance(body, Mapping) or "name" not in body:
        raise ValueError(f"an input of this repro has no name: {str(body)[:80]}")
    values = _check_types(ReproInput, body)
    for name in ("shape", "stride"):
        if values.get(name) is not None:
            values[name] = tuple(
                size if isinstance(size, int) else str(size) for size in values[name]
            )
    return ReproInput(**values)


def _drop_defaults(value: Any) -> dict[str, Any]:
    defaults = {
        entry.name: entry.default_factory()
        if entry.default_factory is not MISSING
        else entry.default
        for entry in fields(value)
    }
    return {name: part for name, part in asdict(value).items() if part != defaults[name]}


# As in inductor's LoweringException and its checks of an operation's results.
_OPERATION = re.compile(r"^\s*(?:target: |Error in op: (?:torch\.ops\.)?)(\S+)$", re.MULTILINE)


def find_operation(message: str | None) -> str | None:
    """Return the operation in an error's message."""
    match = _OPERATION.search(message or "")
    return match[1] if match else None


_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"(?<![A-Za-z_])-?\d+(?!x…)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PATH = re.compile(r"(?:/[^\s'\":,;]+)+")
_QUOTED = re.compile(r"'[^']{40,}'|\"[^\"]{40,}\"")


def normalize_error_message(message: str | None) -> str:
    """Return an error's first line without numbers, addresses, paths and long texts."""
    line = next((part.strip() for part in (message or "").splitlines() if part.strip()), "")
    for pattern, instead in ((_ADDRESS, "0x…"), (_PATH, "/…"), (_QUOTED, "'…'"), (_NUMBER, "N")):
        line = pattern.sub(instead, line)
    return line[:300]


def failure_fingerprint(manifest: ReproManifest) -> str:
    subject = manifest.operation or manifest.function
    parts = (
        manifest.kind,
        manifest.error_type or manifest.signal,
        normalize_error_message(manifest.message),
        subject,
    )
    body = "\x1e".join("\x00" if part is None else part for part in parts)
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def program_digest(program: str, inputs: Iterable[ReproInput] = ()) -> str:
    lines = (line.split(" # File:")[0].split("#")[0].rstrip() for line in program.splitlines())
    body = "\n".join(line for line in lines if line)
    specs = [(entry.kind, entry.dtype, entry.shape, entry.stride, entry.device) for entry in inputs]
    return hashlib.sha256(f"{body}\x1e{specs!r}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
