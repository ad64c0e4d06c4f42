"""Collect facts of a run's repository, machine and GPUs, outside the observed process."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.fingerprints import normalize_run_id
from compileboard.collectors.contract.redaction import redact_code
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.secrets import (
    scrub_argv,
    scrub_environment,
    scrub_text,
    scrub_values,
)
from compileboard.collectors.contract.shapes import CiJob, Git, Gpu, Host
from compileboard.collectors.record.ci_job import ci_job
from compileboard.collectors.record.spool import RUN_ID, Manifest, new_run_id, spool_root
from compileboard.collectors.store.connection import StoreError, describe_error

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


MAX_TRACKED = 1000


def git_facts(folder: str, cwd: str | None = None) -> Git:
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
        "remote": scrub_text(_LOGIN.sub("", remote)) if remote else None,
        "tracked": _list_tracked(root, cwd) if commit else {},
        "code_owners": _read_code_owners(root) if commit else None,
    }


_LOGIN = re.compile(r"(?<=://)[^/\s]*@")


# Where GitHub looks for it, in its order, then GitLab's own place.
CODE_OWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
CODE_OWNERS_BYTES = 64 << 10


def _read_code_owners(root: str) -> str | None:
    """Return the first CODEOWNERS file of HEAD, or None if there is none or it is too large."""
    listed = ask(["git", "ls-tree", "-l", "HEAD", "--", *CODE_OWNERS], cwd=root) or ""
    sizes = {line.partition("\t")[2]: line.split()[3] for line in listed.splitlines()}
    path = next((path for path in CODE_OWNERS if path in sizes), None)
    if path is None or not sizes[path].isdigit() or int(sizes[path]) > CODE_OWNERS_BYTES:
        return None
    text = ask(["git", "cat-file", "blob", f"HEAD:{path}"], cwd=root) or ""
    lines = (line for line in map(str.strip, text.splitlines()) if line and line[0] != "#")
    return scrub_text("\n".join(lines)) or None


def _list_tracked(root: str, cwd: str | None) -> dict[str, list[str]]:
    """List HEAD's entries at the top of a repository, and those in the working directory if it is
    below the top.
    """
    below = os.path.relpath(os.path.realpath(cwd), os.path.realpath(root)) if cwd else "."
    folders = {"": "HEAD"}
    if below != "." and not below.startswith(".."):
        folders[below] = f"HEAD:{below}"
    listed = {
        folder: ask(["git", "ls-tree", "-z", "--name-only", tree], cwd=root)
        for folder, tree in folders.items()
    }
    return {
        folder: names.strip("\0").split("\0")[:MAX_TRACKED]
        for folder, names in listed.items()
        if names
    }


def program_folder(command: list[str], cwd: str) -> str:
    for argument in command:
        path = Path(cwd, argument)
        if argument.endswith(".py") and path.is_file():
            return str(path.resolve().parent)
    return cwd


def host_facts() -> Host:
    return {
        "name": platform.node(),
        "os": platform.platform(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


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


def gpu_facts(environment: Mapping[str, str]) -> list[Gpu]:
    fields = "index,uuid,name,memory.total,compute_cap,driver_version"
    output = ask(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
    gpus: list[Gpu] = []
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


def visible_gpus(gpus: list[Gpu], chosen: str | None) -> list[Gpu]:
    if chosen is None:
        return gpus
    visible: list[Gpu] = []
    for key in (part.strip() for part in chosen.split(",")):
        match = [
            gpu
            for gpu in gpus
            if gpu["index"] == key or (key.startswith("GPU-") and str(gpu["uuid"]).startswith(key))
        ]
        if not match:
            break  # CUDA stops at the first name it does not know
        visible.extend(match)
    return visible


Fact = TypeVar("Fact")


def joined_run_id(environment: Mapping[str, str]) -> str | None:
    """Return the run id shared by the nodes of this job, or None. Raises ValueError if it is
    invalid.
    """
    joined = environment.get("COMPILEBOARD_RUN_ID")
    if not joined or environment.get(
        "COMPILEBOARD_SPOOL"
    ):  # a run inside an observed program has its own id
        return None
    if not RUN_ID.fullmatch(joined):
        raise ValueError(
            f"COMPILEBOARD_RUN_ID is {joined[:80]!r}; expected a letter or digit, then at most "
            "63 letters, digits, "
            "dots, dashes and underscores"
        )
    return normalize_run_id(joined)


def current_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def stored_command(argv: Iterable[str], *, keep_source: bool) -> list[str]:
    """Return a command line without secrets and, unless `keep_source`, without the code after
    `-c`.
    """
    words = scrub_argv(argv)
    return words if keep_source else redact_code(words)


def describe_run(
    config: RunConfig,
    environment: Mapping[str, str],
    *,
    argv: Iterable[str],
    cwd: str | None,
    code_folder: str | Callable[[], str],
    run_id: str | None = None,
    source: str = "live",
    troubles: Iterable[tuple[str, str]] = (),
) -> Manifest:
    """Return a run's manifest: settings, command, repository, machine and environment, without
    secrets.

    Facts that cannot be determined are left out and listed in its errors.
    """
    troubles = list(troubles)

    def ask(what: str, fact: Callable[[], Fact], instead: Fact) -> Fact:
        try:
            return fact()
        except (
            Exception
        ) as error:  # an error of git, a driver or a file system must not affect the program
            troubles.append(("not_asked", f"{what} cannot be asked for: {describe_error(error)}"))
            return instead

    settings = {field.name: getattr(config, field.name) for field in fields(RunConfig)}
    paths = {
        name: os.path.abspath(settings[name])
        for name in ("database", "token_file")
        if settings[name]
    }
    stored = {"tags": scrub_values(config.tags), **paths}
    return Manifest(
        **{**settings, **stored},
        run_id=run_id or new_run_id(),
        source=source,
        started_us=read_clock_us(),
        argv=ask("the command", lambda: stored_command(argv, keep_source=config.keep_source), []),
        cwd=cwd,
        recorder_process_id=uuid.uuid4().hex,
        git=ask(
            "the repository",
            lambda: git_facts(code_folder() if callable(code_folder) else code_folder, cwd),
            Git(),
        ),
        ci=ask("the CI job", lambda: ci_job(environment), CiJob()),
        host=ask("the machine", host_facts, Host()),
        gpus=ask("the GPUs", lambda: gpu_facts(environment), []),
        environment=ask(
            "the environment", lambda: scrub_environment(environment, config.capture_env), {}
        ),
        troubles=troubles,
    )


def spool_folder(
    manifest: Manifest, environment: Mapping[str, str], *, shared: bool = False
) -> Path:
    """Return a run's spool folder; each node of a shared run has its own."""
    name = f"{manifest.run_id}-{manifest.recorder_process_id[:8]}" if shared else manifest.run_id
    return spool_root(environment) / name


def make_spool(folder: Path, manifest: Manifest) -> None:
    try:
        folder.mkdir(parents=True, mode=0o700)
        manifest.write(folder)
    except OSError as error:
        raise StoreError(
            f"the spool folder {folder} cannot be made: {error.strerror or error}. Set "
            "COMPILEBOARD_HOME to a folder "
            "on a local disk that may be written."
        ) from error


LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
COLLECT = "compileboard-collect"
OWN_MODULES = (("-m", "collectors"), ("-m", "compileboard.collectors"))


def default_name(command: list[str]) -> str:
    """Return the name of a command's script or module: train.py (also under torchrun), my.module,
    python -c.
    """
    inner = _observed_inside(command)
    if inner:
        return default_name(inner)
    if _is_python(command[0]):
        _switches, named = _read_python_arguments(command[1:])
        if named:
            return named
    scripts = [word for word in command if word.endswith(".py")]
    if scripts:
        return os.path.basename(scripts[0])
    modules = [
        after for word, after in pairwise(command) if word == "-m" and after not in LAUNCHERS
    ]
    return modules[0] if modules else os.path.basename(command[0])


def _observed_inside(command: list[str]) -> list[str]:
    own = os.path.basename(command[0]) == COLLECT or (
        _is_python(command[0]) and any(pair in OWN_MODULES for pair in list(pairwise(command))[:4])
    )
    return command[command.index("--") + 1 :] if own and "--" in command else []


def _is_python(word: str) -> bool:
    return os.path.basename(word).startswith("python")


def _read_python_arguments(words: list[str]) -> tuple[list[str], str | None]:
    """Return the groups of an interpreter's switches, and the name of its script or module."""
    switches: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word, position = words[position], position + 1
        if word.startswith("--"):
            continue
        before, *option = re.split("([cmWX])", word[1:], maxsplit=1)
        switches.append(before)
        if not option:
            continue
        letter, value = option
        if letter == "c":
            return switches, "python -c"
        if letter == "m":
            module = value or "".join(words[position : position + 1])
            return switches, None if module in LAUNCHERS else module or None
        if not value:  # -W and -X take the next word
            position += 1
    name = "".join(words[position : position + 1])
    return switches, None if name in ("", "-") else os.path.basename(name)


def unreachable(command: list[str]) -> list[str]:
    if not _is_python(command[0]):
        return []
    switches, _name = _read_python_arguments(command[1:])
    for word in switches:
        for letter in "IES":
            if letter in word:
                return [
                    (
                        f"python -{letter} ignores PYTHONPATH or sitecustomize: this interpreter "
                        "cannot be observed"
                    )
                ]
    return []
