"""Change torch's settings before measuring: determinism, inductor, threads."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import random
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compileboard.collectors.bench.experiments import TIMED
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.record.spool import replace_file

if TYPE_CHECKING:
    from compileboard.collectors.bench.plan.settings import BenchSettings


VARIABLE = "COMPILEBOARD_BENCH_PROCESSOR"  # file with a run's cached answers


def probe_processor_once(task: Task) -> None:
    settings, path = task.settings, os.environ.get(VARIABLE)
    compiles = settings.is_inductor or settings.backend == "aot_precompile"
    if path is None or not compiles or task.experiment in TIMED:
        return
    try:
        from torch._inductor import cpu_vec_isa  # from torch 2.5 on
    except ImportError:
        return
    cache_build_checks(cpu_vec_isa.VecISA, Path(path))
    if settings.device == "cpu" or settings.backend == "aot_inductor":
        cpu_vec_isa.valid_vec_isa_list()


def cache_build_checks(instructions: Any, path: Path) -> None:
    ask = instructions.check_build
    try:
        answers: dict[str, bool] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        answers = {}

    def check_build(self: Any, code: str) -> bool:
        question = hashlib.sha256(f"{self._arch_flags}\n{code}".encode()).hexdigest()
        if question not in answers:
            answers[question] = bool(ask(self, code))
            replace_file(path, json.dumps(answers))
        return answers[question]

    instructions.check_build = check_build


SEED = 1337
JUDGED = (
    "accuracy",
    "export",
    "export_strict",
)  # only the verdict counts, so use fixed seeds and algorithms


def prepare_environment(task: Task | None = None) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(
            name, "1"
        )  # models are built from their configuration without downloads
    if task is not None and (task.experiment in JUDGED or task.settings.deterministic):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def configure_torch(task: Task) -> None:
    import torch
    import torch._dynamo

    settings = task.settings
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.per_process_memory_fraction is not None and settings.is_cuda:
        torch.cuda.set_per_process_memory_fraction(settings.per_process_memory_fraction)
    torch.backends.cuda.matmul.allow_tf32 = True
    _allow_reduced_attention(True)
    _configure_dynamo(settings)
    if settings.is_inductor:
        _configure_inductor(task)
    random.seed(SEED)
    torch.manual_seed(SEED)
    if task.experiment in JUDGED or settings.deterministic:
        _make_deterministic()
    if validates_translation(task.experiment, settings):
        import torch.fx.experimental._config

        torch.fx.experimental._config.translation_validation = True
    if settings.verbose:
        torch._logging.set_logs(dynamo=logging.DEBUG)
    probe_processor_once(task)


def validates_translation(experiment: str, settings: BenchSettings) -> bool:
    asked = experiment == "accuracy" and settings.ci and not settings.no_translation_validation
    return asked and find_spec("z3") is not None


def _configure_dynamo(settings: BenchSettings) -> None:
    import torch._dynamo
    import torch._functorch.config

    config = torch._dynamo.config
    config.suppress_errors = settings.suppress_errors
    if settings.dynamic_batch_only or settings.dynamic_shapes:
        config.automatic_dynamic_shapes = True
        config.assume_static_by_default = not settings.all_dynamic
    if settings.compiled_autograd:
        config.compiled_autograd = True
    if settings.specialize_int:
        config.specialize_int = True
    if settings.propagate_real_tensors:
        config.capture_scalar_outputs = True
        config.capture_dynamic_output_shape_ops = True
        torch._functorch.config.fake_tensor_propagate_real_tensors = True


def check(settings: BenchSettings) -> None:
    """Raises ValueError for a device, mode or inductor setting that this torch lacks."""
    import torch

    if settings.is_cuda and not torch.cuda.is_available():
        built = (
            f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        )
        raise ValueError(
            f"--device cuda: torch {torch.__version__} ({built}) finds no GPU it can use; try "
            "--device cpu"
        )
    if settings.compile_mode is not None:
        from torch._inductor import list_mode_options

        modes = list_mode_options()
        if settings.compile_mode not in modes:
            raise ValueError(
                f"--mode {settings.compile_mode}: torch has no such mode; it has {', '.join(modes)}"
            )
    if settings.inductor_config:
        from torch._inductor import config

        for text in settings.inductor_config:
            _set_option(config, text)


def _allow_reduced_attention(allowed: bool) -> None:
    import torch

    if hasattr(torch.backends.cuda, "allow_fp16_bf16_reduction_math_sdp"):  # from torch 2.5 on
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(allowed)


def _make_deterministic() -> None:
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.mkldnn.deterministic = True
    _allow_reduced_attention(False)
    seed: Any = torch.random.manual_seed
    torch.manual_seed = lambda *_args, **_words: seed(
        SEED
    )  # a model that sets its own seed draws the same each time


def _configure_inductor(task: Task) -> None:
    from torch._inductor import config

    settings = task.settings
    if settings.compile_mode is None:
        config.triton.cudagraphs = settings.is_cuda and not settings.disable_cudagraphs
    if not settings.is_training:
        config.freezing = settings.freezing
    if task.experiment == "accuracy":
        config.fallback_random = True
    if settings.threads:
        config.cpp.threads = settings.threads
    for text in settings.inductor_config:
        _set_option(config, text)


def _set_option(config: Any, text: str) -> None:
    key, equals, value = text.partition("=")
    try:
        known = config.get_config_copy()
    except AttributeError:
        known = config.to_dict()
    if not equals or key not in known:
        near = difflib.get_close_matches(key, known, n=3)
        hint = f"; there is {', '.join(near)}" if near else ""
        raise ValueError(
            f"--inductor-config {text}: expected key=value with a key of "
            f"torch._inductor.config{hint}"
        )
    setattr(config, key, _parse_as_type(known[key], key, value))


def _parse_as_type(present: Any, key: str, value: str) -> Any:
    if isinstance(present, bool) or (present is None and value in ("True", "False")):
        if value not in ("0", "1", "True", "False"):
            raise ValueError(f"--inductor-config {key}={value}: expected 0, 1, True or False")
        return value in ("1", "True")
    if isinstance(present, (int, float)):
        try:
            return type(present)(value)
        except ValueError:
            expected = type(present).__name__
            raise ValueError(
                f"--inductor-config {key}={value}: expected a value like {present!r} ({expected})"
            ) from None
    if isinstance(present, str) or present is None:
        return value
    raise ValueError(
        f"--inductor-config {key}: a {type(present).__name__} cannot be given on the command line"
    )
