"""Upstream's files as tests read them."""

from __future__ import annotations

import lzma
from pathlib import Path

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.formats.reader import read_results
from compileboard.collectors.formats.result_file import ResultFile

UPSTREAM = Path(__file__).parents[2] / "data" / "upstream"
RECORDED, MADE = UPSTREAM / "recorded", UPSTREAM / "made"
HEAD = "inductor_{}_float32_inference_cuda_{}"


def read(path: Path) -> ResultFile:
    """Read one of the files."""
    data = path.read_bytes()
    return read_results(path.name, lzma.decompress(data) if path.suffix == ".xz" else data)


def read_text(
    text: str, name: str = "inductor_torchbench_amp_training_cuda_performance.csv"
) -> ResultFile:
    """Read a text as a file."""
    return read_results(name, text.encode())


def by_model(file: ResultFile) -> dict[str, BenchMeasured]:
    """Find results by their models."""
    return {result.model: result for result in file.results}
