"""A command line of upstream's harness is taken: its flags, their spellings, its suites' names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compileboard.collectors.bench import suites
from compileboard.collectors.bench.plan.preflight import REFUSED, SHORT, TAKEN
from compileboard.collectors.cli.bench import bench
from compileboard.collectors.cli.main import main
from tests.unit.bench.plan.test_bench_settings import parse

UPSTREAM = json.loads(
    (Path(__file__).parents[3] / "data" / "upstream" / "flags.json").read_text(encoding="utf-8")
)
OPTIONS = {flag for param in bench.params if not param.hidden for flag in param.opts}  # type: ignore[attr-defined]


def test_a_flag_is_an_option_or_needs_nothing_or_says_what_replaced_it() -> None:
    assert len(UPSTREAM["flags"]) == 115
    known = OPTIONS | set(TAKEN) | set(REFUSED) | set(SHORT.values())
    spellings = {
        word for flag, others in UPSTREAM["flags"].items() for word in (flag, *others)
    } | set(UPSTREAM["newer"])
    assert {
        word
        for word in spellings
        if (word.replace("_", "-") if word[:2] == "--" else word) not in known
    } == set()
    assert (set(TAKEN) | set(REFUSED)) <= {
        *UPSTREAM["flags"],
        *UPSTREAM["newer"],
        *UPSTREAM["older"],
    }


def test_the_page_lists_every_flag_where_it_belongs() -> None:
    """A flag that is refused because it is not measured yet stands among those that work: it
    will.
    """
    page = (Path(__file__).parents[4] / "docs" / "bench.md").read_text(encoding="utf-8")
    tables = re.split(r"\| these [a-z ]+ \| [a-z]+ \|", page[page.index("## A command line") :])[1:]
    listed = [
        set(re.findall(r"`(--[a-z0-9-]+)`", re.sub(r" \| [^|]* \|$", "", table, flags=re.M)))
        for table in tables
    ]
    works = set(re.findall(r"`(--[a-z0-9-]+)`", tables[0].split("\n\n")[0]))
    refused = {
        flag for flag in REFUSED if flag not in OPTIONS and REFUSED[flag].startswith("is not here")
    }
    assert listed[1] == set(TAKEN) and listed[2] == refused
    flags = {*UPSTREAM["flags"], *UPSTREAM["newer"], *UPSTREAM["older"]}
    assert {flag.replace("_", "-") for flag in flags} == works | set(TAKEN) | refused


@pytest.mark.parametrize(
    "flag", ["--prims-nvfuser", "--nnc", "--speedup-fx2trt", "--torch_onnx_patch", "--print-fx"]
)
def test_what_is_not_here_says_what_replaced_it(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", flag]) == 2
    assert f"{flag.replace('_', '-')} is not here: " in capsys.readouterr().err


def test_a_value_of_a_refused_flag_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--xla-tolerance", "0.1"], ["--xla_tolerance=0.1"]):
        assert main(["bench", *words]) == 2
        assert "--xla-tolerance is not here: torch_xla has no wheel" in capsys.readouterr().err


def test_what_needs_nothing_is_taken_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    parse("--stats", "--per_process_memory_fraction=0.5", "-f")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "compileboard: --stats prints no counters here: the run's page has them",
        "compileboard: --fast is not needed: upstream lists no model of these suites as slow",
    ]


def test_underscores_are_upstreams_spelling_and_values_keep_theirs() -> None:
    request = parse("--batch_size=4", "--profile_dynamo_cache_lookup", "--only", "--my_model")
    assert (request.given["batch_size"], request.given["profile_dynamo_cache_lookup"]) == (4, True)
    assert request.only == "--my_model"


def test_upstreams_suites_are_ours() -> None:
    assert suites.list_models(["huggingface"]) == suites.list_models(
        ["transformers", "huggingface"]
    )
    assert {ref.suite for ref in suites.list_models(["timm_models"])} == {"timm"}
    with pytest.raises(
        suites.UnknownSuite,
        match=r"'torchbench'; .*timm \(timm_models\).*torchvision has its vision",
    ):
        suites.list_models(["torchbench"])
