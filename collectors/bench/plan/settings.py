"""The settings of a benchmark, as one frozen value that a child process gets as JSON.

A field is declared once; the command line, a series' label, the repeat command and the digest of a
plan are derived from it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any

from compileboard.collectors.terminal.values import read_count, read_fraction, read_seconds

ALWAYS, CHANGED, NEVER = "always", "changed", "never"  # In the command that repeats a result.
_VARIABLE = re.compile(r"TORCHINDUCTOR_\w+|TORCH_COMPILE\w*")
_PLACE = re.compile(r"_(DIR|DIRECTORY|PATH)$")
DIGEST = "sha256:"
_PLAIN = re.compile(r"[\w.+-]{1,24}")


@dataclass(frozen=True)
class Declaration:
    """A field's command line flags and its part in labels.

    The flag is the field's name unless `flags` has others (ours first, then upstream's);
    `constants` are flags that set a fixed value: (value, help). `label` is added to a series' label
    if the value is not the default; `unlabelled` says why nothing is added.
    """

    help: str
    group: str
    flags: tuple[str, ...] = ()
    constants: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    choices: tuple[str, ...] = ()
    bare: str | None = None  # the value of a flag without an argument
    label: str | None = None
    unlabelled: str | None = None
    command: str = CHANGED
    in_digest: bool = True
    needs: str = ""  # has no effect without this need (NEEDS in bench/experiments)
    exclusive: str | None = None  # options with the same word exclude each other

    def write_arguments(self, value: Any, default: Any) -> list[str]:
        if self.command == NEVER or (self.command == CHANGED and value == default):
            return []
        if not self.flags:
            return [flag for flag, (constant, _) in self.constants.items() if constant == value]
        if isinstance(value, bool):
            return [self.flags[0]]
        return [
            word
            for part in (value if isinstance(value, tuple) else (value,))
            for word in (self.flags[0], str(part))
        ]


def declare(group: str) -> Callable[..., Any]:
    return lambda default, help, **rest: field(
        default=default, metadata={"of": Declaration(help, group, **rest)}
    )


def read_quantization(text: str) -> str:
    if text not in QUANTIZATIONS:
        gone = "autoquant was removed from torchao; " if text == "autoquant" else ""
        raise ValueError(f"{gone}expected one of {', '.join(QUANTIZATIONS)}, got {text!r}")
    return text


def list_declared(kind: type) -> dict[str, tuple[Declaration, Any]]:
    declarations: dict[str, tuple[Declaration, Any]] = {}
    field: Field[Any]
    for field in fields(kind):
        if "of" in field.metadata:
            declared: Declaration = field.metadata["of"]
            flags = declared.flags or (
                () if declared.constants else (f"--{field.name.replace('_', '-')}",)
            )
            of_name = field.name if isinstance(field.default, bool) else f"{field.name}={{}}"
            label = None if declared.unlabelled else declared.label or of_name
            declarations[field.name] = replace(declared, flags=flags, label=label), field.default
    return declarations


COMPILED, MEASURED = declare("what is compiled"), declare("how it is measured")
COUNT: dict[str, Any] = {"metavar": "N", "read": read_count}
NAMED: dict[str, Any] = {
    "unlabelled": "a column of a series, or the beginning of its label",
    "command": ALWAYS,
}
NO_NUMBER: dict[str, Any] = {
    "unlabelled": "no number depends on it",
    "command": NEVER,
    "in_digest": False,
}
QUANTIZATIONS = ("int8dynamic", "int8weightonly", "int4weightonly", "noquant")
AMP_DTYPES = {"cpu": "bfloat16", "cuda": "float16"}
WITHOUT_CUDAGRAPHS = ("default", "max-autotune-no-cudagraphs")  # modes
DDP_MODES = (
    "ddp_optimizer",
    "python_reducer",
    "python_reducer_without_compiled_forward",
    "no_optimization",
)
DTYPES = {
    "float32": "Measure in float32, the default.",
    "float16": "Measure in float16.",
    "bfloat16": "Measure in bfloat16.",
    "amp": "Measure in automatic mixed precision.",
}


@dataclass(frozen=True)
class BenchSettings:
    """Settings that determine how to measure. Names are upstream's if they mean the same.
    `timeout_s` is in seconds.

    Fields are in the order of a label's parts, so add new ones at the end.
    """

    mode: str = COMPILED(
        "inference",
        "",
        constants={
            "--inference": ("inference", "Measure the forward pass, the default."),
            "--training": ("training", "Measure forward, backward and optimizer."),
        },
        **NAMED,
    )
    dtype: str = COMPILED(
        "float32", "", constants={f"--{name}": (name, DTYPES[name]) for name in DTYPES}, **NAMED
    )
    device: str = COMPILED(
        "cpu",
        "Device. Default: cuda if there is one.",
        flags=("--device", "--devices", "-d"),
        choices=("cpu", "cuda"),
        **NAMED,
    )
    backend: str = COMPILED(
        "inductor",
        "Backend of torch._dynamo. Default: inductor.",
        flags=("--backend",),
        constants={"--inductor": ("inductor", "Same as --backend inductor.")},
        metavar="NAME",
        needs="a backend",
        **NAMED,
    )
    compile_mode: str | None = COMPILED(
        None,
        "Mode of torch.compile: reduce-overhead, max-autotune and so on.",
        flags=("--mode", "--inductor-compile-mode"),
        metavar="MODE",
        unlabelled="the beginning of the label",
        needs="inductor",
    )
    dynamic_shapes: bool = COMPILED(
        False, "Compile with every dimension dynamic.", unlabelled="a column of a series"
    )
    disable_cudagraphs: bool = COMPILED(
        False,
        "Use inductor without CUDA graphs, whatever --mode says.",
        unlabelled="the beginning of the label",
        needs="CUDA graphs",
    )
    freezing: bool = COMPILED(
        False, "Inline the weights as constants (inference).", needs="inductor"
    )
    compiled_autograd: bool = COMPILED(
        False, "Compile the backward pass with compiled autograd.", needs="training"
    )
    channels_last: bool = COMPILED(False, "Use the channels-last memory format for images.")
    nopython: bool = COMPILED(False, "Make a graph break an error.", needs="graph breaks")
    use_eval_mode: bool = COMPILED(False, "Train with the model in eval mode.", needs="training")
    randomize_input: bool = MEASURED(
        False, "Draw floating-point inputs anew for each repeat.", needs="timing"
    )
    dynamic_batch_only: bool = COMPILED(
        False, "Compile with the batch dimension dynamic.", label="dynamic_batch"
    )
    threads: int | None = COMPILED(
        None, "CPU threads of eager mode and inductor.", flags=("--threads", "-t"), **COUNT
    )
    inductor_config: tuple[str, ...] = COMPILED(
        (),
        "Setting of torch._inductor.config; repeatable.",
        flags=("--inductor-config", "-c"),
        metavar="KEY=VALUE",
        label="{}",
        needs="inductor",
    )
    batch_size: int | None = COMPILED(  # labelled, because a suite's series has no batch size
        None,
        "Batch size instead of each model's own.",
        label="batch={}",
        needs="a size",
        **COUNT,
    )
    repeat: int = MEASURED(
        30,
        "Timed repeats, eager and compiled in turns. Default: 30.",
        flags=("--repeat", "-n"),
        unlabelled="more samples of the same value",
        command=ALWAYS,
        **COUNT,
    )
    compile_repeats: int = MEASURED(
        1,
        (
            "Timed compilations; from 2 on each is cold, with caches of its own, then warm. "
            "Default: 1, the first."
        ),
        unlabelled="more samples of the same value",
        **COUNT,
    )
    iterations_per_run: int = MEASURED(1, "Calls per repeat. Default: 1.", needs="timing", **COUNT)
    use_warm_peak_memory: bool = MEASURED(
        False,
        "Measure peak memory of one warm step, not of the warm-up with its compilation.",
        label="warm_peak_memory",
        needs="speedup",
    )
    per_process_memory_fraction: float | None = COMPILED(
        None,
        "Largest share of the GPU's memory, above 0 and up to 1.",
        metavar="F",
        read=read_fraction,
        label="memory_fraction={}",
        needs="a GPU",
    )
    profile_dynamo_cache_lookup: bool = MEASURED(
        False,
        "Also measure how long dynamo takes to find its cache entry.",
        unlabelled="after the timing",
        needs="speedup",
    )
    warm_start_latency: bool = MEASURED(
        False,
        "Measure warm compile time in a second process with the first one's caches.",
        label="warm_start",
        needs="performance",
        exclusive="caches",
    )
    export_profiler_trace: bool = MEASURED(
        False,
        "Write a profiler trace of one eager and one compiled call.",
        unlabelled="after the timing",
        command=NEVER,
        needs="speedup",
    )
    snapshot_memory: bool = MEASURED(
        False, "Write the GPU allocator's history (CUDA).", needs="a GPU"
    )
    timing: bool = MEASURED(
        False,
        "Print torch's own time report for each model.",
        unlabelled="after the timing",
        command=NEVER,
    )
    quick: bool = MEASURED(
        False, "Take 3 repeats and one compilation: shows that it works, not how fast."
    )
    no_stack_room: bool = MEASURED(
        False, "Measure without room on Python's frame stack: what a program may meet."
    )
    iterations: int = MEASURED(
        2, "Steps of an accuracy check. Default: 2.", needs="a check", **COUNT
    )
    cosine: bool = MEASURED(False, "Compare by cosine similarity.", needs="a check")
    skip_fp64_check: bool = MEASURED(
        False, "Compare without a double-precision reference.", needs="a check"
    )
    skip_accuracy_check: bool = MEASURED(
        False, "Let a wrong answer pass, as pass_due_to_skip.", needs="a check"
    )
    timeout_s: float = MEASURED(
        1800.0,
        "Seconds that one experiment of a model may take. Default: 1800.",
        flags=("--timeout",),
        metavar="S",
        read=read_seconds,
        **NO_NUMBER,
    )
    output_directory: str | None = declare("the run")(
        None, "Folder for upstream's files, CSV and JSON.", metavar="DIR", **NO_NUMBER
    )
    # NAME=VALUE of variables that torch reads; not on the command line.
    environment: tuple[str, ...] = declare("")((), "", label="{}", command=NEVER)
    amp_dtype: str | None = COMPILED(
        None,
        "Dtype of --amp. Default: bfloat16 on a CPU, float16 on CUDA.",
        choices=("bfloat16", "float16"),
    )
    specialize_int: bool = COMPILED(
        False, "Compile for each value of an integer instead of a symbol."
    )
    propagate_real_tensors: bool = COMPILED(
        False, "Capture what depends on data by the values of real tensors: unsound."
    )
    suppress_errors: bool = COMPILED(
        False,
        "Run a frame that dynamo cannot compile eagerly; not with --accuracy.",
        needs="fallbacks",
    )
    activation_checkpointing: bool = COMPILED(
        False,
        "Recompute activations in the backward pass (models of transformers).",
        flags=("--enable-activation-checkpointing",),
        label="checkpoint",
        needs="training",
    )
    collect_outputs: bool = MEASURED(
        False, "Time training steps that return loss and gradients.", needs="gradients"
    )
    deterministic: bool = MEASURED(
        False, "Use deterministic algorithms in every experiment, as --accuracy does."
    )
    ci: bool = MEASURED(
        False,
        (
            "Measure as upstream's CI: accuracy with translation validation, SGD where Adam takes "
            "too much memory."
        ),
    )
    no_translation_validation: bool = MEASURED(
        False, "Leave --ci's translation validation out.", needs="--ci"
    )
    part: str | None = COMPILED(
        None, "Part of the model, for builders that take one.", metavar="NAME"
    )
    verbose: bool = MEASURED(
        False,
        "Keep each task's output, with dynamo's debug log, as a file.",
        flags=("--verbose", "-v"),
        exclusive="words",
    )
    profiler_trace_name: str | None = MEASURED(
        None,
        "Start of a profiler trace's name. Default: the configuration.",
        metavar="NAME",
        needs="a trace",
        **NO_NUMBER,
    )
    profile_details: bool = MEASURED(
        False,
        "Record memory and stacks in the profiler trace.",
        unlabelled="after the timing",
        command=NEVER,
        needs="a trace",
    )
    quantization: str | None = COMPILED(
        None,
        (
            "Measure the model with weights quantized by torchao against compiled bfloat16, and "
            "the errors of both."
        ),
        metavar="KIND",
        read=read_quantization,
    )
    ddp: bool = COMPILED(
        False,
        "Measure a training step of N ranks with DistributedDataParallel.",
        label="ddp={settings.optimize_ddp_mode}",
    )
    fsdp: bool = COMPILED(
        False, "Measure a training step of N ranks with FSDP2 (fully_shard).", label="fsdp2"
    )
    optimize_ddp_mode: str = COMPILED(
        DDP_MODES[0],
        f"What dynamo does about DDP: {', '.join(DDP_MODES)}. Default: {DDP_MODES[0]}.",
        choices=DDP_MODES,
        unlabelled="a part of --ddp's",
    )
    world_size: int | None = COMPILED(
        None,
        "Ranks of --ddp and --fsdp. Default: all GPUs; 2 on a CPU.",
        unlabelled="a column of a series",
        **COUNT,
    )
    distributed_master_port: int | None = MEASURED(
        None,
        "Port at which the ranks find each other; a taken one is replaced. Default: any.",
        metavar="PORT",
        read=read_count,
        needs="ranks",
        **NO_NUMBER,
    )

    cold_start_latency: bool = MEASURED(
        False,
        "Compile with empty caches, as --ci does. Default: torch's own caches.",
        unlabelled="the result says what the caches had",
        exclusive="caches",
    )

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @property
    def begins_cold(self) -> bool:
        return self.cold_start_latency or self.warm_start_latency or self.ci or self.is_distributed

    @property
    def cheap_repeats(self) -> int:
        return 1 if self.quick else max(3, self.compile_repeats)

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def is_training(self) -> bool:
        return self.mode == "training"

    @property
    def is_distributed(self) -> bool:
        return self.ddp or self.fsdp

    @property
    def dynamic(self) -> bool:
        return self.dynamic_shapes or self.dynamic_batch_only

    @property
    def is_inductor(self) -> bool:
        return self.backend.startswith(("inductor", "aot_inductor"))

    @property
    def autocast_dtype(self) -> str:
        return self.amp_dtype or AMP_DTYPES[self.device]

    @property
    def has_mode_without_cudagraphs(self) -> bool:
        has_graphs = self.compile_mode not in (None, *WITHOUT_CUDAGRAPHS)
        return self.disable_cudagraphs and self.is_cuda and has_graphs

    @property
    def all_dynamic(self) -> bool:
        return self.dynamic_shapes and not self.dynamic_batch_only

    def label(self) -> str:
        """Return the backend and all settings that affect the measured values. Each label is a
        series of its own.

        An old label implies the defaults of newer parts.
        """
        parts = [self.backend]
        if self.is_cuda and self.backend.startswith("inductor") and self.compile_mode is None:
            parts.append("no_cudagraphs" if self.disable_cudagraphs else "with_cudagraphs")
        if self.compile_mode:
            parts.append(self.compile_mode)
        if self.has_mode_without_cudagraphs:
            parts.append("no_cudagraphs")
        different = changed(self)
        for name, (declaration, _) in SETTINGS.items():
            value = different.get(name)
            if declaration.label is not None and value is not None and value is not False:
                values = sorted(value) if isinstance(value, tuple) else [value]
                parts += [declaration.label.format(part, settings=self) for part in values]
        return "_".join(parts)

    def list_arguments(self) -> list[str]:
        return [
            word
            for name, (declaration, default) in SETTINGS.items()
            for word in declaration.write_arguments(getattr(self, name), default)
        ]

    def identity(self) -> dict[str, Any]:
        """Return the values that must be equal for `--resume`."""
        return {name: value for name, value in asdict(self).items() if SETTINGS[name][0].in_digest}


SETTINGS = list_declared(BenchSettings)


def _digest(value: str) -> str:
    return f"{DIGEST}{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def list_torch_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the environment variables that change how torch compiles. A long value is replaced by
    its digest.

    Source: the rows of upstream's dashboard for TORCHINDUCTOR_MAX_AUTOTUNE and similar variables.
    """
    return tuple(
        f"{name}={value if _PLAIN.fullmatch(value) else _digest(value)}"
        for name, value in sorted(environment.items())
        if value and _VARIABLE.fullmatch(name) and not _PLACE.search(name)
    )


def load_settings(text: str) -> BenchSettings:
    values: dict[str, Any] = json.loads(text)
    for name in ("inductor_config", "environment"):
        values[name] = tuple(values.get(name, ()))
    return BenchSettings(**values)


def changed(settings: BenchSettings) -> dict[str, Any]:
    return {
        name: getattr(settings, name)
        for name, (_, entry) in SETTINGS.items()
        if getattr(settings, name) != entry
    }
