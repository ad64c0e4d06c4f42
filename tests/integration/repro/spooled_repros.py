"""Run a program under the hooks alone, and read the repros that it leaves in its spool."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compileboard.collectors.contract import record_names
from compileboard.collectors.contract.repros import ReproManifest, load_manifest
from compileboard.collectors.contract.run_config import RunConfig
from tests.tools.observed import PYTHON, ROOT, SEARCHED, Workplace

PLANTED = Path(__file__).with_name("run_planted.py")


@dataclass
class SpooledRepro:
    """One repro as it lies in a spool."""

    manifest: ReproManifest
    program: str
    dynamo_program: str | None
    fields: dict[str, Any]
    context: Any
    values: dict[str, bytes] = field(default_factory=dict)  # by digest


@dataclass
class Spooled:
    """What a process wrote, and how it ended."""

    returncode: int
    stdout: str
    stderr: str
    records: list[dict[str, Any]]

    @property
    def repros(self) -> list[SpooledRepro]:
        repros: dict[int, SpooledRepro] = {}
        values: dict[int, dict[str, bytes]] = {}
        for record in self.records:
            fields = record["m"]
            if record["n"] == record_names.REPRO:
                payload = record["p"]
                repros[fields["position"]] = SpooledRepro(
                    load_manifest(fields["manifest"]),
                    payload["program"],
                    payload["dynamo_program"],
                    fields,
                    record.get("c"),
                )
            elif record["n"] == record_names.REPRO_VALUES:
                body = zlib.decompress(base64.b64decode(record["p"]))
                values.setdefault(fields["position"], {})[fields["digest"]] = body
        for position, repro in repros.items():
            repro.values = values.get(position, {})
        return list(repros.values())

    @property
    def losses(self) -> dict[str, int]:
        return {
            reason: count
            for record in self.records
            if record["n"] == record_names.SNAPSHOT
            for reason, count in record["m"].get("losses", {}).items()
        }


def observe(
    folder: Path, *words: Any, environment: dict[str, str] | None = None, **config: Any
) -> Spooled:
    """Run a Python program to its end with the hooks writing into a spool of its own."""
    spool = folder / "spool"
    folder.mkdir(exist_ok=True)
    settings = RunConfig(database=str(folder / "unused.db"), **config).to_environment()
    variables = {
        **settings,
        "COMPILEBOARD_SPOOL": str(spool),
        "COMPILEBOARD_RUN_ID": "01TESTREPRO000000000000000",
        "PYTHONPATH": f"{ROOT / 'collectors/observe/inject'}:{SEARCHED}",
        **(environment or {}),
    }
    command = [PYTHON, *map(str, words)]
    workplace = Workplace(folder, lossy=True)
    ended = subprocess.run(
        command,
        env=workplace.environ(**variables, **workplace.forks_of(command)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = [
        line for path in sorted(spool.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return Spooled(
        ended.returncode, ended.stdout, ended.stderr, [json.loads(line) for line in lines]
    )
