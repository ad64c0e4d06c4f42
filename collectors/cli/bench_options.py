"""What words of a command line mean, for every command of the collector."""

from __future__ import annotations

import argparse
import math

from compileboard.collectors.bench.experiments import EXPERIMENTS
from compileboard.collectors.bench.plan.settings import DTYPES, BenchSettings
from compileboard.collectors.bench.suites import SUITES
from compileboard.collectors.cli.removed_flags import REMOVED, RemovedFlagAction


def count(text: str) -> int:
    """Read a number from 1 up."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, got {text!r}")
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """Read KEY=VALUE."""
    key, value = maybe_pair(text, "KEY=VALUE")
    if value is None:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def maybe_pair(text: str, expected: str = "KEY or KEY=VALUE") -> tuple[str, str | None]:
    """Read KEY=VALUE, or KEY alone, whose value is none."""
    key, equals, value = text.partition("=")
    if not key.strip():
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return key.strip(), value if equals else None


EXAMPLES = """examples:
  %(prog)s                                          the built-in suite: performance, inference
  %(prog)s --performance --accuracy --training -k transformer
  %(prog)s --only path:/home/me/nets.py,class:Net   a class with get_example_inputs(), as upstream's harness takes it
  %(prog)s --suite timm --device cuda --amp --output-directory out
  %(prog)s --resume                                 go on with what was interrupted
"""


def add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser], database: str) -> None:
    """Describe the `bench` command."""
    bench = commands.add_parser(
        "bench",
        help="measure models eager and compiled: speedup, accuracy, compile time, memory, breaks, recompiles",
        usage="%(prog)s [options]",
        allow_abbrev=False,  # a flag of upstream's that is not here must not be taken for another
        description="Measure models eager and compiled, each experiment in a process of its own, and record the\n"
        "results with the compiles, graph breaks and recompiles they came with. Works offline; the built-in\n"
        "suite needs torch alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument(
        "--db", default=database, metavar="FILE", help="the database (default compileboard.db in this folder)"
    )
    _add_models(bench)
    _add_experiments(bench)
    _add_what(bench)
    _add_how(bench)
    _add_run(bench)
    for gone in REMOVED:
        bench.add_argument(gone.flag, action=RemovedFlagAction, reason=gone.reason, nargs=0, help=argparse.SUPPRESS)


def _add_models(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("models")
    names = ", ".join(suite.name for suite in SUITES)
    group.add_argument(
        "--suite", action="append", metavar="NAME", help=f"a suite, repeatable: {names} (default builtin); see --list"
    )
    group.add_argument(
        "--only",
        metavar="MODEL",
        help="one model: its name, path:/abs/file.py,class:NAME as upstream takes it, or path:/abs/file.py for the "
        "functions marked with @compileboard.bench.model",
    )
    group.add_argument(
        "--filter", "-k", action="append", metavar="REGEX", help="only models whose name fits; repeatable"
    )
    group.add_argument(
        "--exclude", "-x", action="append", metavar="REGEX", help="no models whose name fits; repeatable"
    )
    group.add_argument("--exclude-exact", action="append", metavar="NAME", help="not this model; repeatable")
    group.add_argument(
        "--total-partitions", type=count, default=1, metavar="N", help="in how many parts to cut the list"
    )
    group.add_argument("--partition-id", type=int, default=0, metavar="N", help="which part to measure, from 0")
    group.add_argument("--no-skip", action="store_true", help="measure models that are known not to work here, too")
    group.add_argument("--list", action="store_true", help="print the models that are chosen, and measure nothing")


def _add_experiments(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("experiments (default --performance)")
    for experiment in EXPERIMENTS:
        group.add_argument(
            experiment.flag, dest="experiments", action="append_const", const=experiment.name, help=experiment.help
        )


def _add_what(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("what is compiled")
    mode = group.add_mutually_exclusive_group()
    mode.add_argument("--inference", dest="mode_of", action="store_const", const="inference", help="forward (default)")
    mode.add_argument(
        "--training", dest="mode_of", action="store_const", const="training", help="forward, backward, optimizer"
    )
    dtype = group.add_mutually_exclusive_group()
    for name in DTYPES:
        words = "automatic mixed precision" if name == "amp" else name
        dtype.add_argument(
            f"--{name}",
            dest="dtype",
            action="store_const",
            const=name,
            help=words + (" (default)" if name == "float32" else ""),
        )
    group.add_argument(
        "--device", "--devices", "-d", choices=("cpu", "cuda"), help="where (default cuda if there is one)"
    )
    group.add_argument(
        "--backend", default="inductor", metavar="NAME", help="a torch._dynamo backend (default inductor)"
    )
    group.add_argument(
        "--inductor", dest="backend", action="store_const", const="inductor", help="the same as --backend inductor"
    )
    group.add_argument(
        "--mode",
        "--inductor-compile-mode",
        dest="compile_mode",
        metavar="MODE",
        help="torch.compile's mode: reduce-overhead, max-autotune, …",
    )
    flags = {
        "--nopython": "make a graph break an error",
        "--dynamic-shapes": "compile with every dimension dynamic",
        "--dynamic-batch-only": "compile with the batch dimension dynamic",
        "--compiled-autograd": "compile the backward pass with compiled autograd",
        "--freezing": "inline the weights as constants (inference)",
        "--channels-last": "channels-last memory format for images",
        "--disable-cudagraphs": "inductor without CUDA graphs",
        "--use-eval-mode": "train with the model in eval mode",
    }
    for flag, words in flags.items():
        group.add_argument(flag, action="store_true", help=words)
    group.add_argument(
        "--inductor-config",
        "-c",
        action="append",
        metavar="KEY=VALUE",
        help="a setting of torch._inductor.config; repeatable",
    )
    group.add_argument("--threads", "-t", type=count, metavar="N", help="threads of eager and inductor")
    group.add_argument("--batch-size", "--batch_size", type=count, metavar="N", help="instead of each model's own")
    group.add_argument(
        "--per-process-memory-fraction", type=fraction, metavar="F", help="how much of the GPU's memory to take at most"
    )


def _add_how(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("how it is measured")
    group.add_argument(
        "--repeat",
        "-n",
        type=count,
        default=BenchSettings.repeat,
        metavar="N",
        help="timed repeats, eager and compiled in turns (default 30)",
    )
    group.add_argument(
        "--compile-repeats",
        type=count,
        default=BenchSettings.compile_repeats,
        metavar="N",
        help="timed compilations, cold and warm, each with caches of its own (default 3)",
    )
    group.add_argument("--iterations-per-run", type=count, default=1, metavar="N", help="calls a repeat (default 1)")
    group.add_argument(
        "--iterations",
        type=count,
        default=BenchSettings.iterations,
        metavar="N",
        help="steps of an accuracy check (default 2)",
    )
    flags = {
        "--randomize-input": "draw floating-point inputs anew for each repeat",
        "--use-warm-peak-memory": "peak memory of one warm step instead of the warm-up with its compilation",
        "--profile-dynamo-cache-lookup": "also the time dynamo takes to find its cache entry",
        "--warm-start-latency": "warm compile time in a second process with the first one's caches",
        "--cold-start-latency": "cold compile time, with empty caches: what is measured in any case",
        "--skip-accuracy-check": "a wrong answer passes: pass_due_to_skip",
        "--skip-fp64-check": "compare without a double-precision reference",
        "--cosine": "compare by cosine similarity",
        "--export-profiler-trace": "write a profiler trace of one eager and one compiled call",
        "--snapshot-memory": "write the GPU allocator's history (CUDA)",
        "--timing": "print torch's own time report for each model",
        "--quick": "3 repeats and one compilation: to see that something works, not how fast",
        "--no-stack-room": "measure without room on Python's frame stack: what a program may meet",
    }
    for flag, words in flags.items():
        group.add_argument(flag, action="store_true", help=words)
    group.add_argument(
        "--timeout",
        type=seconds,
        default=BenchSettings.timeout_s,
        metavar="S",
        help="seconds a model may take for one experiment (default 1800)",
    )


def _add_run(bench: argparse.ArgumentParser) -> None:
    group = bench.add_argument_group("the run")
    group.add_argument("--name", metavar="NAME", help="the run's name (default: bench and its suites)")
    group.add_argument(
        "--tag",
        action="append",
        default=[],
        type=tag,
        metavar="KEY=VALUE",
        help="a label to find it by; one word alone is upstream's tag; repeatable",
    )
    group.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="go on with an interrupted run (default: the newest of the same command)",
    )
    group.add_argument(
        "--diff-branch",
        metavar="REF",
        help="measure this branch or commit of the repository here as well, in a throw-away worktree, and compare; the "
        "checkout is not touched",
    )
    group.add_argument(
        "--baseline", metavar="FILE", help="a performance CSV of upstream's form to compare speedups with"
    )
    group.add_argument("--output-directory", metavar="DIR", help="also write upstream's files there: CSV and JSON")
    group.add_argument("--dump-raw-metrics", action="store_true", help="and the timings as its .npy files")
    group.add_argument("--log-graph-breaks", action="store_true", help="and its graph-break files")
    group.add_argument(
        "--explain", action="store_true", help="print graphs, ops and breaks of each model, and list the breaks"
    )
    group.add_argument(
        "--level", choices=("light", "full"), default="light", help="full: also torch's own trace of each process"
    )
    group.add_argument("--no-source", action="store_true", help="keep no line of the models' source code")
    group.add_argument("--quiet", action="store_true", help="print no progress, only the summary")


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return value


def fraction(text: str) -> float:
    """Read a share between 0 and 1."""
    value = seconds(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"expected a share between 0 and 1, got {text!r}")
    return value


def tag(text: str) -> tuple[str, str]:
    """Read KEY=VALUE; a word alone is the value of `tag`, as upstream's flag has it."""
    key, value = maybe_pair(text, "KEY=VALUE or a word")
    return ("tag", key) if value is None else (key, value)
