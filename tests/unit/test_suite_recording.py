"""The recording of whole suites, and what the docs say of it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

import pytest

from benchmarks.harness.suite_recording import COLUMNS, Record, summarize
from compileboard.collectors.bench import suites

ROOT = Path(__file__).parents[2]
MODES = {"inference": "bfloat16", "training": "AMP"}
THIRD_PARTY = ("torchvision", "timm", "transformers")


@pytest.fixture(scope="module")
def recorded() -> Sequence[Record]:
    with (ROOT / "tests/data/suites/h200.csv").open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return list(reader)


@pytest.mark.parametrize("mode", MODES)
def test_every_model_of_the_catalogues_has_a_status(recorded: Sequence[Record], mode: str) -> None:
    statuses = {
        (row["suite"], row["model"]): row["status"] for row in recorded if row["mode"] == mode
    }
    assert set(statuses) == {(ref.suite, ref.name) for ref in suites.list_models(THIRD_PARTY)}
    assert set(statuses.values()) == {"measured", "failed"}
    assert all(
        row["reason"] not in ("", "timeout") for row in recorded if row["status"] == "failed"
    )


@pytest.mark.parametrize("mode", MODES)
def test_docs_have_the_figures_of_the_recording(recorded: Sequence[Record], mode: str) -> None:
    docs, readme = (ROOT / "docs/benchmarks.md").read_text(), (ROOT / "README.md").read_text()
    rows = [row for row in recorded if row["mode"] == mode]
    for line in summarize(rows):
        suite = line.what.partition(",")[0]
        (written,) = [
            text
            for text in docs.splitlines()
            if text.startswith(f"| {suite}, {mode}, {MODES[mode]} |")
        ]
        measured, total = line.ours.split(" of ")
        assert f"| {total} | {measured} | {line.reference} | {line.ratio} |" in written
        (shown,) = [text for text in readme.splitlines() if text.startswith(f"| {suite} |")]
        assert (
            shown.split(" | ")[1 + list(MODES).index(mode)].rstrip(" |")
            == f"{line.ours}, {line.reference.split()[0]}"
        )
    speedups = [float(row["speedup"]) for row in rows if row["speedup"]]
    prose = " ".join((ROOT / "docs/bench.md").read_text().split())
    assert f"{len(speedups)} of the {len(rows)}" in prose.partition("Choose models")[0]
    assert f"{geometric_mean(speedups):.1f}×" in prose
