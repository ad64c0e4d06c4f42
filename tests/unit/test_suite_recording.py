"""The recording of whole suites, and what the docs say of it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

import pytest

from benchmarks.harness.suite_recording import COLUMNS, summarize
from compileboard.collectors.bench import suites

ROOT = Path(__file__).parents[2]
THIRD_PARTY = ("torchvision", "timm", "transformers")


@pytest.fixture(scope="module")
def recorded() -> Sequence[Mapping[str, str]]:
    with (ROOT / "tests/data/suites/h200.csv").open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return list(reader)


def test_every_model_of_the_catalogues_has_a_status_in_inference(recorded: Sequence[Mapping[str, str]]) -> None:
    inference = {(row["suite"], row["model"]): row["status"] for row in recorded if row["mode"] == "inference"}
    assert set(inference) == {(ref.suite, ref.name) for ref in suites.list_models(THIRD_PARTY)}
    assert set(inference.values()) == {"measured", "failed"}
    assert all(row["reason"] for row in recorded if row["status"] == "failed")


def test_docs_have_the_figures_of_the_recording(recorded: Sequence[Mapping[str, str]]) -> None:
    docs = (ROOT / "docs/benchmarks.md").read_text()
    inference = [row for row in recorded if row["mode"] == "inference"]
    for line in summarize(inference):
        suite = line.what.partition(",")[0]
        (written,) = [text for text in docs.splitlines() if text.startswith(f"| {suite}, inference, bfloat16 |")]
        measured, total = line.ours.split(" of ")
        assert f"| {total} | {measured} | {line.reference} | {line.ratio} |" in written
    speedups = [float(row["speedup"]) for row in inference if row["speedup"]]
    assert f"ran {len(speedups)} of the {len(inference)} models" in (ROOT / "docs/bench.md").read_text()
    assert f"{geometric_mean(speedups):.1f}×" in (ROOT / "docs/bench.md").read_text()
