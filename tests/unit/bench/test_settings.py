"""Settings: told whole to a child, and named in the series."""

from __future__ import annotations

import argparse

import pytest

from collectors.bench.command import settings_of
from collectors.bench.settings import Settings, changed, load_settings
from collectors.options import build_parser


def parse(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["bench", "--device", "cpu", *words])


def test_settings_read_back_as_they_were_written() -> None:
    settings = Settings(dtype="amp", inductor_config=("a=1", "b=2"), timeout_s=3.5)
    assert load_settings(settings.dump()) == settings


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        (Settings(), "inductor"),
        (Settings(device="cuda"), "inductor_with_cudagraphs"),
        (Settings(device="cuda", disable_cudagraphs=True), "inductor_no_cudagraphs"),
        (Settings(device="cuda", compile_mode="max-autotune"), "inductor_max-autotune"),
        (Settings(backend="aot_eager", nopython=True, threads=2), "aot_eager_nopython_threads=2"),
        (Settings(inductor_config=("z=1", "a=2")), "inductor_a=2_z=1"),
    ],
)
def test_a_label_names_what_changes_the_measurement(settings: Settings, label: str) -> None:
    assert settings.label() == label


def test_the_command_line_fills_the_settings() -> None:
    settings = settings_of(parse("--training", "--amp", "-n", "7", "-c", "a=1", "--timeout", "9"))
    assert changed(settings) == {
        "mode": "training",
        "dtype": "amp",
        "repeat": 7,
        "inductor_config": ("a=1",),
        "timeout_s": 9.0,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--freezing", "--training"], "--freezing inlines"), (["--mode", "x", "--backend", "eager"], "--mode is")],
)
def test_what_cannot_go_together_is_said(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings_of(parse(*words))


@pytest.mark.parametrize("flag", ["--prims-nvfuser", "--nnc", "--speedup-fx2trt", "--speedup-onnx"])
def test_what_torch_no_longer_has_says_what_replaced_it(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(flag)
    assert ended.value.code == 2
    assert f"{flag} is not here: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["-n", "0"], ["--timeout", "nan"], ["--per-process-memory-fraction", "2"], ["-n", "x"]]
)
def test_a_number_out_of_range_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(*words)
    assert "expected" in capsys.readouterr().err
