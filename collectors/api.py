"""Record from inside a program or notebook: install, uninstall, observe, profile."""

from __future__ import annotations

import atexit
import contextlib
import html
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.run_config import RunConfig, parse_steps
from compileboard.collectors.push.target import Target, check_server
from compileboard.collectors.record.facts import (
    current_folder,
    describe_run,
    make_spool,
    spool_folder,
)
from compileboard.collectors.record.sidecar import spawn_sidecar
from compileboard.collectors.record.spool import Manifest
from compileboard.collectors.store.connection import StoreError, describe_error
from compileboard.collectors.terminal.run_summary import RunSummary, summarize

RECORDED_WITHIN_S = 10.0
DEFAULT_DATABASE = "compileboard.db"


@dataclass(frozen=True, repr=False)
class Run:
    """A run that this process records; in a notebook its numbers are shown.

    >>> import compileboard, torch
    >>> with compileboard.observe(name="sine") as run:
    ...     y = torch.compile(torch.sin, backend="eager")(torch.ones(2))
    >>> run
    <Run ... 'sine', finished: 1 compile, 0 graph breaks, 0 recompiles; in ...compileboard.db>
    """

    id: str
    database: str
    name: str
    folder: Path
    # Its database could not be opened: the next command records what it spooled.
    waits: bool = False
    owned: bool = True  # this process opened it; otherwise `collectors run` did, and ends it
    server: str = ""  # instead of a database

    def summary(self) -> RunSummary | None:
        """Return the run's numbers recorded so far, None if there are none yet."""
        try:
            return summarize(self.database, self.id) if self.id and not self.server else None
        except StoreError:
            return None

    def __repr__(self) -> str:
        summary = self.summary()
        if summary is None:
            return f"<Run {self.id} {self.name!r}: {self._describe_destination()}>"
        numbers = ", ".join(
            f"{value} {name.removesuffix('s') if value == '1' else name}"
            for name, value in summary.headline()[:3]
        )
        return f"<Run {self.id} {summary.name!r}, {summary.state}: {numbers}; in {self.database}>"

    def __str__(self) -> str:
        summary = self.summary()
        return (
            summary.text()
            if summary
            else f"run {self.id} ({self.name}): {self._describe_destination()}"
        )

    def _describe_destination(self) -> str:
        if self.server:
            return f"pushed to {self.server}/runs/{self.id}"
        return f"nothing recorded yet in {self.database}"

    def _repr_html_(self) -> str:
        summary = self.summary()
        return summary.html() if summary else f"<p>{html.escape(str(self))}</p>"


_current: Run | None = None


def install(
    db: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    token_file: str | None = None,
    insecure: bool = False,
    name: str | None = None,
    suite: str | None = None,
    tags: Mapping[str, str] | None = None,
    keep_source: bool = True,
    capture_env: tuple[str, ...] = (),
    repro: tuple[str, ...] = (),
    repro_inputs_bytes: int = 0,
) -> Run:
    """Record this process, and those it forks, from now on; return its run.

    A process has one run at a time: if one is being recorded, it continues, with a warning.

    >>> import compileboard, torch
    >>> run = compileboard.install(db="team.db", name="train")
    >>> y = torch.compile(torch.cos, backend="eager")(torch.ones(2))
    >>> run = compileboard.uninstall()

    db: the SQLite file to record into, created if missing (default: compileboard.db). server: the
    URL of a server to push to instead of a file (default: COMPILEBOARD_SERVER). token_file: the
    file with its token (default: COMPILEBOARD_TOKEN_FILE, else COMPILEBOARD_TOKEN is the token).
    insecure: True sends a token over http:// to another machine. name: the run's name; runs of one
    name are compared over time (default: the script's name). suite: the run's suite, for example
    "nightly". tags: labels to find the run by, for example {"branch": "main"}. keep_source: False
    stores no source line; breaks stay distinct by a hash of their line. capture_env: environment
    variables to store, beside TORCH*; secrets are withheld. repro: "crash" keeps the graph that
    runs when the process dies; "accuracy" compares each graph with eager. repro_inputs_bytes: how
    many bytes of input values to keep of a graph that fails; 0 keeps none.

    If the database or spool cannot be written, a warning is issued and the program continues;
    spooled data is recorded later. Another process sends to a server; unsent data waits on this
    machine.

    Raises ImportError without torch.
    """
    options = {"keep_source": keep_source, "capture_env": tuple(capture_env)}
    options |= {"repro": tuple(repro), "repro_inputs_bytes": repro_inputs_bytes}
    options |= {"server": server, "token_file": token_file, "insecure": insecure}
    run, _ = _install(db, name, suite=suite, tags=tags, **options)
    return run


def _install(
    db: str | os.PathLike[str] | None, name: str | None, **options: Any
) -> tuple[Run, bool]:
    global _current
    hooks = _load_hooks()
    destination = str(db or options["server"] or DEFAULT_DATABASE)
    if hooks.current() is not None or hooks.current_of_other_copy() is not None:
        return _already_installed(destination, name), False
    try:
        options["tags"] = {
            str(key): str(value) for key, value in dict(options["tags"] or {}).items()
        }
        options |= _choose_destination(
            db, **{key: options[key] for key in ("server", "token_file", "insecure")}
        )
        config = RunConfig(name=name or _default_name(), **options)
        folder, manifest, opened = _prepare(config)
        hooks.install_hooks(manifest.run_id, str(folder), manifest).spool.open()
    except Exception as error:  # the program is not to end for want of a disk or a home
        _warn(f"CompileBoard does not record this process: {describe_error(error)}")
        return Run("", destination, name or _default_name(), Path(os.devnull), owned=False), False
    try:
        spawn_sidecar(folder)
    except OSError as error:
        _warn(f"CompileBoard keeps this run in {folder}, and its next command records it: {error}")
    _current = Run(
        manifest.run_id,
        manifest.database,
        manifest.name,
        folder,
        waits=not opened,
        server=manifest.server,
    )
    atexit.register(_end_at_exit, _current, os.getpid())
    _warn_if_late()
    return _current, True


def _choose_destination(
    db: str | os.PathLike[str] | None, server: str | None, token_file: str | None, insecure: bool
) -> dict[str, Any]:
    if db is not None and server:
        raise ValueError("db and server are two places for one run; give one of them")
    server = server or (os.environ.get("COMPILEBOARD_SERVER", "") if db is None else "")
    if not server:
        return {
            "database": os.path.abspath(db or DEFAULT_DATABASE),
            "server": "",
            "token_file": "",
            "insecure": False,
        }
    config = RunConfig.from_environment(
        {"COMPILEBOARD_OUTBOX_SIZE": os.environ.get("COMPILEBOARD_OUTBOX_SIZE", "")}
    )
    return {
        "database": "",
        "server": check_server(server),
        "token_file": token_file or os.environ.get("COMPILEBOARD_TOKEN_FILE", ""),
        "insecure": insecure or os.environ.get("COMPILEBOARD_INSECURE") == "1",
        "outbox_bytes": config.outbox_bytes,
    }


def uninstall(*, wait_s: float = RECORDED_WITHIN_S) -> Run | None:
    """Remove the hooks and wait up to `wait_s` seconds until everything is recorded; None if they
    were not installed.

    >>> import compileboard
    >>> run = compileboard.install(name="train")
    >>> compileboard.uninstall() is run
    True
    """
    global _current
    if _current is None or not _current.owned:
        _warn("CompileBoard is not installed in this process; there is nothing to uninstall")
        return None
    run, _current = _current, None
    _end(run, "finished")  # first: a sidecar that finds nobody writing looks here how the run ended
    _load_hooks().uninstall_hooks()
    atexit.unregister(_end_at_exit)
    deadline_s = time.monotonic() + wait_s
    while not run.waits and run.folder.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return run


@contextlib.contextmanager
def observe(
    name: str | None = None,
    *,
    db: str | os.PathLike[str] | None = None,
    server: str | None = None,
    token_file: str | None = None,
    insecure: bool = False,
    suite: str | None = None,
    tags: Mapping[str, str] | None = None,
    keep_source: bool = True,
    capture_env: tuple[str, ...] = (),
    repro: tuple[str, ...] = (),
    repro_inputs_bytes: int = 0,
) -> Iterator[Run]:
    """Record a `with` block as a run of its own.

    If another run is being recorded (an install(), an outer observe(), `collectors run`), the block
    joins that run with a warning, and the run continues after the block.

    >>> import compileboard, torch
    >>> with compileboard.observe(name="new layer", db="team.db"):
    ...     y = torch.compile(torch.tanh, backend="eager")(torch.ones(2))

    Takes the arguments of `install`. Raises ImportError without torch.
    """
    options = {"keep_source": keep_source, "capture_env": tuple(capture_env)}
    options |= {"repro": tuple(repro), "repro_inputs_bytes": repro_inputs_bytes}
    options |= {"server": server, "token_file": token_file, "insecure": insecure}
    run, begun = _install(db, name, suite=suite, tags=tags, **options)
    try:
        yield run
    finally:
        if begun and _current is run:
            uninstall()


@contextlib.contextmanager
def profile(steps: int = 40) -> Iterator[None]:
    """Time the first `steps` calls of compiled functions in a `with` block, and trace three more.

    The run's page shows what each graph and graph break costs per step. Outside a run, the block is
    recorded as one, as by observe(); graphs compiled before it are then not shown separately. Calls
    that compile are not timed, so warm up before the block.

    >>> import compileboard, torch
    >>> step = torch.compile(torch.exp, backend="eager")
    >>> y = step(torch.ones(2))
    >>> with compileboard.profile(steps=3):
    ...     for _ in range(10):
    ...         y = step(torch.ones(2))

    Raises ValueError for a number of steps that is not from 1 to 10,000; ImportError without torch.
    """
    count, _ = parse_steps(str(steps))
    hooks = _load_hooks()
    with contextlib.ExitStack() as block:
        current = hooks.current() or hooks.current_of_other_copy()
        if current is None:
            block.enter_context(observe())
            current = hooks.current()
        window = current.open_window(count, 0) if current is not None else None
        if current is not None and window is None:
            _warn("CompileBoard times no steps here: others are being timed, or torch is too old")
        try:
            yield
        finally:
            if window is not None:
                window.end()


def _load_hooks() -> Any:
    try:
        import torch._dynamo  # noqa: F401 - loads what the hooks attach to
    except ImportError as error:
        raise ImportError(
            f"CompileBoard records torch.compile (torch 2.4 or newer); {sys.executable} cannot "
            f"import it: {error}"
        ) from error
    from compileboard.collectors.observe import hooks, torch_compat

    if too_old := torch_compat.describe_too_old(torch_compat.loaded_version()):
        raise ImportError(f"nothing can be recorded: {too_old}")
    return hooks


def _prepare(config: RunConfig) -> tuple[Path, Manifest, bool]:
    opened = True
    try:
        _check_destination(config)  # a sidecar could tell nobody
    except Exception as error:
        opened = False
        _warn(
            "CompileBoard does not record this run yet, it waits in its spool: "
            f"{describe_error(error)}"
        )
    argv = [str(argument) for argument in (getattr(sys, "orig_argv", None) or sys.argv)]
    manifest = describe_run(
        config,
        os.environ,
        argv=argv,
        cwd=current_folder(),
        code_folder=os.getcwd,
    )
    folder = spool_folder(manifest, os.environ)
    make_spool(folder, manifest)
    return folder, manifest, opened


def _check_destination(config: RunConfig) -> None:
    if config.server:
        Target.of(config).read_token(os.environ)
        return
    from compileboard.collectors.store.connection import open_writer
    from compileboard.collectors.store.migrations import migrate_connection

    with contextlib.closing(open_writer(config.database)) as connection:
        migrate_connection(connection)


def _default_name() -> str:
    script = os.path.basename(sys.argv[0] or "")
    return (
        "notebook"
        if "ipykernel" in sys.modules
        else script
        if script not in ("", "-", "-c")
        else "python"
    )


def _already_installed(database: str, name: str | None) -> Run:
    run = _current or Run(
        id=os.environ.get("COMPILEBOARD_RUN_ID", ""),
        database=os.environ.get("COMPILEBOARD_DB") or database,
        server=os.environ.get("COMPILEBOARD_SERVER", ""),
        name="",
        folder=Path(os.environ.get("COMPILEBOARD_SPOOL", ".")),
        owned=False,
    )
    by = "" if _current else " by `collectors run`"
    unused = "" if name in (None, run.name) else f", and the name {name!r} is not used"
    _warn(
        f"CompileBoard is already installed in this process{by}; it goes on recording run "
        f"{run.id}{unused}"
    )
    return run


def _warn(text: str) -> None:
    ours = (__file__, contextlib.__file__)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename in ours:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def _warn_if_late() -> None:
    from compileboard.collectors.observe import torch_compat

    count = torch_compat.kept_record_count()
    if count:
        records = "1 compilation record" if count == 1 else f"{count} compilation records"
        _warn(f"CompileBoard was installed after {records}; it records those that come from now on")


def _end_at_exit(run: Run, pid: int) -> None:
    if os.getpid() != pid:  # a forked child runs the parent's exit functions too
        return
    # An exception ended the program; at a prompt or in a notebook it would only have ended what was
    # typed.
    raised = getattr(sys, "last_value", None) is not None
    prompt = hasattr(sys, "ps1") or sys.flags.interactive or "IPython" in sys.modules
    _end(run, "failed" if raised and not prompt else "finished")


def _end(run: Run, state: str) -> None:
    from compileboard.collectors.record.spool import read_manifest

    try:
        manifest = read_manifest(run.folder)
        if manifest.ended_us is None:
            manifest.end(state, time.time_ns() // 1000).write(run.folder)
    except (ValueError, OSError):
        pass  # already recorded and gone
