"""`doctor`: check what this machine, torch and environment can record."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import click

from compileboard.collectors.cli.common import db_option, read_destination, server_options
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.observe.torch_compat import (
    NEWEST_TORCH,
    describe_too_old,
    release_of,
)
from compileboard.collectors.push.client import Client
from compileboard.collectors.push.client import explain as explain_refusal
from compileboard.collectors.push.target import Target, TargetError
from compileboard.collectors.record.facts import gpu_facts, joined_run_id
from compileboard.collectors.record.spool import list_unrecorded, new_run_id, spool_root
from compileboard.collectors.store.connection import StoreError, StoreMissing, open_reader
from compileboard.collectors.terminal import values as command_hints
from compileboard.collectors.wire.http import ServerUnavailable
from compileboard.command_line import Command
from compileboard.exit_codes import DONE, FAILED
from compileboard.version import VERSION

LOW_DISK_BYTES = 1 << 30
PROBE_TIMEOUT_S = 120
MAX_SKEW_S = 60.0
PROBE = """
import importlib.metadata, json, runpy, sys, torch, torch._dynamo
torch_compat = runpy.run_path(sys.argv[1])
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
cuda = torch.version.cuda
print(json.dumps({
    "capabilities": torch_compat["probe"](),
    "hip": torch.version.hip,
    "cuda": cuda,
    "cudnn": torch.backends.cudnn.version() if cuda else None,
    "triton": version("triton") or version("pytorch-triton"),
    "device_count": torch.cuda.device_count(),
}))
"""
TORCH_COMPAT = (
    Path(__file__).resolve().parent.parent / "observe" / "torch_compat.py"
)  # imports nothing else of ours
# One capability of torch_compat, as examined here.
RECORDED = {
    "metrics": "compile records",
    "events": "graph breaks and recompiles",
    "failed_guards": "every failed guard of a recompile",
    "compile_context": "compile IDs",
    "counters": "final counters",
    "compile_times": "compile phases",
    "cudagraph_skips": "CUDA graph skips",
    "cudagraph_recordings": "CUDA graphs recorded",
    "cudagraph_warm_ups": "CUDA graphs warmed up",
    "step_calls": "steps, with --steps",
    "profiler_starts": "uses of torch's profiler, for --steps",
    "profiler_older_starts": "uses of torch's older profiler, for --steps",
    "graph_calls": "exceptions of compiled code",
    "backward_calls": "exceptions of compiled backwards",
    "backward_passes": "gradients compared by try",
    "repro_backend_calls": "repros of compiles that fail",
    "repro_script": "repros of graphs that fail",
    "repro_graph_script": "repros of inductor's code that fails",
    "repro_graph_calls": "--repro=crash and --repro=accuracy",
    "repro_compiles": "--repro=accuracy of AOTAutograd's graphs",
    "minifier": "repro minify",
    "minifier_program": "programs of repro minify",
    "graph_compiler": "repro of AOTAutograd's graphs",
    "skip_code": "dynamo kept out of the collector's own code",
    "config_defaults": "changed settings",
}


@dataclass(frozen=True)
class Check:
    mark: str
    subject: str
    finding: str


# Not detectable on this machine.
LIMITS = (
    Check(
        "note",
        "out of reach",
        "python -I, -S and -E, and interpreters that drop PYTHONPATH, run unobserved",
    ),
    Check(
        "note",
        "containers",
        "a container is another machine: install CompileBoard in its image and put `run` inside it",
    ),
    Check(
        "note",
        "other nodes",
        (
            "each starts its own `run`; with one COMPILEBOARD_RUN_ID on all they are one run, "
            "without it one run each"
        ),
    ),
    Check(
        "note",
        "--level full",
        (
            "adds torch's own trace log: graphs, generated code, guards and a timeline; compiles "
            "slow by about a tenth"
        ),
    ),
)


@click.command(cls=Command)
@db_option
@server_options
def doctor(**values: Any) -> int:
    """Print what this machine, torch and environment can record, and why; with --server, whether
    runs can be pushed.
    """
    checks = examine(**_read_destination(values))
    width = max(len(check.subject) for check in checks)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for check in checks:
        head = f"{check.mark:<5} {check.subject:<{width}}  "
        room = max(30, columns - len(head)) if columns else len(check.finding) + 1
        print(
            head
            + f"\n{'':<{len(head)}}".join(
                textwrap.wrap(check.finding, room, break_on_hyphens=False)
            )
        )
    return FAILED if any(check.mark == "fails" for check in checks) else DONE


def _read_destination(values: dict[str, Any]) -> dict[str, Any]:
    try:
        config = RunConfig(**read_destination(values))
    except TargetError as error:
        return {"database": "", "destination": [Check("fails", "server", str(error))]}
    return {
        "database": config.database,
        "destination": check_server_of(config, os.environ) if config.server else None,
    }


def check_server_of(config: RunConfig, environment: Mapping[str, str]) -> list[Check]:
    target = Target.of(config)
    with closing(Client(target, environment)) as client:
        try:
            began_s = time.time()
            health = client.ask_page("healthz")
            # An unknown stream: 200 or 404 if the token may push.
            stream = client.ask("HEAD", f"runs/{new_run_id()}/streams/doctor")
        except ServerUnavailable as error:
            return [Check("fails", "server", str(error))]
    version = health.body.get("version")
    if not isinstance(version, str) and stream.status in (200, 404):
        finding = (
            f"{target.server} is not a CompileBoard server: /healthz answers {health.describe()}"
        )
        return [
            Check("fails", "server", f"{finding}; give the address at which the dashboard opens")
        ]
    checks = []
    if stream.status in (200, 404):
        token = "its token may push" if client.has_token else "it asks for no token"
        checks.append(Check("ok", "server", f"{target.server} answers; {token}"))
    else:
        checks.append(Check("fails", "server", explain_refusal(stream)))
    if isinstance(version, str) and version != VERSION:
        checks.append(
            Check(
                "note", "server version", f"{clean_text(version)[:40]}; this collector is {VERSION}"
            )
        )
    skew_s = describe_skew(health.headers.get("date", ""), began_s)
    if skew_s is not None and abs(skew_s) > MAX_SKEW_S:
        finding = (
            f"differs from this machine's by {abs(skew_s):.0f} s; runs appear at another time "
            "than they began"
        )
        checks.append(Check("note", "server clock", finding))
    return checks


def describe_skew(date: str, now_s: float) -> float | None:
    """Return the seconds a server's clock is ahead, None if unknown."""
    try:
        return parsedate_to_datetime(date).timestamp() - now_s
    except (ValueError, TypeError):
        return None


def examine(database: str, destination: list[Check] | None = None) -> list[Check]:
    environment = dict(os.environ)
    return [
        Check(
            "ok" if sys.version_info >= (3, 10) else "fails",
            "python",
            f"{sys.version.split()[0]} ({sys.executable})",
        ),
        *_torch_checks(),
        *_gpu_checks(environment),
        *(_database_checks(database) if destination is None else destination),
        spool_check(spool_root(environment)),
        *unrecorded_checks(environment),
        *environment_checks(environment),
        *LIMITS,
    ]


def _database_checks(database: str) -> list[Check]:
    return [sqlite_check(sqlite3.sqlite_version), _sqlite_utils_check(), _database_check(database)]


def _torch_checks() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return [
            Check(
                "fails",
                "torch",
                "is not installed for this python; run doctor with the python of your program",
            )
        ]
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Check("note", "torch", "version unknown: not installed by pip"), *_probe_checks()]
    if too_old := describe_too_old(version):
        return [Check("fails", "torch", too_old.removeprefix("torch "))]
    newer, tested = release_of(version) > NEWEST_TORCH, ".".join(map(str, NEWEST_TORCH))
    text = f"{version} is newer than what was tested ({tested})" if newer else version
    return [Check("note" if newer else "ok", "torch", text), *_probe_checks()]


def _probe_checks() -> list[Check]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(TORCH_COMPAT)],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return [Check("fails", "torch._dynamo", f"was not imported within {PROBE_TIMEOUT_S} s")]
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return [Check("fails", "torch._dynamo", f"cannot be imported: {last[0]}")]
    facts = json.loads(done.stdout.splitlines()[-1])
    return [build_check(facts), *capability_checks(facts["capabilities"])]


def build_check(facts: dict[str, Any]) -> Check:
    platform = (
        f"CUDA {facts['cuda']}"
        if facts["cuda"]
        else f"ROCm {facts['hip']}"
        if facts["hip"]
        else None
    )
    if platform is None:
        return Check(
            "note",
            "torch build",
            "without CUDA: compiles for the CPU are recorded, there are none for a GPU",
        )
    words = [platform]
    if facts["cudnn"]:
        words.append(f"cuDNN {facts['cudnn']}")
    words.append(
        f"triton {facts['triton']}"
        if facts["triton"]
        else "no triton: inductor cannot compile for the GPU"
    )
    count = facts["device_count"]
    words.append(f"{count} usable GPU{'' if count == 1 else 's'}")
    return Check("ok" if facts["triton"] and count else "note", "torch build", ", ".join(words))


def capability_checks(answers: dict[str, str]) -> list[Check]:
    texts = {"ok": "recorded", "later": "recorded once inductor is loaded"}
    return [
        Check(
            "ok" if answer in texts else "note",
            RECORDED.get(capability, capability.replace("_", " ")),
            texts.get(answer, answer),
        )
        for capability, answer in answers.items()
    ]


def _gpu_checks(environment: dict[str, str]) -> list[Check]:
    if shutil.which("nvidia-smi") is None:
        return [
            Check("note", "gpu", "there is no nvidia-smi: runs are recorded without a GPU's name")
        ]
    gpus = gpu_facts(environment)
    if not gpus:
        return [Check("note", "gpu", "nvidia-smi names no visible GPU")]
    return [Check("ok", "gpu", f"{gpu['name']}, driver {gpu['driver_version']}") for gpu in gpus]


def sqlite_check(version: str) -> Check:
    """Return whether this SQLite build can corrupt a WAL database when two connections checkpoint
    at once.

    Source: https://sqlite.org/wal.html#walresetbug
    """
    numbers = tuple(int(part) for part in version.split("."))
    fixed = numbers >= (3, 51, 3) or (numbers[:2] == (3, 50) and numbers >= (3, 50, 7))
    fixed = fixed or (numbers[:2] == (3, 44) and numbers >= (3, 44, 6)) or numbers < (3, 7, 0)
    if fixed:
        return Check("ok", "sqlite", version)
    return Check(
        "note",
        "sqlite",
        f"{version} has the rare WAL-reset bug, which can damage a database that several "
        "processes write at once. "
        "CompileBoard checkpoints the WAL seldom and verifies a run before deleting its spool. "
        "To avoid the bug, use "
        "SQLite 3.51.3 or newer (3.50.7 and 3.44.6 have the fix too): upgrade libsqlite3 or "
        "this Python",
    )


def _sqlite_utils_check() -> Check:
    if importlib.util.find_spec("sqlite_utils") is None:
        return Check(
            "fails",
            "sqlite-utils",
            "is not installed; databases cannot be made: pip install sqlite-utils",
        )
    return Check("ok", "sqlite-utils", importlib.metadata.version("sqlite-utils"))


def _database_check(database: str) -> Check:
    try:
        connection = open_reader(database)
    except StoreMissing:
        return Check("ok", "database", f"{database} is not there yet; the first run makes it")
    except StoreError as error:
        return Check("fails", "database", str(error))
    count = connection.execute("select count(*) from runs").fetchone()[0]
    connection.close()
    return Check("ok", "database", f"{database} holds {count} run{'' if count == 1 else 's'}")


def spool_check(root: Path) -> Check:
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.rmdir(tempfile.mkdtemp(prefix=".doctor-", dir=root))
            free = shutil.disk_usage(root).free
        finally:
            with suppress(OSError):  # stops at the first that existed, or is in use
                for folder in missing:
                    folder.rmdir()
    except OSError as error:
        advice = "set COMPILEBOARD_HOME to a folder on a local disk that may be written"
        return Check(
            "fails", "spool", f"{root} cannot be written: {error.strerror or error}; {advice}"
        )
    if free < LOW_DISK_BYTES:
        return Check("note", "spool", f"only {free >> 20} MiB are free where {root} is")
    waiting = len(list(root.glob("*/run.json"))) if root.is_dir() else 0
    runs = (
        f", {waiting} {'run waits' if waiting == 1 else 'runs wait'} to be recorded"
        if waiting
        else ""
    )
    return Check("ok", "spool", f"{root}{runs}")


def unrecorded_checks(environment: Mapping[str, str]) -> list[Check]:
    return [
        Check(
            "note",
            spool.state,
            (
                f"{spool.name}: {spool.reason}; "
                f"`{command_hints.collector_command('retry', spool.name)}` tries again"
            ),
        )
        for spool in list_unrecorded(environment)
    ]


def environment_checks(environment: dict[str, str]) -> list[Check]:
    checks = []
    for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        value = environment.get(name, "")
        if value == "1":
            finding = "is 1: torch.compile does nothing, so there is nothing to record; unset it"
            checks.append(Check("fails", name, finding))
        elif value not in ("", "0"):  # torch/_dynamo/config.py and eval_frame.py compare with "1"
            checks.append(
                Check(
                    "note",
                    name,
                    f"is {value!r}: torch takes only 1 for off, so it compiles; use 0 or 1",
                )
            )
    try:
        if joined := joined_run_id(environment):
            checks.append(Check("note", "COMPILEBOARD_RUN_ID", f"is set: `run` joins run {joined}"))
    except ValueError as error:
        checks.append(
            Check("fails", "COMPILEBOARD_RUN_ID", str(error).removeprefix("COMPILEBOARD_RUN_ID "))
        )
    for name, finding in (
        ("TORCH_TRACE", "is set: your trace is left as it is; compiles pay for it"),
        ("PYTHONHOME", "is set: other interpreters the program starts may not find us"),
    ):
        if environment.get(name):
            checks.append(Check("note", name, finding))
    return checks
