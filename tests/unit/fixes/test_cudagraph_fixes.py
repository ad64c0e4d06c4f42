"""Which fix is named for a CUDA graph that is recorded again, or not used."""

from __future__ import annotations

import pytest

from compileboard.collectors.fixes.cudagraph_fixes import (
    MANY_SIZES,
    REASONS,
    suggest_overwritten,
    suggest_recorded_again,
    suggest_skipped,
)
from compileboard.collectors.fixes.fix import list_fixes

MUTATED = "skipping cudagraphs due to mutated inputs (1 instances)."


def test_every_key_has_a_fix_and_every_fix_a_key() -> None:
    assert {key for fix in list_fixes("cudagraph") for key in fix.keys} == {
        *REASONS.values(),
        *(MANY_SIZES, "mutated_input", "cpu_tensor", "output_overwritten"),
    }


@pytest.mark.parametrize(
    ("status", "first"),
    [
        ("StaticInputIdxMismatch", "parameter_copied"),
        ("CudagraphManagedIdxMismatch", "passed_clone"),
        ("ExpectedDeadIndicesBeforeGraphMismatch", "kept_clone"),
        ("PathNotEnded", "kept_clone"),
    ],
)
def test_torchs_word_has_its_fix(status: str, first: str) -> None:
    assert suggest_recorded_again(status)[0].id == first


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("cache[:, position] = key", "mutation_static"),
        ("self.cache.index_copy_(0, position, x)", "mutation_static"),
        ("x += 1", "mutation_returned"),
        ("if cache[0] == key:", "mutation_returned"),
        (None, "mutation_returned"),
    ],
)
def test_what_is_written_in_part_is_marked_static_first(line: str | None, first: str) -> None:
    assert suggest_skipped(MUTATED, line)[0].id == first


def test_devices_and_unknown_reasons() -> None:
    for device in ("cpu device (arg1_1)", "multiple devices: device(type='cpu')"):
        (fix,) = suggest_skipped(f"skipping cudagraphs due to {device}")
        assert fix.id == "input_on_gpu"
    assert suggest_skipped("skipping cudagraphs due to incompatible op aten._local") == ()


def test_an_overwritten_output_is_known_by_torchs_message() -> None:
    message = "Error: accessing tensor output of CUDAGraphs that has been overwritten by a run"
    assert [fix.id for fix in suggest_overwritten(message)] == ["step_marked"]
    assert suggest_overwritten("out of memory") == suggest_overwritten(None) == ()
