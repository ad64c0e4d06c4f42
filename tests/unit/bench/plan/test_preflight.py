"""What torch lacks is said once, before the first model; torch is asked only in doubt."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from compileboard.collectors.bench.plan import preflight
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.cli.bench import make_settings
from tests.unit.bench.plan.test_bench_settings import parse

ASKED = BenchSettings(compile_mode="nosuch")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Answer in torch's place."""
    preflight.check_settings.cache_clear()
    done = subprocess.CompletedProcess[str](
        [], 0, stdout=f"a line of torch's own\n{request.param}\n"
    )
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    yield
    preflight.check_settings.cache_clear()


@pytest.mark.parametrize(
    "answer", ['{"error": "--mode nosuch: torch has no such mode"}'], indirect=True
)
def test_what_torch_lacks_is_refused_in_its_words(answer: None) -> None:
    with pytest.raises(ValueError, match="--mode nosuch: torch has no such mode"):
        preflight.check_settings(ASKED)
    preflight.check_settings(BenchSettings())  # nobody is asked


@pytest.mark.parametrize(
    "answer", ['{"error": null}', "Segmentation fault", "[]", ""], indirect=True
)
def test_what_torch_takes_or_cannot_be_asked_passes(answer: None) -> None:
    preflight.check_settings(ASKED)


@pytest.mark.parametrize("pair", ["foo", "=1", "a b=1", ""])
def test_a_setting_without_a_key_and_a_value_is_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE"):
        make_settings(parse("-c", pair), {})
