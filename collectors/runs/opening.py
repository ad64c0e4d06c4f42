"""Describe a run and create the spool folder that its processes write into."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from compileboard.collectors.contract.redaction import redact_code
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.contract.secrets import scrub_argv, scrub_environment, scrub_values
from compileboard.collectors.runs.facts import git_facts, gpu_facts, host_facts
from compileboard.collectors.spool.folders import new_run_id, spool_root
from compileboard.collectors.spool.manifest import RUN_ID, Manifest
from compileboard.collectors.store.errors import StoreError, describe_error

Fact = TypeVar("Fact")


def joined_run_id(environment: Mapping[str, str]) -> str | None:
    """Return the run id shared by the nodes of this job, or None. Raises ValueError if it is
    invalid.
    """
    joined = environment.get("COMPILEBOARD_RUN_ID")
    if not joined or environment.get(
        "COMPILEBOARD_SPOOL"
    ):  # inside an observed program a run is its own
        return None
    if not RUN_ID.fullmatch(joined):
        raise ValueError(
            f"COMPILEBOARD_RUN_ID is {joined[:80]!r}; expected a letter or digit, then at most "
            "63 letters, digits, "
            "dots, dashes and underscores"
        )
    return joined


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
    troubles: Iterable[list[str]] = (),
) -> Manifest:
    """Return a run's manifest: settings, command, repository, machine and environment, no secrets.

    Facts that cannot be determined are left out and listed in its errors.
    """
    troubles = list(troubles)

    def ask(what: str, fact: Callable[[], Fact], instead: Fact) -> Fact:
        try:
            return fact()
        except (
            Exception
        ) as error:  # git, a driver, a file system: nothing of it is the program's matter
            troubles.append(["not_asked", f"{what} cannot be asked for: {describe_error(error)}"])
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
        started_us=time.time_ns() // 1000,
        argv=ask("the command", lambda: stored_command(argv, keep_source=config.keep_source), []),
        cwd=cwd,
        recorder_process_id=uuid.uuid4().hex,
        git=ask(
            "the repository",
            lambda: git_facts(code_folder() if callable(code_folder) else code_folder),
            {},
        ),
        host=ask("the machine", host_facts, {}),
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
