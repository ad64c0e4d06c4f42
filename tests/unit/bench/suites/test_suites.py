"""The catalogues: what they list, and what is said where a library is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from compileboard.collectors.bench import suites

LIBRARIES = ("torchvision", "timm", "transformers")


@pytest.mark.parametrize("suite", LIBRARIES)
def test_a_catalogue_names_each_model_once_and_a_builder_that_exists(suite: str) -> None:
    models = suites.list_models([suite])
    assert 15 <= len(models) <= 35
    assert max(Counter(ref.name for ref in models).values()) == 1
    for ref in models:
        module, _, function = ref.builder.partition(":")
        assert importlib.util.find_spec(module) is not None and function == "build"
        assert (
            (ref.suite, ref.argument) == (suite, ref.name)
            and ref.family
            and 1 <= ref.batch_size <= 64
        )


def test_catalogues_keep_the_names_of_upstreams_dashboards() -> None:
    named = {(ref.suite, ref.name) for ref in suites.list_models(LIBRARIES)}
    assert {
        ("transformers", "BertForMaskedLM"),
        ("timm", "visformer_small"),
        ("torchvision", "resnet18"),
    } <= named


def test_listing_imports_neither_torch_nor_a_library() -> None:
    program = (
        "import sys; from compileboard.collectors.bench import suites\n"
        "from compileboard.collectors.bench.suites import user\n"
        "assert suites.list_models(['torchvision', 'timm', 'transformers'])\n"
        "[suites.describe_missing_libraries(it.name) for it in suites.SUITES]\n"
        "print([it for it in ('torch', 'torchvision', 'timm', 'transformers') if it in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_missing_names_what_is_absent_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> Any:
        return None if name == "timm" else object()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert (
        suites.describe_missing_libraries("timm") == "timm is not installed: pip install torch timm"
    )
    assert suites.describe_missing_libraries("torchvision") is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert (
        suites.describe_missing_libraries("timm")
        == "torch and timm are not installed: pip install torch timm"
    )
    assert suites.describe_missing_libraries("mine") == "torch is not installed: pip install torch"


def test_an_unknown_suite_is_answered_with_those_there_are() -> None:
    with pytest.raises(
        ValueError, match="no suite 'detectron'; there are builtin, torchvision, timm"
    ):
        suites.list_models(["detectron"])


def test_children_of_the_hubs_libraries_are_kept_offline() -> None:
    assert (
        suites.environment("transformers")["HF_HUB_OFFLINE"]
        == suites.environment("timm")["HF_HUB_OFFLINE"]
        == "1"
    )
    assert suites.environment("builtin") == suites.environment("mine") == {}
