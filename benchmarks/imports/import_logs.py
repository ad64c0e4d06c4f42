"""Run other programs pinned to cores; print wall time, CPU time, peak memory and output."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import sqlite3
import stat
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    ROOT,
    Row,
    bootstrap,
    clean_environment,
    interleave,
    last_json,
    print_table,
    ratios,
    run_python,
    scratch_folder,
)
from benchmarks.imports.replicas import ReplicaFacts

TLPARSE = "0.4.3"


@dataclass(frozen=True)
class Measured:
    """The cost of one run. Memory is the highest of the program and the children it waited for."""

    wall_s: float
    cpu_s: float
    rss_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Pinned:
    """Run programs on a few cores of this machine, the last ones that this process may use."""

    cores: int
    environment: Mapping[str, str]

    def measure(self, command: Sequence[str], output: Path) -> Measured:
        """Run a program that writes `output` (a file with its companions, or a folder), which is
        removed before.

        Its peak memory is at least this process's at the start, so keep large things out of this
        process.
        Raises: SystemExit with the program's own words if it fails.
        """
        _remove(output)
        os.sync()  # what an earlier program wrote is not written back while this one runs
        with tempfile.TemporaryFile() as output_file:
            began = time.perf_counter()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output_file,
                stderr=output_file,
                env=self.environment,
                preexec_fn=self._pin,
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall_s = time.perf_counter() - began
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                output_file.seek(0)
                words = output_file.read()[-3000:].decode(errors="replace")
                raise SystemExit(f"{' '.join(command)} ended with {child.returncode}:\n{words}")
        return Measured(
            wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, _size(output)
        )

    def _pin(self) -> None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-self.cores :])


def find_tlparse(folder: Path) -> str | None:
    """Return the path of tlparse: the one on PATH, else its wheel's from PyPI, unpacked into the
    folder.
    """
    path = shutil.which("tlparse")
    if path:
        return path
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    if subprocess.run([*pip, f"tlparse=={TLPARSE}"], capture_output=True, check=False).returncode:
        return None
    (wheel,) = folder.glob("tlparse-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/scripts/tlparse"))
        program = Path(archive.extract(name, folder))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def _companions(output: Path) -> list[Path]:
    return [path for path in output.parent.glob(f"{output.name}*") if path.is_file()]


def _remove(output: Path) -> None:
    if output.is_dir():
        shutil.rmtree(output)
    for path in _companions(output):
        path.unlink()


def _size(output: Path) -> int:
    files = output.rglob("*") if output.is_dir() else iter(_companions(output))
    return sum(path.stat().st_size for path in files if path.is_file())


DATA = ROOT / "tests" / "data" / "trace"
EAGER_PROGRAMS = (
    ["tests.programs.scenarios", "many"],
    ["tests.programs.breaks"],
    ["tests.programs.recompiles"],
)
LARGE_BYTES = 300_000_000
KINDS = ("inductor", "eager")
PARTS = ("metadata", "payloads")


@dataclass(frozen=True)
class Log:
    """A replica: what to call it, where it is, what is in it."""

    name: str
    path: Path
    facts: ReplicaFacts

    def mb_per_s(self, run: Measured) -> float:
        """Return the speed of a run over this log.

        Units: MB/s.
        """
        return self.facts.size_bytes / 1e6 / run.wall_s

    def speed(self, runs: Sequence[Measured]) -> str:
        """Format the median speed."""
        return f"{statistics.median(map(self.mb_per_s, runs)):.1f} MB/s"

    def share(self, size_bytes: float) -> str:
        """Format how much of the log's size that is."""
        return f"{size_bytes / self.facts.size_bytes:.3f}"


@dataclass(frozen=True)
class Bench:
    """Run both programs into one folder."""

    folder: Path
    importer: list[str]
    tlparse: str | None
    pinned: Pinned
    repeats: int
    repeats_large: int
    jobs: int

    def times(self, log: Log) -> int:
        """Return how often to measure on this log."""
        return self.repeats_large if log.facts.size_bytes > LARGE_BYTES else self.repeats

    def knows(self, option: str) -> bool:
        """Return whether the importer has an option."""
        command = [*self.importer, "--help"]
        done = subprocess.run(
            command, env=self.pinned.environment, capture_output=True, text=True, check=False
        )
        return option in done.stdout

    def import_log(self, log: Log, *options: str) -> Measured:
        """Import once into a new database.

        Raises: SystemExit if the import fails or a compilation record is missing.
        """
        database = self.folder / "import.db"
        jobs = ["--jobs", str(self.jobs)] if self.jobs > 1 else []
        done = self.pinned.measure(
            [*self.importer, "--db", str(database), *jobs, *options, str(log.path)], database
        )
        connection = sqlite3.connect(database)
        (stored_count,) = connection.execute("select count(*) from compilations").fetchone()
        connection.close()
        if stored_count != log.facts.metrics:
            raise SystemExit(
                f"{log.name}: {stored_count} compilation records were stored; the log has "
                f"{log.facts.metrics}"
            )
        return done

    def parse_log(self, log: Log, *options: str) -> Measured:
        """Have tlparse read the log once."""
        out = self.folder / "tlparse-out"
        command = [
            str(self.tlparse),
            str(log.path),
            "-o",
            str(out),
            "--overwrite",
            "--no-browser",
            *options,
        ]
        return self.pinned.measure(command, out)


def measure_metadata(bench: Bench, log: Log) -> list[Row]:
    """Import without payloads; make the rows."""
    runs = [bench.import_log(log, "--no-payloads") for _ in range(bench.times(log))]
    speed = bootstrap([log.mb_per_s(run) for run in runs])
    cpu_s = _median(runs, "cpu_s")
    return [
        Row(f"{log.name}, metadata only", log.speed(runs), reach="≥ 100 MB/s"),
        Row("  95% interval", f"[{speed.low:.1f}, {speed.high:.1f}] of {len(runs)}"),
        Row("  CPU", f"{cpu_s:.2f} s, {log.facts.size_bytes / 1e6 / cpu_s:.1f} MB/s"),
        Row("  peak RSS", f"{_median(runs, 'rss_bytes') / 1e6:.0f} MB", reach="≤ 128 MB, flat"),
        Row("  database ÷ log", log.share(_median(runs, "output_bytes"))),
    ]


def measure_payloads(bench: Bench, log: Log) -> list[Row]:
    """Import with payloads beside `tlparse -p` and `tlparse`; make the rows."""
    without_index = ["--no-index"] if bench.knows("--no-index") else []
    references = {"tlparse -p": ["-p"], "tlparse": []} if bench.tlparse else {}
    pairs = interleave(
        bench.times(log),
        lambda: [bench.import_log(log, *without_index)],
        lambda: [bench.parse_log(log, *options) for options in references.values()],
    )
    ours = [run for (run,), _ in pairs]
    rows = [] if references else compare(log, ours, [], "tlparse")
    for number, name in enumerate(references):
        rows += compare(log, ours, [theirs[number] for _, theirs in pairs], name)
    if without_index:
        whole = bench.import_log(log)
        rows += [
            Row(
                "  search index ÷ log",
                log.share(whole.output_bytes - _median(ours, "output_bytes")),
                reach="≤ 0.5",
            ),
            Row("  import with the index", f"{whole.wall_s:.1f} s, once"),
        ]
    return rows


def compare(log: Log, ours: list[Measured], theirs: list[Measured], name: str) -> list[Row]:
    """Make the rows beside one reference; without its runs it was not measured."""
    title, speed = f"{log.name}, with payloads, beside {name}", log.speed(ours)
    promised = (
        ("≥ 1.5", "", "≤ 0.5", "≤ 0.4 of the log") if name != "tlparse" or not theirs else ("",) * 4
    )
    if theirs:
        ratio = bootstrap(
            ratios([(log.mb_per_s(our), log.mb_per_s(their)) for our, their in zip(ours, theirs)])
        )
        rows = [Row(title, speed, log.speed(theirs), str(ratio), promised[0])]
    else:
        rows = [Row(title, speed, "not measured", reach=promised[0])]
    units = (("CPU", "cpu_s", 1.0, " s"), ("peak RSS", "rss_bytes", 1e6, " MB"))
    for number, (what, field, unit, word) in enumerate(
        (*units, ("output ÷ log", "output_bytes", log.facts.size_bytes, ""))
    ):
        our, their = _median(ours, field) / unit, _median(theirs, field) / unit if theirs else None
        reference, ratio_of = (
            (f"{their:.3g}{word}", f"{our / their:.3f}") if their else ("not measured", "")
        )
        rows.append(Row(f"  {what}", f"{our:.3g}{word}", reference, ratio_of, promised[number + 1]))
    return rows


def _median(runs: Sequence[Measured], field: str) -> float:
    return float(statistics.median(getattr(run, field) for run in runs))


def find_logs(given: Sequence[Path]) -> list[Path]:
    """List the logs given or in the folders given.

    Raises: SystemExit if there are none.
    """
    logs = [
        log for path in given for log in (sorted(path.rglob("*.log")) if path.is_dir() else [path])
    ]
    if not logs:
        raise SystemExit(f"no trace log (*.log) in {', '.join(map(str, given))}")
    return logs


def record_eager(folder: Path) -> list[Path]:
    """Record logs of the eager backend.

    Raises: SystemExit without torch, or if a program fails.
    """
    if importlib.util.find_spec("torch") is None:
        raise SystemExit(
            "recording logs of the eager backend needs torch; give recorded ones with --eager"
        )
    for number, program in enumerate(EAGER_PROGRAMS):
        run_python(["-m", *program], clean_environment(TORCH_TRACE=str(folder / f"eager-{number}")))
    return find_logs(sorted(folder.glob("eager-*")))


def replicate(
    name: str, sources: Sequence[Path], size_mb: int, folder: Path, *, perturb: bool
) -> Log:
    """Make a replica in a process of its own: this one stays small."""
    path = folder / "replica.log"
    options = ["--size-mb", str(size_mb), *(["--perturb"] if perturb else [])]
    facts_text = run_python(
        [
            "-m",
            "benchmarks.imports.replicas",
            *options,
            str(path),
            *(str(source.resolve()) for source in sources),
        ],
        clean_environment(),
    )
    facts: Any = last_json(facts_text)
    return Log(f"{name}, {facts['size_bytes'] / 1e6:.0f} MB", path, ReplicaFacts(**facts))


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports.import_logs", description=__doc__
    )
    parser.add_argument(
        "logs", type=Path, nargs="*", metavar="LOG", help="inductor logs, or folders of them"
    )
    parser.add_argument(
        "--eager", type=Path, nargs="+", default=[], metavar="LOG", help="instead of recording some"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--sizes-mb", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--repeats", type=int, default=5, help="of logs up to 300 MB")
    parser.add_argument("--repeats-large", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="that either program may use")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the import")
    parser.add_argument(
        "--importer",
        default=f"{shlex.quote(sys.executable)} -m compileboard.collectors import",
        metavar="COMMAND",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Make the replicas one by one, measure on each, print the table."""
    arguments = parse_arguments(argv)
    measures = {"metadata": measure_metadata, "payloads": measure_payloads}
    rows: list[Row] = []
    with scratch_folder() as folder:
        environment = clean_environment(COMPILEBOARD_HOME=str(folder / "home"))
        tlparse = find_tlparse(folder) if "payloads" in arguments.parts else None
        pinned = Pinned(arguments.cores, environment)
        bench = Bench(
            folder,
            shlex.split(arguments.importer),
            tlparse,
            pinned,
            arguments.repeats,
            arguments.repeats_large,
            arguments.jobs,
        )
        for kind in arguments.kinds:
            if kind == "eager":
                sources = find_logs(arguments.eager) if arguments.eager else record_eager(folder)
            else:
                sources = (
                    find_logs(arguments.logs)
                    if arguments.logs
                    else sorted(DATA.glob("torch2.11*.log.xz"))
                )
            for size_mb in arguments.sizes_mb:
                for part in arguments.parts:
                    log = replicate(kind, sources, size_mb, folder, perturb=part == "payloads")
                    rows += measures[part](bench, log)
    print_table(
        "Import of trace logs",
        rows,
        (
            f"Reference: tlparse of the row's title. {arguments.cores} core(s), {arguments.jobs} "
            "job(s)."
        ),
        *(
            []
            if arguments.logs
            else ["The inductor logs are those of the tests, which lack what becomes no event."]
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
