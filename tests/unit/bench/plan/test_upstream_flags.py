"""A command line of upstream's harness is taken: its flags, their spellings, its suites' names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compileboard.collectors.bench import suites
from compileboard.collectors.cli.bench import UNNEEDED, bench
from compileboard.collectors.cli.main import main
from tests.unit.bench.plan.test_bench_settings import parse

UPSTREAM = json.loads(
    (Path(__file__).parents[3] / "data" / "upstream" / "flags.json").read_text(encoding="utf-8")
)
OPTIONS = {flag for param in bench.params if not param.hidden for flag in param.opts}  # type: ignore[attr-defined]
ALL_OPTIONS = {flag for param in bench.params for flag in param.opts}


def test_the_page_lists_every_flag_where_it_belongs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "bench-flags.md").read_text(encoding="utf-8")
    tables = re.split(r"\| these [a-z ]+ \| [a-z]+ \|", page[page.index("## A command line") :])[1:]
    works = set(re.findall(r"`(--[a-z0-9-]+)`", tables[0].split("\n\n")[0]))
    unneeded, absent = (
        set(re.findall(r"`(--[a-z0-9-]+)`", re.sub(r" \| [^|]* \|$", "", table, flags=re.M)))
        for table in tables[1:]
    )
    assert (works <= OPTIONS, unneeded, absent & ALL_OPTIONS) == (True, set(UNNEEDED), set())
    flags = {*UPSTREAM["flags"], *UPSTREAM["newer"], *UPSTREAM["older"]}
    assert {flag.replace("_", "-") for flag in flags} == works | unneeded | absent


def test_every_spelling_of_a_flag_that_works_is_taken() -> None:
    for flag, others in UPSTREAM["flags"].items():
        if flag.replace("_", "-") in ALL_OPTIONS:
            assert {
                word.replace("_", "-") if word[:2] == "--" else word for word in others
            } <= ALL_OPTIONS, flag


def test_a_flag_that_is_not_here_is_an_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--prims-nvfuser"]) == 2
    assert "No such option" in capsys.readouterr().err


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
        ValueError,
        match=r"'torchbench'; .*timm \(timm_models\).*torchvision has its vision",
    ):
        suites.list_models(["torchbench"])
