"""Store answers in the database of a repro, or beside its file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from compileboard.collectors.repro.repro import Repro
from compileboard.collectors.spool.folders import home
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.repros import ReproResult, save_result


def save_answer(repro: Repro, result: ReproResult) -> str:
    """Save an answer in the repro's database or in `<file>.repro/`; return where.

    Raises StoreError or OSError.
    """
    if repro.database is not None and repro.id is not None:
        with closing(open_writer(repro.database, create=False)) as connection:
            save_result(connection, repro.id, result)
            checkpoint(connection)
        return repro.database
    folder = Path(f"{repro.path or repro.name}.repro")
    folder.mkdir(exist_ok=True)
    stem = f"{result.command}-{result.started_us}"
    if result.program is not None:
        _write(folder / f"{stem}.py", result.program)
    body = {name: value for name, value in asdict(result).items() if name != "program"}
    path = folder / f"{stem}.json"
    _write(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return str(path)


def work_folder(repro: Repro, environment: Mapping[str, str]) -> Path:
    body = "\x1e".join(
        (repro.manifest.kind, repro.manifest.level, repro.program, repro.dynamo_program or "")
    )
    name = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    folder = home(environment) / "repro" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def now_us() -> int:
    return time.time_ns() // 1000


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="surrogatepass")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
