"""Compare what the API shows of trace logs with the logs themselves: `python -m
tests.unit.app.runs.check_logs PATH …`.

A path is a log, packed by xz or not, a folder of logs or a tar archive. Each log is imported into a
database of its own. The reader here knows JSON lines and TABs alone: nothing of it is shared with
the program. Exit code 1 if anything is unequal.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from flask.testing import FlaskClient

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions

METRICS = re.compile(r"^(aot_autograd_backward_|bwd_)?compilation_metrics(_runtime)?$")
CONFIGS = ("dynamo_config", "inductor_config", "functorch_config", "compiler_config")
GUARDS = ("dynamo_cpp_guards_str", "dynamo_guards")
EVENTS = ("dynamo_graph_break_reason", "recompile_reasons", "dynamo_error")
_HEAD = re.compile(rb"^(?:\[rank\d+\]:)?[VDIWEC]\d{4} [\d:.]+ +\d+ [^\]\n]*\] \{")


class RawRecord(NamedTuple):
    """One record as it stands in a log; `name` is an artifact's own where it is one."""

    name: str
    offset: int
    header: dict[str, Any]
    metadata: Any
    text: str | None

    @property
    def compile_id(self) -> str | None:
        """Return the compile id of the envelope, as torch prints it."""
        parts = [self.header.get(key) for key in ("frame_id", "frame_compile_id")]
        written = "/".join(str(part) for part in parts if part is not None)
        autograd = self.header.get("compiled_autograd_id")
        return (
            "/".join(filter(None, (None if autograd is None else f"!{autograd}", written))) or None
        )


def read_raw(log: bytes) -> Iterator[RawRecord]:
    """Yield a log's records: a line that begins with a prefix, and the lines behind it that begin
    with a TAB.
    """
    offset, lines = 0, log.split(b"\n")
    index = 0
    while index < len(lines):
        line, begin = lines[index], offset
        offset += len(line) + 1
        index += 1
        text = []
        while index < len(lines) and lines[index].startswith(b"\t"):
            text.append(lines[index][1:])
            offset += len(lines[index]) + 1
            index += 1
        if not _HEAD.match(line):
            continue
        header = json.loads(line[line.index(b"] {") + 2 :])
        name = next(iter(header))
        metadata = header[name]
        if name == "artifact":
            name = metadata["name"]
        if name != "str":
            yield RawRecord(
                name, begin, header, metadata, b"\n".join(text).decode() if text else None
            )


class Comparison:
    """Counts of values that were compared, and the ones that are unequal, by kind."""

    def __init__(self) -> None:
        self.compared: Counter[str] = Counter()
        self.unequal: dict[str, list[str]] = {}

    def check(self, kind: str, where: str, raw: Any, shown: Any) -> None:
        """Compare one value."""
        self.compared[kind] += 1
        if raw != shown:
            self.unequal.setdefault(kind, []).append(
                f"{where}: {str(raw)[:300]!r} is shown as {str(shown)[:300]!r}"
            )

    def check_all(self, kind: str, where: str, raw: Counter[Any], shown: Counter[Any]) -> None:
        """Compare values that have no order."""
        self.compared[kind] += raw.total()
        for value in (raw - shown) + (shown - raw):
            counts = f"{raw[value]} times in the log, {shown[value]} times shown"
            self.unequal.setdefault(kind, []).append(f"{where}: {str(value)[:300]!r} {counts}")

    def report(self) -> str:
        """Write a line for each kind, and the unequal values."""
        lines = [
            f"{kind:<16} {count:>7} compared, {len(self.unequal.get(kind, []))} unequal"
            for kind, count in sorted(self.compared.items())
        ]
        lines += [
            f"  {kind}: {example}"
            for kind, examples in self.unequal.items()
            for example in examples[:20]
        ]
        return "\n".join(
            [*lines, f"{sum(map(len, self.unequal.values()))} unequal of {self.compared.total()}"]
        )


def check_log(log: bytes, label: str, comparison: Comparison) -> None:
    """Import a log and compare every record of it with the API's answers."""
    with TemporaryDirectory() as folder:
        path, database = Path(folder) / "trace.log", Path(folder) / "board.db"
        path.write_bytes(log)
        import_paths([str(path)], str(database), LoadOptions(), print_line=lambda _line: None)
        client = create_app(Settings(db=str(database))).test_client()
        run_id = client.get("/api/v1/runs").get_json()["data"][0]["id"]
        check_run(list(read_raw(log)), _Run(client, run_id), label, comparison)


class _Run:
    def __init__(self, client: FlaskClient, run_id: str) -> None:
        self._client = client
        self.address = f"/api/v1/runs/{run_id}"

    def get(self, path: str = "") -> Any:
        answer = self._client.get(self.address + path)
        assert answer.status_code == 200, answer.text
        return answer.get_json()["data"]

    def list(self, path: str) -> list[dict[str, Any]]:
        rows, cursor = [], ""
        while cursor is not None:
            answer = self._client.get(
                f"{self.address}/{path}?limit=200{cursor and f'&cursor={cursor}'}"
            ).get_json()
            rows += answer["data"]
            cursor = answer["next"]
        return rows


def check_run(records: list[RawRecord], run: _Run, label: str, comparison: Comparison) -> None:
    """Compare a log's records with what a run shows of them."""
    detail = run.get()
    by_name: dict[str, list[RawRecord]] = {}
    for record in records:
        by_name.setdefault("metrics" if METRICS.match(record.name) else record.name, []).append(
            record
        )
    _check_metrics(by_name.pop("metrics", []), run, detail, label, comparison)
    _check_spans(by_name.pop("chromium_event", []), run, label, comparison)
    _check_breaks(by_name.get("dynamo_graph_break_reason", []), run, detail, label, comparison)
    _check_recompiles(by_name.get("recompile_reasons", []), run, detail, label, comparison)
    _check_guards(
        [record for name in GUARDS for record in by_name.get(name, [])], run, label, comparison
    )
    _check_texts([record for named in by_name.values() for record in named], run, label, comparison)


def _check_metrics(
    records: list[RawRecord], run: _Run, detail: dict[str, Any], label: str, comparison: Comparison
) -> None:
    shown = {row["sequence"]: row for row in run.list("compilations")}
    comparison.check("metric records", label, len(records), len(shown))
    comparison.check(
        "metric records", f"{label} count of the run", len(records), detail["record_count"]
    )
    for record in records:
        row = shown.get(record.offset, {})
        comparison.check(
            "compile ids", f"{label} at {record.offset}", record.compile_id, row.get("compile_id")
        )
        for name, value in record.metadata.items():
            where = f"{label} at {record.offset} {name}"
            if name in CONFIGS and isinstance(value, str):
                config = row.get(name) or {}
                value = json.loads(value)
                comparison.check(
                    "metric fields",
                    where,
                    value,
                    run.get(f"/configs/{config.get('config_hash')}")["values"],
                )
            elif name != "compile_id" and (value is not None or row.get(name) is None):
                comparison.check("metric fields", where, value, row.get(name))
    versions = {
        name: next((v for r in records if (v := r.metadata.get(raw))), None)
        for name, raw in (
            ("torch_version", "pytorch_version"),
            ("cuda_version", "cuda_version"),
            ("triton_version", "triton_version"),
        )
    }
    for name, version in versions.items():
        if version:
            comparison.check("versions", f"{label} {name}", version, detail[name])


def _check_spans(records: list[RawRecord], run: _Run, label: str, comparison: Comparison) -> None:
    raw: Counter[Any] = Counter()
    for record in records:
        event = json.loads(record.text or "null")
        at_us = int(event["ts"] + 0.5)
        raw[event["ph"], event["name"], at_us, record.compile_id or _written(event)] += 1
    shown: Counter[Any] = Counter()
    for event in run.get("/timeline")["traceEvents"]:
        compile_id = (event["args"] or {}).get("compile_id") if event["ph"] != "M" else None
        if event["ph"] in "XB":
            shown["B", event["name"], event["ts"], compile_id] += 1
        if event["ph"] == "X":
            shown["E", event["name"], event["ts"] + event["dur"], compile_id] += 1
        if event["ph"] == "i":
            shown["i", event["name"], event["ts"], compile_id] += 1
    comparison.check_all("timeline events", label, raw, shown)


def _written(event: dict[str, Any]) -> str | None:
    compile_id = (event.get("args") or {}).get("compile_id")
    return None if compile_id in (None, "None") else compile_id


def _check_breaks(
    records: list[RawRecord], run: _Run, detail: dict[str, Any], label: str, comparison: Comparison
) -> None:
    comparison.check(
        "breaks", f"{label} count of the run", len(records), detail["graph_break_count"]
    )
    rows = run.list("graph_breaks")
    comparison.check_all(
        "break texts", label, Counter(r.text for r in records), Counter(row["text"] for row in rows)
    )
    for row in rows:
        (text,) = {record.text for record in records if record.text == row["text"]} or {""}
        where = f"{label} break {row['id']}"
        headline = re.search(r"^Graph break in user code at (.+):(\d+)$", text, re.MULTILINE)
        if headline:
            raw = headline[1].rsplit("/", 1)[-1], int(headline[2])
            comparison.check(
                "break lines", where, raw, (row["torch_file"].rsplit("/", 1)[-1], row["torch_line"])
            )
            frames = re.findall(r'File "(?:.*/)?(.+)", line (\d+)', text) or [raw]
            own = (row["file"] or "").rsplit("/", 1)[-1], str(row["line"])
            comparison.check("break lines", where, True, own in {*frames, (raw[0], str(raw[1]))})
        reason = re.search(r"^(?:Graph Break )?Reason: (.+)$", text, re.MULTILINE)
        if reason:
            rest = " ".join(text[reason.start() :].split())
            comparison.check("break reasons", where, True, " ".join(row["reason"].split()) in rest)


def _check_recompiles(
    records: list[RawRecord], run: _Run, detail: dict[str, Any], label: str, comparison: Comparison
) -> None:
    comparison.check(
        "recompiles", f"{label} count of the run", len(records), detail["recompile_count"]
    )
    raw = Counter(
        (record.compile_id, " ".join(reason.split("  # ")[0].split()))
        for record in records
        for reason in _entries(record.text or "")
    )
    shown = Counter(
        (row["compile_id"], " ".join(f"{guard['cache_entry']}: {guard['reason']}".split()))
        for row in run.list("recompiles")
        for guard in row["guards"]
    )
    comparison.check_all("recompiles", label, raw, shown)


def _entries(text: str) -> list[str]:
    """Return what each cache entry failed on: torch writes a list, or the text of the only one."""
    return json.loads(text) if text.startswith("[") else [text]


def _check_guards(records: list[RawRecord], run: _Run, label: str, comparison: Comparison) -> None:
    sets = {row["artifact_id"]: row for row in run.list("guards")}
    artifacts = {row["sequence"]: row for row in run.list("artifacts")}
    for record in records:
        row = sets.get(artifacts.get(record.offset, {}).get("id"), {})
        leaves = [
            line
            for line in (record.text or "").split("\n")
            if re.match(r"^[| ]*\+- (?!\w*Manager\b)\w+: ", line)
        ]
        if record.name == "dynamo_cpp_guards_str" and "TREE_GUARD_MANAGER" in (record.text or ""):
            comparison.check(
                "guards", f"{label} at {record.offset}", len(leaves), row.get("guard_count")
            )


def _check_texts(records: list[RawRecord], run: _Run, label: str, comparison: Comparison) -> None:
    shown = {row["sequence"]: row for row in run.list("artifacts")}
    for record in records:
        digest = record.header.get("has_payload")
        if digest is None or record.name in EVENTS:
            continue
        where = f"{label} at {record.offset} {record.name}"
        assert (
            record.text is None
            or md5(record.text.encode()).hexdigest() == digest
            or record is records[-1]
        ), where
        row = shown.get(record.offset)
        comparison.check("names of texts", where, record.name, row and row["name"])
        text = run.get(f"/artifacts/{row['id']}")["text"] if row else None
        metadata = record.metadata if isinstance(record.metadata, dict) else {}
        if "artifact" in record.header:
            metadata = {
                key: value for key, value in metadata.items() if key not in ("name", "encoding")
            }
        comparison.check(
            "metadata", where, _without_stacks(metadata), row and _without_stacks(row["metadata"])
        )
        comparison.check(
            "texts", where, digest, None if text is None else md5(text.encode()).hexdigest()
        )


def _without_stacks(metadata: dict[str, Any]) -> dict[str, Any]:
    """Leave out stacks: a log has numbers for the names of their files."""
    return {key: value for key, value in metadata.items() if not key.endswith("stack")}


def find_logs(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the logs that a path names, each with a label."""
    if path.is_dir():
        for inner in sorted(path.iterdir()):
            yield from find_logs(inner)
    elif path.name.endswith((".tar.xz", ".tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(".log") else None
                if file:
                    yield f"{path.name}/{member.name}", file.read()
    elif path.suffix == ".xz" and ".json" not in path.name:
        yield path.name, lzma.decompress(path.read_bytes())
    elif path.suffix == ".log":
        yield path.name, path.read_bytes()


def main(paths: list[str]) -> int:
    """Compare the logs below the paths; print what was compared."""
    comparison = Comparison()
    for path in paths:
        for label, log in find_logs(Path(path)):
            check_log(log, label, comparison)
    sys.stdout.write(comparison.report() + "\n")
    return 1 if comparison.unequal or not comparison.compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
