"""Facts of a run's repository, machine and GPUs, gathered outside the observed process."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.secrets import scrub_text

ASK_TIMEOUT_S = 5.0


def ask(command: list[str], cwd: str | None = None) -> str | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        completed = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (
        completed.stdout.decode("utf-8", "replace").strip() if completed.returncode == 0 else None
    )


def git_facts(folder: str) -> dict[str, Any]:
    root = ask(["git", "rev-parse", "--show-toplevel"], cwd=folder)
    if not root:
        return {}
    described = ask(["git", "log", "-1", "--format=%H%x00%s"], cwd=folder) or ""
    commit, _, subject = described.partition("\0")
    status = ask(["git", "status", "--porcelain", "--untracked-files=no"], cwd=folder)
    remote = ask(["git", "remote", "get-url", "origin"], cwd=folder)
    return {
        "root": root,
        "commit": commit or None,
        "subject": scrub_text(subject) or None,
        "branch": ask(["git", "symbolic-ref", "--short", "-q", "HEAD"], cwd=folder),
        "dirty": None if status is None else bool(status),
        "remote": scrub_text(remote) if remote else None,
    }


def program_folder(command: list[str], cwd: str) -> str:
    for argument in command:
        path = Path(cwd, argument)
        if argument.endswith(".py") and path.is_file():
            return str(path.resolve().parent)
    return cwd


def host_facts() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": platform.node(),
        "os": platform.platform(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "cpu": _cpu_model(),
    }
    if hasattr(os, "sysconf"):
        facts["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return facts


def _cpu_model() -> str | None:
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def gpu_facts(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    fields = "index,uuid,name,memory.total,compute_cap,driver_version"
    output = ask(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    gpus = []
    for line in (output or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 6:
            continue
        index, uuid, name, memory_mib, capability, driver = parts
        gpus.append(
            {
                "index": index,
                "uuid": uuid,
                "name": name,
                "memory_bytes": int(memory_mib) << 20 if memory_mib.isdigit() else None,
                "compute_capability": capability,
                "driver_version": driver,
            }
        )
    return visible_gpus(gpus, environment.get("CUDA_VISIBLE_DEVICES"))


def visible_gpus(gpus: list[dict[str, Any]], chosen: str | None) -> list[dict[str, Any]]:
    if chosen is None:
        return gpus
    visible = []
    for key in (part.strip() for part in chosen.split(",")):
        match = [
            gpu
            for gpu in gpus
            if gpu["index"] == key or (key.startswith("GPU-") and gpu["uuid"].startswith(key))
        ]
        if not match:
            break  # CUDA stops at the first name it does not know
        visible.extend(match)
    return visible
