"""A command line of upstream's harness is taken: its flags, their spellings, its suites' names."""

from __future__ import annotations

import pytest

from compileboard.collectors.bench import suites
from compileboard.collectors.cli.main import main
from tests.unit.bench.plan.test_bench_settings import parse


@pytest.mark.parametrize("flag", ["--prims-nvfuser", "--nnc", "--speedup-fx2trt", "--torch_onnx_patch", "--print-fx"])
def test_what_is_not_here_says_what_replaced_it(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", flag]) == 2
    assert f"{flag.replace('_', '-')} is not here: " in capsys.readouterr().err


def test_a_value_of_a_refused_flag_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--xla-tolerance", "0.1"], ["--xla_tolerance=0.1"]):
        assert main(["bench", *words]) == 2
        assert "--xla-tolerance is not here: torch_xla has no wheel" in capsys.readouterr().err


def test_what_needs_nothing_is_taken_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    parse("--stats", "--cold_start_latency", "--per_process_memory_fraction=0.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "compileboard: --stats is not needed: torch's counters are recorded with every result",
        "compileboard: --cold-start-latency is not needed: compile time is always that of empty caches",
    ]


def test_underscores_are_upstreams_spelling_and_values_keep_theirs() -> None:
    request = parse("--batch_size=4", "--profile_dynamo_cache_lookup", "--only", "--my_model")
    assert (request.given["batch_size"], request.given["profile_dynamo_cache_lookup"]) == (4, True)
    assert request.only == "--my_model"


def test_upstreams_suites_are_ours() -> None:
    assert suites.list_models(["huggingface"]) == suites.list_models(["transformers", "huggingface"])
    assert {ref.suite for ref in suites.list_models(["timm_models"])} == {"timm"}
    with pytest.raises(suites.UnknownSuite, match=r"'torchbench'; .*timm \(timm_models\).*torchvision has its vision"):
        suites.list_models(["torchbench"])
