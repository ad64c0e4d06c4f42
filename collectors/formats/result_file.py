"""A file of results and graph breaks: its cells, its writer, and the keys that identify the
file.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.contract.result_columns import list_upstream

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "amp",
    "quant",
    "notset",
    "int8",
    "fp32",
    "fp16",
    "bf16",
)
DEVICES = ("cpu", "cuda", "xpu", "mps", "rocm", "hpu", "xla", "npu", "mtia")
SUITES = ("torchbench", "huggingface", "timm_models", "timm", "huggingface_llm")
# The plain names that are words of others stand last, and `nothing`, which is a backend too.
UPSTREAM_EXPERIMENTS = (
    *("performance", "accuracy", "coverage", "tolerance", "overhead", "overheads", "xla"),
    *("speedup_torchao", "dynamo_onnx", "speedup", "nothing"),
)
MODES = ("inference", "training")
# The plain names stand last: cudagraphs is a backend of its own and something that inductor does.
BACKENDS = (
    "aot_inductor",
    "aot_eager",
    "dynamo_eager",
    "inductor",
    "export",
    "nothing",
    "onnx",
    "eager",
    "cudagraphs",
)
# What a backend's label has behind its name, in this order.
FLAGS = (
    *(
        "no_cudagraphs",
        "with_cudagraphs",
        "cudagraphs_low_precision",
        "cudagraphs",
        "low_precision",
    ),
    *("cpp_wrapper", "max_autotune", "freezing"),
)
_ANY = "|".join
# Of a suite that is not upstream's the place tells, and so it does of the GPU.
_FULL = re.compile(rf".+?_(?P<suite>[^_]+)_(?:{_ANY(DTYPES)})_(?:{_ANY(MODES)})(?:_.*)?")
_HARDWARE = re.compile(
    rf".*_(?:{_ANY(DEVICES)})_(?P<hardware>[^_]+)(?:_(?:{_ANY(UPSTREAM_EXPERIMENTS)}))?"
)
_SHARD = re.compile(rf"(?<![^_])({_ANY(sorted(SUITES, key=len, reverse=True))})\d+(?![^_])")
_SAME = {
    "overheads": "overhead",
    "speedup": "performance",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}
FILE_WORDS = {
    "quantization": "speedup_torchao",
    "onnx": "dynamo_onnx",
}  # Experiments whose name differs.
_SAME |= {words: experiment for experiment, words in FILE_WORDS.items()}
_SAME["timm"] = "timm_models"  # CI's name of the suite that everything else calls so
_SUFFIX = re.compile(r"\.(?:csv|json|jsonl|npy)$", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_RAW_TIMINGS = re.compile(r"^(?P<stem>.*)-raw_timings-(?P<model>.+)-(?P<device>[a-z]+)$", re.DOTALL)


@dataclass(frozen=True)
class FileNameInfo:
    suite: str | None = None
    dtype: str | None = None
    mode: str | None = None
    device: str | None = None
    hardware: str | None = None
    backend: str | None = None
    experiment: str | None = None
    dynamic: bool = False


def stem_of(name: str) -> str:
    return _SUFFIX.sub("", _PACKED.sub("", re.split(r"[/\\]", name)[-1]))


def read_name(name: str) -> FileNameInfo:
    stem = stem_of(name)
    for ending in (
        "_compilation_metrics",
        "_graph_breaks",
        "_graph_break_deduped",
        "_graph_breaks_deduped",
    ):
        stem = stem.removesuffix(ending)
    words = _NameParts(_SHARD.sub(r"\1", stem).split("_"))
    parts: dict[str, str | None] = {
        "suite": words.remove_first_match(sorted(SUITES, key=len, reverse=True))
    }
    full = _FULL.fullmatch(stem)
    if (
        parts["suite"] is None
        and full
        and full["suite"] not in (*BACKENDS, *DEVICES, "freezing", "autotune", "eager")
    ):
        parts["suite"] = words.remove_first_match([full["suite"]])
    end = words.taken_at if parts["suite"] else 0
    kinds = {"dtype": DTYPES, "mode": MODES, "device": DEVICES, "experiment": UPSTREAM_EXPERIMENTS}
    parts |= {kind: words.remove_first_match(names) for kind, names in kinds.items()}
    is_dynamic = words.remove_first_match(["dynamic"]) is not None
    own = _SAME.get(
        parts["experiment"] or "", parts["experiment"]
    )  # an experiment may name its backend
    parts["backend"] = words.label(end, bool(full)) or (own if own in BACKENDS else None)
    hardware = _HARDWARE.fullmatch(stem)
    if hardware and hardware["hardware"] in words.left:
        parts["hardware"] = hardware["hardware"]
    known = {kind: _SAME.get(word, word) for kind, word in parts.items() if word}
    return FileNameInfo(**known, dynamic=is_dynamic)


class _NameParts:
    def __init__(self, words: list[str]) -> None:
        self._words: list[str | None] = [*words]
        self.taken_at = 0

    @property
    def left(self) -> list[str]:
        return [word for word in self._words if word is not None]

    def remove_first_match(self, names: Iterable[str]) -> str | None:
        for name in names:
            parts = name.split("_")
            for at in range(len(self._words) - len(parts) + 1):
                if self._words[at : at + len(parts)] == parts:
                    self._words[at : at + len(parts)] = [None] * len(parts)
                    self.taken_at = at
                    return name
        return None

    def label(self, end: int, is_full: bool) -> str | None:
        several = [flag for flag in FLAGS if "_" in flag]
        flags = {flag for flag in several if self.remove_first_match([flag])}
        backend = self.remove_first_match(BACKENDS)
        start = 0 if is_full else self.taken_at
        flags |= {flag for flag in FLAGS if self.remove_first_match([flag])}
        others = [word for word in self._words[start:end] if word] if backend or is_full else []
        parts = [backend or "", *(flag for flag in FLAGS if flag in flags), *others]
        if not backend:
            parts = [*others, *(flag for flag in FLAGS if flag in flags)] if others else []
        return "_".join(part for part in parts if part) or None


def damage_stem(stem: str) -> str:
    """Return a stem as PyTorch's `rstrip(".csv")` leaves it in the names of graph-break files."""
    return f"{stem}.csv".rstrip(".csv")


def read_timings_name(stem: str) -> tuple[str, str, str] | None:
    match = _RAW_TIMINGS.match(stem)
    return (match["stem"], match["model"], match["device"]) if match else None


# Of one file, which takes minutes; a suite of upstream's in every configuration has some thousand
MAX_ROWS = 100_000
_RECORDS_OF_RESULT = 16  # The benchmark database's JSON has one record per metric.
_ENCODING = ("utf-8", "surrogatepass")
_LONG_RECORD = 256  # characters: a longer record is remembered by its digest


@dataclass(frozen=True)
class BreakRow:
    model: str
    reason: str
    stack: tuple[tuple[str, int, str], ...]  # file, line, function; outermost first
    line: int


@dataclass(frozen=True)
class ExtraMeasurements:
    model: str
    tag: str | None
    phases_s: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class ResultFile:
    name: str
    # Performance | accuracy | … | graph_breaks | compilation_metrics | raw_timings | summary |
    # unknown
    kind: str
    results: list[BenchMeasured] = field(default_factory=list)
    breaks: list[BreakRow] = field(default_factory=list)
    additions: list[ExtraMeasurements] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    row_count: int = 0
    line_count: int = 0
    records: list[tuple[str, bool]] = field(
        default_factory=list
    )  # each, and whether a clock is in it
    is_full: bool = False  # it holds numbers in full precision: it goes before its twin
    _by_key: dict[tuple[Any, ...], int] = field(default_factory=dict, repr=False)

    @property
    def stem(self) -> str:
        return stem_of(self.name)

    @cached_property
    def named(self) -> FileNameInfo:
        return read_name(self.name)

    def has_room(self, line: int) -> bool:
        most = MAX_ROWS * (_RECORDS_OF_RESULT if self.is_full else 1)
        if self.row_count >= most:
            self.rejects.add("too_many_rows", line, f"{self.name}: more than {most:,}")
        return self.row_count < most

    def mark(self, fields: dict[str, Any]) -> None:
        self.row_count += 1
        # Padding comes later, when a later row has more columns: it is no part of what a row said
        # first.
        values = {name: value for name, value in fields.items() if value not in ("", "0", 0, None)}
        timed = any(_is_timed(value) for value in values.values())
        text = json.dumps(values, sort_keys=True, default=str)
        self.records.append((text if len(text) < _LONG_RECORD else digest(text), timed))

    def add(self, result: BenchMeasured, line: int) -> None:
        if self._by_key.setdefault(result_key(result), len(self.results)) < len(self.results):
            self.rejects.add("duplicate_row", line, result.model)
        else:
            self.results.append(result)

    def make_result(
        self,
        identity: Mapping[str, Any],
        named: FileNameInfo,
        *,
        stem: str,
        number: int,
        line: int,
        **rest: Any,
    ) -> BenchMeasured:
        """Make a result from the identity of its record, and otherwise from the file's name."""
        tag, backend = identity.get("tag"), identity.get("backend") or named.backend
        # The file's name has the configuration's label too: inductor_no_cudagraphs.
        if backend and named.backend and named.backend.startswith(f"{backend}_"):
            backend = named.backend
        return BenchMeasured(
            process_id="",
            sequence=number,
            time_us=0,
            model=identity["model"],
            mode=identity.get("mode") or named.mode,
            dtype=identity.get("dtype") or named.dtype,
            device=identity.get("device") or named.device,
            hardware=identity.get("hardware") or named.hardware,
            # --diff-branch writes a model once for each branch: two series.
            backend=f"{backend or ''}:{tag}" if tag else backend,
            dynamic=bool(identity.get("dynamic")) or named.dynamic,
            batch_size=identity.get("batch_size"),
            world_size=identity.get("world_size") or 1,
            task=name_task(stem, identity["model"], tag),
            origin=f"{self.name}:{line}",
            **rest,
        )

    def keys(self, salt: str = "", *, every: bool = False) -> list[str]:
        """Return the key of the whole file, then the keys it had while it was shorter.

        Without a salt, only records with a measured time count, unless `every` is set: two nights
        in which all models passed have equal verdicts but are different runs. Empty if no record
        counts.
        """
        content = blake2b(
            "\x1e".join(("results", salt, self.kind, self.stem)).encode(*_ENCODING), digest_size=16
        )
        names, is_named = [], bool(salt) or every
        for text, is_timed in self.records:
            content.update(f"\x1e{text}".encode(*_ENCODING))
            is_named |= is_timed
            if is_named:
                names.append(content.hexdigest())
        return names[::-1]


def digest(*parts: str) -> str:
    return blake2b("\x1e".join(parts).encode(*_ENCODING), digest_size=16).hexdigest()


def _is_timed(value: Any) -> bool:
    try:
        number = float(value) if isinstance(value, str | float) else 0.0
    except ValueError:
        return False
    return number == number and abs(number) < 1e15 and number != int(number)


def name_task(stem: str, model: str, tag: str | None = None) -> str:
    return "/".join((stem, model, tag) if tag else (stem, model))


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def result_key(result: BenchMeasured) -> tuple[Any, ...]:
    facts = result.facts
    about = (facts.get("tag"), facts.get("commit"), facts.get("timestamp"))
    return (*list_series(result), result.model, result.dynamic, result.experiment, *about)


def list_series(result: BenchMeasured) -> tuple[Any, ...]:
    """Return the configuration of a result, with its batch size last."""
    return (
        result.suite,
        result.mode,
        result.dtype,
        result.device,
        result.hardware,
        result.backend,
        result.batch_size,
    )


def write_csv(rows: Iterable[Sequence[Any]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode("utf-8", "replace")


# Verdicts of a check that ran to its end. Everything else that an accuracy column says is why it
# did not.
VERDICTS = frozenset(
    ("pass", "fail_accuracy", "eager_two_runs_differ", "eager_variation", "not_bitwise_equivalent")
)
_VERDICTS_OF_BATCH = re.compile(r"^fail_batch_invariance_at_")
SKIPPED = "pass_due_to_skip"
SKIP_COLUMN = "skipped"  # ours: why a model was not measured, in a table that has nothing else
UNKNOWN_FAILURE = "unknown"  # upstream wrote zeros and no word
EXPECTED = "expected, not measured"
UNREADABLE = "its numbers cannot be read"
NOT_RUN = "upstream wrote 0 where nothing was run"

# Experiments whose table is upstream's of speedups.
SPEEDUPS = (
    "performance",
    "overhead",
    "nothing",
    "quantization",
    "onnx",
    "aot_precompile",
    "caching_precompile",
)

# Columns whose numbers upstream writes as %.6f: a plain 0 there is padding.
FLOATS = list_upstream("models", counts=False)
COUNTS = list_upstream("models", counts=True)
_MAX_NUMBER_LENGTH = 64
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def read_status(accuracy: str) -> tuple[str, str | None]:
    if accuracy in VERDICTS or _VERDICTS_OF_BATCH.match(accuracy):
        return "measured", None
    if accuracy == SKIPPED:
        return "skipped", accuracy
    if accuracy in ("", "0", "0.0"):
        return "not_run", NOT_RUN
    return "failed", accuracy


def read_number(text: str) -> float | None:
    text = text.strip()
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def find_fault(name: str, text: str) -> str | None:
    """Return `not_finite` or `bad_number` if a column's text is invalid, else None.

    Unknown columns may hold text and negative numbers.
    """
    value, text = read_number(text), text.strip()
    is_short = len(text) <= _MAX_NUMBER_LENGTH  # the patterns take the square of a long text's time
    if value is None and is_short and (_NOT_FINITE.fullmatch(text) or _NUMBER.fullmatch(text)):
        return "not_finite"
    is_known = name in FLOATS or name in COUNTS
    return "bad_number" if is_known and (value is None or value < 0) else None
