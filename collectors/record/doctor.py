"""Say what this machine, torch and environment can and cannot record, and why."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from collectors.record.facts import gpu_facts
from collectors.record.home import spool_root
from collectors.store.connect import open_reader
from collectors.store.errors import StoreError, StoreMissing

OLDEST_TORCH, NEWEST_TORCH = (2, 4), (2, 13)
LOW_DISK_BYTES = 1 << 30
PROBE = """
import json, torch._dynamo
from collectors.observe import torch_compat
print(json.dumps(torch_compat.probe()))
"""


@dataclass(frozen=True)
class Check:
    """Hold one finding. `mark` is ok, note or fails."""

    mark: str
    subject: str
    finding: str


def examine(database: str) -> list[Check]:
    """Look at everything that recording depends on; changes nothing."""
    environment = dict(os.environ)
    return [
        Check(
            "ok" if sys.version_info >= (3, 10) else "fails", "python", f"{sys.version.split()[0]} ({sys.executable})"
        ),
        *_torch_checks(),
        *_gpu_checks(environment),
        sqlite_check(sqlite3.sqlite_version),
        _sqlite_utils_check(),
        _database_check(database),
        _spool_check(spool_root(environment)),
        *environment_checks(environment),
    ]


def _python_check() -> Check:
    mark = "ok" if sys.version_info >= (3, 10) else "fails"
    return Check(mark, "python", f"{sys.version.split()[0]} ({sys.executable})")


def _torch_checks() -> list[Check]:
    if importlib.util.find_spec("torch") is None:
        return [Check("fails", "torch", "is not installed for this python; run doctor with the python of your program")]
    version = importlib.metadata.version("torch")
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < OLDEST_TORCH:
        return [Check("fails", "torch", f"{version} is too old; CompileBoard records torch 2.4 and newer")]
    newer = numbers > NEWEST_TORCH
    checks = [
        Check(
            "note" if newer else "ok", "torch", f"{version}{' is newer than what was tested (2.13)' if newer else ''}"
        )
    ]
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return [*checks, Check("fails", "torch._dynamo", f"cannot be imported: {last[0]}")]
    for capability, answer in json.loads(done.stdout.splitlines()[-1]).items():
        good = answer in ("ok", "later")
        said = {"ok": "recorded", "later": "recorded once inductor is loaded"}.get(answer, answer)
        checks.append(Check("ok" if good else "note", capability.replace("_", " "), said))
    return checks


def _gpu_checks(environment: dict[str, str]) -> list[Check]:
    if shutil.which("nvidia-smi") is None:
        return [Check("note", "gpu", "there is no nvidia-smi: runs are recorded without a GPU's name")]
    gpus = gpu_facts(environment)
    if not gpus:
        return [Check("note", "gpu", "nvidia-smi names no visible GPU")]
    return [Check("ok", "gpu", f"{gpu['name']}, driver {gpu['driver_version']}") for gpu in gpus]


def sqlite_check(version: str) -> Check:
    """Name the SQLite builds that can damage a WAL database when two connections check-point it at once.

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
        f"{version} has the WAL-reset bug (fixed in 3.51.3): only one recorder at a time should check-point a database",
    )


def _sqlite_utils_check() -> Check:
    if importlib.util.find_spec("sqlite_utils") is None:
        return Check("fails", "sqlite-utils", "is not installed; databases cannot be made: pip install sqlite-utils")
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
    return Check("ok", "database", f"{database} holds {count} runs")


def _spool_check(root: Path) -> Check:
    folder = root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return Check("fails", "spool", f"{root} cannot be made; set COMPILEBOARD_HOME to a folder that may be written")
    free = shutil.disk_usage(folder).free
    if free < LOW_DISK_BYTES:
        return Check("note", "spool", f"only {free >> 20} MiB are free where {root} is")
    waiting = len(list(root.glob("*/run.json"))) if root.is_dir() else 0
    return Check("ok", "spool", f"{root}{f', {waiting} runs wait to be recorded' if waiting else ''}")


def environment_checks(environment: dict[str, str]) -> list[Check]:
    """Say what in the environment changes what can be seen."""
    checks = []
    for name, finding in (
        ("PYTHONNOUSERSITE", "is set: harmless"),
        ("PYTHONSAFEPATH", "is set: harmless"),
        ("TORCHDYNAMO_DISABLE", "is set: torch.compile does nothing, so there is nothing to record"),
        ("TORCH_COMPILE_DISABLE", "is set: torch.compile does nothing, so there is nothing to record"),
        ("TORCH_TRACE", "is set: your trace is left as it is; compiles pay for it"),
        ("COMPILEBOARD_RUN_ID", "is set: `run` joins that run instead of opening its own"),
    ):
        if environment.get(name) and not finding.endswith("harmless"):
            checks.append(Check("note", name, finding))
    if environment.get("PYTHONHOME"):
        checks.append(Check("note", "PYTHONHOME", "is set: other interpreters the program starts may not find us"))
    return checks
