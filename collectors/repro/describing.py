"""Describe a repro and the answers of its commands for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.repros import ReproInput
from compileboard.collectors.repro.repro import Repro, advise_passing
from compileboard.collectors.terminal.run_summary import printable
from compileboard.collectors.terminal.values import collector_command, format_table

MAX_INPUTS, MAX_MESSAGE_LINES, MAX_DIFFERENCES = 20, 8, 12


def describe_repro(repro: Repro) -> str:
    manifest = repro.manifest
    source = (
        f"{manifest.file}:{manifest.line}" if manifest.file and manifest.line else manifest.file
    )
    facts = [
        ("failure", _describe_failure(repro)),
        ("function", " · ".join(part for part in (manifest.function, source) if part)),
        ("graph", _describe_graph(repro)),
        ("operation", manifest.operation),
        ("backend", manifest.backend),
        ("compiler", manifest.compiler),
        (
            "versions",
            ", ".join(
                f"{name} {version}" for name, version in manifest.versions.items() if version
            ),
        ),
        ("device", manifest.device),
        ("preload", ", ".join(manifest.preload)),
        ("settings", _describe_settings(repro)),
    ]
    lines = [repro.name, *(f"  {name:<10} {printable(text)}" for name, text in facts if text)]
    if manifest.message:
        message = [line for line in manifest.message.splitlines() if line.strip()]
        lines += ["", *(f"  {printable(line)[:200]}" for line in message[:MAX_MESSAGE_LINES])]
    lines += _describe_specs(manifest.inputs, repro)
    answers = list_answers(repro)
    if answers:
        lines += ["", "results", *(f"  {_describe_answer(answer)}" for answer in answers)]
    if repro.distrust is not None:
        lines += ["", f"  Not your own code: {repro.distrust}. It runs only with --trust."]
    if manifest.compiler is not None:
        own = f"  The program's own compiler {manifest.compiler} got this graph: only the program"
        return "\n".join([*lines, "", f"{printable(own)} runs it again."])
    short = repro.id if repro.id is not None else str(repro.path or repro.name)
    words = [
        "repro",
        "run",
        short,
        *(["--server", repro.server.server] if repro.server is not None else []),
    ]
    arguments = {"database": repro.database} if repro.database is not None else {}
    trust = " --trust" if repro.distrust is not None else ""
    lines += ["", "  " + collector_command(*words, **arguments) + trust]
    return "\n".join(lines)


def _describe_failure(repro: Repro) -> str:
    manifest = repro.manifest
    what = manifest.error_type or manifest.signal
    where = {
        "compile": "while it was compiled",
        "runtime": "while it ran",
        "crash": "the process died",
    }
    text = where.get(manifest.kind, "a wrong answer")
    if manifest.is_asynchronous:
        text = "reported after the graph that ran last"
    if manifest.has_earlier_values:
        text += " in a later call than that of its values"
    return f"{what}, {text}, {manifest.phase}" if what else f"{text}, {manifest.phase}"


def _describe_graph(repro: Repro) -> str:
    manifest = repro.manifest
    count = (
        f"{manifest.node_count} operations"
        if manifest.node_count is not None
        else "operations not counted"
    )
    other = ", and dynamo's" if repro.dynamo_program is not None else ""
    symbols = ", ".join(f"{name} = {hint}" for name, hint in manifest.symbols.items())
    return f"{count}, level {manifest.level}{other}" + (f"; symbols {symbols}" if symbols else "")


def _describe_settings(repro: Repro) -> str:
    pairs = [
        f"{part}.{name}={value}"
        for part, values in repro.manifest.settings.items()
        for name, value in values.items()
    ]
    return ", ".join(pairs[:8]) + (f" and {len(pairs) - 8} more" if len(pairs) > 8 else "")


def _describe_specs(specs: tuple[ReproInput, ...], repro: Repro) -> list[str]:
    if not specs:
        return []
    rows = [_spec_row(spec, repro) for spec in specs[:MAX_INPUTS]]
    lines = ["", f"inputs ({len(specs)})", *(f"  {line}" for line in format_table(rows))]
    return lines + ([f"  and {len(specs) - MAX_INPUTS} more"] if len(specs) > MAX_INPUTS else [])


def _spec_row(spec: ReproInput, repro: Repro) -> list[str]:
    if spec.kind != "tensor":
        value = f"{spec.expression} = {spec.value}" if spec.expression else str(spec.value)
        return [printable(spec.name), spec.kind, value if spec.kind != "none" else "", "", ""]
    shape = "×".join(str(size) for size in spec.shape or ()) or "scalar"
    layout = f"stride {tuple(spec.stride)}" if spec.stride and not _is_contiguous(spec) else ""
    state = "recorded" if repro.has_values(spec) else f"{spec.values.replace('_', ' ')}: drawn"
    return [
        printable(spec.name),
        spec.dtype or "",
        shape,
        printable(layout),
        f"{spec.device or 'cpu'}, values {state}",
    ]


def _is_contiguous(spec: ReproInput) -> bool:
    from compileboard.collectors.formats.torch_repro import contiguous_strides

    return spec.stride == contiguous_strides(spec.shape or ())


def list_answers(repro: Repro) -> list[dict[str, Any]]:
    if repro.database is not None and repro.id is not None:
        from compileboard.collectors.store.connection import open_reader
        from compileboard.collectors.store.repros import list_results

        with closing(open_reader(repro.database)) as connection:
            return [dict(vars(result)) for result in list_results(connection, repro.id)]
    folder = Path(f"{repro.path or repro.name}.repro")
    answers = []
    for path in sorted(folder.glob("*-*.json")) if folder.is_dir() else ():
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(body, dict) and "command" in body and "status" in body:
            answers.append(body)
    return sorted(answers, key=lambda body: -int(body.get("started_us") or 0))


def _describe_answer(answer: Mapping[str, Any]) -> str:
    parts = [f"{answer['command']}: {answer['status']}", answer.get("operation")]
    if answer.get("node_count") is not None:
        parts.append(f"{answer['node_count']} operations")
    parts += [
        f"{float(answer.get('seconds') or 0):.1f} s",
        answer.get("torch_version") and f"torch {answer['torch_version']}",
    ]
    return printable(", ".join(str(part) for part in parts if part))


def describe_rerun(repro: Repro, answer: Mapping[str, Any]) -> str:
    sentences = {
        "same": f"Fails here as it was recorded: {answer['failure']}.",
        "other": f"Fails here in another way: {answer['failure']}. Recorded: {answer['expected']}.",
        "passes": "Passes here.",
        "limited": f"Not answered: it {answer['failure']}; --timeout and --memory allow more.",
    }
    if answer["status"] == "same" and answer["expected"] is None:
        sentences["same"] = f"Fails here: {answer['failure']}."
    lines = [sentences[answer["status"]]]
    lines += advise_passing(repro.manifest.preload) if answer["status"] == "passes" else []
    return "\n".join([*lines, *_describe_trial(answer)])


def describe_check(repro: Repro, answer: Mapping[str, Any]) -> str:
    count = len(answer["differences"])
    if answer["status"] == "passes":
        sentence = "Compiled and eager agree."
    elif count:
        sentence = f"Compiled and eager differ in {count} of what the graph returns and writes."
    else:
        sentence = f"Could not be compared: {answer['failure']}."
    return "\n".join([sentence, *_describe_trial(answer)])


def _describe_trial(answer: Mapping[str, Any]) -> list[str]:
    how = f"torch {answer['torch_version']}, {answer['seconds']:.1f} s, level {answer['level']}"
    return [*_describe_differences(answer), *_describe_drawn(answer), how]


def _describe_differences(answer: Mapping[str, Any]) -> list[str]:
    lines = []
    for entry in answer["differences"][:MAX_DIFFERENCES]:
        error, eager_error = entry.get("error"), entry.get("eager_error")
        parts = [f"  {entry['subject']}: {str(entry['status']).replace('_', ' ')}"]
        parts += [f"error {error:.2g}"] if error is not None else []
        parts += [f"eager's own {eager_error:.2g}"] if eager_error is not None else []
        lines.append(", ".join(parts))
    more = len(answer["differences"]) - MAX_DIFFERENCES
    return lines + ([f"  and {more} more"] if more > 0 else [])


def _describe_drawn(answer: Mapping[str, Any]) -> list[str]:
    drawn = answer["random_inputs"]
    if not drawn:
        return []
    hint = "" if answer["status"] == "same" else "; record them with `run --repro-inputs`"
    return [
        (
            f"{len(drawn)} of {answer['input_count']} inputs have no recorded values and were "
            f"drawn{hint}."
        )
    ]


def describe_inputs(answer: Mapping[str, Any]) -> str:
    rows = []
    for row in answer["inputs"]:
        if "dtype" not in row:
            rows.append([row["name"], "", str(row["value"]), ""])
            continue
        shape = "×".join(map(str, row["shape"])) or "scalar"
        largest = f", largest {row['largest']:.3g}" if "largest" in row else ""
        nan = f", {row['nan_count']} NaN" if row.get("nan_count") else ""
        rows.append(
            [row["name"], row["dtype"], shape, f"{row['device']}, {row['values']}{largest}{nan}"]
        )
    return "\n".join(
        [*format_table(rows), f"written to {answer['output']}: torch.load(FILE) gives them by name"]
    )
