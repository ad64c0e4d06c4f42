"""Pasted lines of upstream's harness: batch sizes from a file, its name, CI and dashboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.runner import BenchReport, Checkout
from compileboard.collectors.bench.experiments import drop_settings_without_effect
from compileboard.collectors.bench.plan.model_facts import facts_for
from compileboard.collectors.bench.plan.models import ModelRef, read_batch_sizes
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import make_plan, plan_hash, repeat_command
from compileboard.collectors.bench.suites import list_models
from compileboard.collectors.cli import bench as command
from compileboard.collectors.cli.bench import list_experiments, make_job, make_settings
from compileboard.collectors.cli.main import main
from tests.unit.bench.plan.test_bench_settings import parse, parse_words

MODELS = [ModelRef("builtin", name, "m:f", batch_size=8) for name in ("lstm", "mlp", "unet")]


def test_a_file_gives_single_models_a_batch_size(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("mlp,64\nlstm, -1\n\n")
    sizes = read_batch_sizes(str(tmp_path / "sizes.txt"))
    lstm, mlp, unet = make_plan(
        MODELS, ["performance"], BenchSettings(), no_skip=True, batch_sizes=sizes
    )
    assert "leaves its batch size unset" in str(lstm.left_out)
    assert lstm.settings.batch_size is None
    assert mlp.settings.label() == "inductor_batch=64"
    assert "--batch-size 64" in repeat_command(mlp, "bench")
    assert unet.settings.label() == "inductor" and unet.left_out is None
    digests = {plan_hash(MODELS, [], BenchSettings(), given) for given in ({}, sizes, {"mlp": 32})}
    assert len(digests) == 3 and plan_hash(MODELS, [], BenchSettings()) in digests


@pytest.mark.parametrize(
    ("line", "problem"), [("mlp", "'mlp'"), ("mlp,0", "'mlp,0'"), (",4", "',4'"), ("a,-2", "-2")]
)
def test_another_line_of_that_file_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "sizes").write_text(f"unet,2\n{line}\n")
    with pytest.raises(ValueError, match=f"line 2: expected NAME,SIZE, got .*{problem}"):
        read_batch_sizes(str(tmp_path / "sizes"))
    with pytest.raises(ValueError, match=r"No such file.*expected lines NAME,SIZE"):
        read_batch_sizes(str(tmp_path / "absent"))


def test_ci_and_dashboard_are_upstreams() -> None:
    assert (
        make_settings(parse("--ci", "--no-translation-validation"), {}).label()
        == "inductor_ci_no_translation_validation"
    )
    alone = make_settings(parse("--no-translation-validation"), {})
    assert drop_settings_without_effect(alone, ["accuracy"]) == BenchSettings()
    assert make_settings(parse("--dashboard"), {}).use_warm_peak_memory
    assert not make_settings(parse("--dashboard", "--accuracy"), {}).use_warm_peak_memory
    resnet = facts_for("torchvision", "resnet50")
    assert resnet.find("use_sgd", ci=True) and not resnet.find("use_sgd", ci=False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--output", "x.json"], r"--output x.json: expected a name that ends in .csv"),
        (
            ["--output", "x.csv", "--performance", "--accuracy"],
            "one file, .*for performance, accuracy give --output-d",
        ),
        (
            ["--output", "x.csv", "--nothing", "--overhead"],
            "one file, .*for nothing, overhead give --output-directory",
        ),
        (
            ["--output", "x.csv", "--suite", "timm", "--suite", "builtin"],
            "for builtin, timm give --output-directory",
        ),
    ],
)
def test_one_file_has_one_experiment_of_one_suite(words: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make_job(parse(*words), Checkout(), {})


def test_a_gpu_is_chosen_before_torch_starts(tmp_path: Path) -> None:
    request = parse(
        "--device-index", "1", "--output", str(tmp_path / "new" / "x.csv"), "--only", "mlp"
    )
    job = make_job(request, Checkout(environment={"A": "b"}), {})
    assert job.checkout.environment == {"A": "b", "CUDA_VISIBLE_DEVICES": "1"}
    assert (tmp_path / "new").is_dir()


def test_accuracy_is_checked_at_upstreams_batch_sizes_unless_one_is_asked_for() -> None:
    models = [*list_models(["timm"])[:1], *list_models(["transformers"])[:1], MODELS[0]]
    plan = make_plan(
        models, ["accuracy", "performance"], BenchSettings(), no_skip=True, batch_sizes={}
    )
    sizes = [task.ref.batch_size for task in plan]
    assert (
        sizes == [8, models[0].batch_size, 1, models[1].batch_size, 8, 8]
        and models[0].batch_size != 8
    )


@pytest.mark.parametrize("output", ["", " --output x.csv"])
@pytest.mark.parametrize(
    ("words", "experiments"),
    [
        ("--accuracy --export", ["export_strict"]),
        ("--performance --dynamo-onnx", ["onnx"]),
        ("--performance --coverage", ["coverage"]),
        ("--accuracy --export-aot-inductor", ["aot_inductor"]),
        ("--accuracy --log-operator-inputs", ["operator_inputs"]),
        ("--accuracy --coverage", ["accuracy"]),
        ("--tolerance --overhead", ["tolerance"]),
        ("--accuracy", ["accuracy"]),
    ],
)
def test_a_mode_beside_another_experiment_is_no_second_one(
    words: str, experiments: list[str], output: str
) -> None:
    assert list(list_experiments(parse(*words.split(), *output.split()))) == experiments


@pytest.mark.parametrize(
    ("words", "label", "line"),
    [
        ("--snapshot-memory", "inductor", "--snapshot-memory is left out: the device is the CPU"),
        (
            "--iterations 3",
            "inductor",
            "--iterations is left out: no experiment here compares answers",
        ),
        (
            "--backend eager --freezing",
            "eager",
            "--freezing is left out: inductor compiles nothing here",
        ),
        (
            "--use-eval-mode",
            "inductor",
            "--use-eval-mode is left out: --inference has no backward pass",
        ),
        (
            "--find-batch-sizes --batch-size 4",
            "inductor",
            "--batch-size is left out: --find-batch-sizes looks for it",
        ),
        ("--only mlp -k unet", "inductor", "--filter is left out: --only names the model"),
        (
            "--only mlp --total-partitions 4 --partition-id 1",
            "inductor",
            "--total-partitions is left out: --only names the model\n"
            "compileboard: --partition-id is left out: --only names the model",
        ),
        (
            "--distributed-master-port 6790",
            "inductor",
            "--distributed-master-port is left out: it goes with --ddp or --fsdp",
        ),
        ("--training --use-eval-mode", "inductor_use_eval_mode", ""),
        ("--accuracy --coverage", "eager", ""),
        (
            "--accuracy --overhead --backend aot_eager",
            "eager",
            "--backend is left out: the experiment has a backend of",
        ),
        (
            "--accuracy --coverage --freezing",
            "eager",
            "--freezing is left out: inductor compiles nothing here",
        ),
        (
            "--accuracy --nothing",
            "nothing",
            "--accuracy is left out: --nothing has no such numbers",
        ),
        (
            "--tolerance --export",
            "export_strict",
            "--tolerance is left out: --export has no such numbers",
        ),
        ("--performance --export-aot-inductor", "aot_inductor", ""),
    ],
)
def test_what_changes_nothing_is_said_and_in_no_label(
    words: str, label: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job(parse(*words.split()), Checkout(environment={}), {})
    assert job.plan[0].settings.label() == label
    said = capsys.readouterr().err
    if line:
        assert said.startswith(f"compileboard: {line}")
    assert said.count("\n") == (line.count("\n") + 1 if line else 0)


def test_ci_says_that_it_validates_no_translation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_installed in (True, False):
        monkeypatch.setattr(
            "compileboard.collectors.cli.bench.find_spec", {"z3": is_installed or None}.get
        )
        make_job(parse("--ci", "--accuracy"), Checkout(environment={}), {})
        assert ("z3-solver is not installed" in capsys.readouterr().err) != is_installed


@pytest.mark.parametrize("flag", ["--batch-size 4", "--use-eval-mode", "--find-batch-sizes"])
def test_a_class_decides_its_batch_and_its_mode(flag: str, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("class Fine: ...\n")
    words = ["--training", *flag.split(), "--only", f"path:{tmp_path}/nets.py,class:Fine"]
    with pytest.raises(ValueError, match=f"{flag.split()[0]}: the class Fine decides that itself"):
        make_job(parse(*words), Checkout(environment={}), {})


def test_both_devices_are_measured_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, list[str]]] = []

    def finish(report: BenchReport, _request: object, _print: object, *, run_ids: list[str]) -> int:
        measured.append((report.run_id, list(run_ids)))
        return 3 if report.run_id == "cuda" else 0

    monkeypatch.setattr(command, "check_settings", lambda _settings: None)  # there may be no GPU
    monkeypatch.setattr(command, "measure", lambda job, *_: BenchReport(job.plan[0].asked.device))
    monkeypatch.setattr(command, "finish", finish)
    request = parse_words(
        "-d", "cuda", "-d", "cpu", "-d", "cuda", "--only", "mlp", "--output", "x.csv"
    )
    assert command.run_bench(request, print) == 0, "something was measured"
    assert measured == [("cuda", ["cuda"]), ("cpu", ["cuda", "cpu"])], "the file has both"


@pytest.mark.parametrize("words", [["-v", "-q"], ["--cold_start_latency", "--warm-start-latency"]])
def test_what_upstream_excludes_is_excluded(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_autoquant_says_that_it_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quantization", "autoquant"]) == 2
    assert (
        "autoquant was removed from torchao; expected one of int8dynamic" in capsys.readouterr().err
    )
