"""Minify planted failures beside torch's own minifier.

    python -m benchmarks.repro.minify [NAME …]

Torch's way is its environment variables: they leave a launcher, which is run with the planted
operation registered and gets as long as is given. Ours is the command `repro minify` on the same
graph. Both are what a person waits for, from the start of Python on, with empty compile caches;
each pair runs in an order that is drawn. Nodes are call nodes of the program that each leaves; the
processor's time is that of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.common import ROOT, Row, print_table
from compileboard.collectors.formats.torch_repro import NoTorchRepro, parse_torch_script
from compileboard.collectors.repro.findings import Minification
from compileboard.collectors.repro.sending import export_repro
from compileboard.start import own_command
from tests.integration.repro.planted_repros import make_repros

PROGRAMS = ROOT / "tests" / "programs"
# What of torch's variables captures each: where "-", none does.
CAPTURED_BY = {
    "backend_refuses_op": ("dynamo", "2"),
    "relu_compile_error": ("aot", "2"),
    "crash_in_custom_op": ("aot", "3"),
    "wrong_lowering": ("aot", "4"),
    "nan_only_compiled": ("aot", "4"),
    "wrong_decomposition": ("-", "-"),
    "backward_only": ("-", "-"),
    "dynamic_only": ("aot", "2"),
    "bf16_only": ("aot", "4"),
    "aliased_mutation": ("-", "-"),
}
REACH = "≤ 5 nodes, ≤ 1.0 ×"


@dataclass(frozen=True)
class Minified:
    """What one side came to."""

    seconds: float
    node_count: int | None
    note: str = ""
    cpu_seconds: float = 0.0

    def __str__(self) -> str:
        if self.node_count is None:
            return self.note
        return (
            f"{self.seconds:.1f} s ({self.cpu_seconds:.1f} s of the processor), "
            f"{self.node_count} nodes{self.note}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="Planted failures. Default: all ten."
    )
    parser.add_argument(
        "--timeout", type=float, default=600, help="Seconds that torch's launcher gets."
    )
    parser.add_argument("--alone", action="store_true", help="Ours alone.")
    options = parser.parse_args()
    rows = []
    for name in options.names or CAPTURED_BY:
        with tempfile.TemporaryDirectory(prefix="minify-") as folder:
            rows.append(_compare(name, Path(folder), options.timeout, options.alone))
            print(rows[-1], file=sys.stderr, flush=True)
    print_table("minify a planted failure", rows)


def _compare(name: str, folder: Path, timeout_s: float, is_alone: bool) -> Row:
    sides = [lambda: _ours(name, folder)]
    launcher = None if is_alone else _capture_by_torch(name, folder)
    if launcher is not None:
        sides.append(lambda: _torchs(name, launcher, folder, timeout_s))
    results: dict[int, Minified] = {}
    for index in random.sample(range(len(sides)), len(sides)):
        results[index] = sides[index]()
    torchs = results.get(1, Minified(0, None, "not captured" if not is_alone else ""))
    is_reduced = torchs.node_count is not None and torchs.node_count <= 5
    ratio = f"{results[0].seconds / torchs.seconds:.2f} ×" if is_reduced else ""
    return Row(name, str(results[0]), str(torchs), ratio, REACH)


def _ours(name: str, folder: Path) -> Minified:
    repro = make_repros(folder / "repros.pickle", name)[name]
    repro = replace(repro, manifest=replace(repro.manifest, error_type=None))
    path = folder / "failure.tar.gz"
    export_repro(repro, str(path), is_forced=False)
    command = own_command(
        "compileboard.collectors", "repro", "minify", str(path), "--trust", "--json"
    )
    start, cpu_s = time.monotonic(), _children_cpu_s()
    ended = subprocess.run(
        [*command, "--timeout", "300"], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    seconds, cpu_s = time.monotonic() - start, _children_cpu_s() - cpu_s
    if ended.returncode:
        return Minified(seconds, None, f"exit code {ended.returncode}: {ended.stderr[-200:]}")
    answer: Minification = Minification.load(json.loads(ended.stdout)["answer"])
    note = f" ({', '.join(answer.operations[:3])}), {answer.tried_count} trials"
    return Minified(
        seconds,
        answer.nodes_after,
        note if answer.is_confirmed else f"{note}, not confirmed",
        cpu_s,
    )


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _capture_by_torch(name: str, folder: Path) -> Path | None:
    after, level = CAPTURED_BY[name]
    if after == "-":
        return None
    environment = {
        **_environment(folder / "capture-cache"),
        "TORCHDYNAMO_REPRO_AFTER": after,
        "TORCHDYNAMO_REPRO_LEVEL": level,
        "TORCH_COMPILE_DEBUG_DIR": str(folder),
    }
    command = [sys.executable, str(PROGRAMS / "planted.py"), name]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=600)
    return next(folder.glob("**/minifier_launcher.py"), None)


def _torchs(name: str, launcher: Path, folder: Path, timeout_s: float) -> Minified:
    """Run torch's launcher as it says one should, what the program registered itself put into
    it.
    """
    text = launcher.read_text()
    planting = (
        f"import sys\nsys.path.insert(0, {str(PROGRAMS)!r})\nimport "
        f"planted\nplanted.install({name!r})\n"
    )
    launcher.write_text(
        text.replace("\nfrom torch.nn import *\n", f"\n{planting}\nfrom torch.nn import *\n", 1)
    )
    start, cpu_s = time.monotonic(), _children_cpu_s()
    try:
        command = [sys.executable, str(launcher), "minify"]
        ended = subprocess.run(
            command,
            cwd=folder,
            env=_environment(folder / "cache"),
            capture_output=True,
            timeout=timeout_s,
        )
        note = "" if ended.returncode == 0 else f", exit code {ended.returncode}"
    except subprocess.TimeoutExpired:
        note = f", not ended in {timeout_s:.0f} s"
    seconds, cpu_s = time.monotonic() - start, _children_cpu_s() - cpu_s
    try:
        manifest = parse_torch_script((folder / "repro.py").read_text()).manifest
    except (OSError, NoTorchRepro):
        return Minified(seconds, None, f"no program after {seconds:.1f} s{note}")
    return Minified(seconds, manifest.node_count, note, cpu_s)


def _environment(cache: Path) -> dict[str, str]:
    dropped = ("TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "COMPILEBOARD_")
    passed = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {
        **passed,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


if __name__ == "__main__":
    main()
