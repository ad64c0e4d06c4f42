"""`import`: find and import logs and result files."""

from __future__ import annotations

import gc
import json
import os
import shlex
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from compileboard.collectors.cli.common import (
    count_megabytes,
    db_option,
    print_message,
    read_destination,
    recover_earlier_runs,
    server_options,
    tag_option,
)
from compileboard.collectors.cli.indexing import index_after
from compileboard.collectors.cli.limits import DEFAULT_LIMITS, limit_options, pop_limits
from compileboard.collectors.contract.rejects import KINDS, OF_WHOLE_FILE, Reject
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.logs.discovery import NO_NAMES, LogSource, SourceGroup, find_sources
from compileboard.collectors.logs.import_progress import Budget, ProgressLines
from compileboard.collectors.logs.log_loader import (
    APART_US,
    ImportSummary,
    LoadOptions,
    LogLoader,
    Progress,
    await_log,
)
from compileboard.collectors.logs.log_loader import follow as go_on
from compileboard.collectors.logs.result_import import load_results
from compileboard.collectors.logs.streams import Limits, NoSuchLog
from compileboard.collectors.record.program import end_as_interrupted
from compileboard.collectors.repro.loading import import_scripts
from compileboard.collectors.store.bundles import MergedRun, is_bundle, merge_bundle
from compileboard.collectors.store.connection import (
    StoreBusy,
    StoreError,
    StoreFull,
    explain,
    open_writer,
)
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.runs import NotOwner, RunSender, may_add
from compileboard.collectors.terminal import values as command_hints
from compileboard.collectors.terminal.values import read_count
from compileboard.command_line import Command, Option, Value
from compileboard.exit_codes import DONE, FAILED

SLOW_BYTES = 4 << 20  # larger result files are announced as slow

PrintLine = Callable[[str], None]


FOR_PROGRAMS = "For programs that import what others sent"


@click.command(
    "import",
    cls=Command,
    epilog="Example: TORCH_TRACE=/tmp/trace python train.py; %(prog)s /tmp/trace\n",
)
@db_option
@server_options
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(readable=False),
    metavar="PATH...",
    help=(
        "Log, file of results, bundle, folder, archive, or -; each is a run, files of one "
        "folder are one."
    ),
)
@click.option("--latest", is_flag=True, help="Read only the newest log of a folder, and its ranks.")
@click.option("--follow", is_flag=True, help="Keep reading logs that grow, until Ctrl-C.")
@click.option("--strict", is_flag=True, help="Exit with 1 if anything could not be read.")
@click.option(
    "--no-payloads",
    is_flag=True,
    help="Store no graphs, code and guards, only what the tables need.",
)
@click.option("--redact-source", is_flag=True, help="Store no line of the program's source code.")
@click.option(
    "--name", metavar="NAME", help="Name of the run. Default: the program's file, or the folder."
)
@click.option(
    "--suite", metavar="NAME", help="Suite of the run, and of results whose rows name none."
)
@tag_option
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    help=(
        "Folder of the repository where the log was written; files are named from there; "
        "repeatable."
    ),
)
@click.option(
    "--no-index",
    is_flag=True,
    help="Leave the run out of the search index until `index` is called.",
)
@click.option(
    "--jobs",
    type=Value(read_count),
    metavar="N",
    default=1,
    help="Processes that read logs side by side. Default: 1.",
)
@click.option("--again", is_flag=True, help="Import a run again that was deleted.")
@limit_options
@click.option(
    "--names",
    metavar="FILE",
    help="JSON file with what files are called, by their names on disk below PATH.",
    cls=Option,
    group=FOR_PROGRAMS,
)
@click.option(
    "--sender",
    metavar="NAME",
    help="Who sent PATH and owns runs that are new: token:NAME or login:NAME.",
    cls=Option,
    group=FOR_PROGRAMS,
)
@click.option(
    "--only-own",
    is_flag=True,
    help="Add to runs of --sender alone.",
    cls=Option,
    group=FOR_PROGRAMS,
)
@click.option(
    "--progress-lines",
    is_flag=True,
    help="Print progress to stdout, a JSON object per line; end when its reader ends.",
    cls=Option,
    group=FOR_PROGRAMS,
)
def import_command(
    paths: tuple[str, ...],
    latest: bool,
    follow: bool,
    strict: bool,
    no_payloads: bool,
    no_index: bool,
    jobs: int,
    names: str | None,
    sender: str | None,
    only_own: bool,
    progress_lines: bool,
    tags: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Import torch's trace logs.

    Reads a log, a folder of logs (its ranks and processes become one run), a .gz, .zst, .xz, .tar.*
    or .zip of either, or - for standard input; also results of PyTorch's benchmark harness, CI and
    HUD: CSV, JSON and raw timings. Scripts in torch_compile_debug and minifier folders become
    repros. Importing again adds only what is new.
    """
    destination = read_destination(options)
    lines = ProgressLines(sys.stdout) if progress_lines else None
    if follow:
        end_as_interrupted()
    if lines is None:
        recover_earlier_runs()
    limits = pop_limits(options)
    if destination.get("server"):
        from compileboard.collectors.push.outbox import outbox_root
        from compileboard.collectors.push.outbox_report import deliver

        if lines is not None:
            raise ValueError(
                "--progress-lines needs --db, because the reader of the lines serves the database"
            )
        load_options = LoadOptions(payloads=not no_payloads, tags=dict(tags), **options)
        rest: dict[str, Any] = {
            "latest": latest,
            "strict": strict,
            "limits": limits,
            "names": read_names(names),
        }
        rest |= {"follow": follow, "then": " and pushes it"}
        rest["process_count"] = jobs
        root = outbox_root(os.environ)
        code, queued = import_into_outbox(
            paths, root, RunConfig(**destination), load_options, **rest
        )
        return code if deliver(os.environ, queued, print_message) else FAILED
    db = destination["database"]
    try:
        return import_paths(
            list(paths),
            db,
            LoadOptions(
                payloads=not no_payloads,
                tags=dict(tags),
                sender=RunSender(sender, not only_own),
                **options,
            ),
            print_line=print_message,
            latest=latest,
            follow=follow,
            strict=strict,
            index=not no_index,
            process_count=jobs,
            limits=limits,
            names=read_names(names),
            lines=lines,
        )
    except sqlite3.Error as error:  # Source databases have messages of their own.
        refusal = explain(error, db)
        if lines is not None:
            lines.fail(refusal)
        raise refusal from error
    except (StoreError, ValueError, OSError) as error:
        if lines is not None and not isinstance(error, BrokenPipeError):
            lines.fail(error)
        raise


def import_into_outbox(
    paths: Sequence[str],
    root: Path,
    config: RunConfig,
    options: LoadOptions | None = None,
    **rest: Any,
) -> tuple[int, list[str]]:
    """Import into a temporary database, and put its runs into the outbox; return the exit code and
    the runs.

    Raises StoreError, ValueError, OSError.
    """

    from compileboard.collectors.push.run_bundles import bundle_runs, temporary_database

    def print_outcome(line: str) -> None:
        # Without the command that reads the database.
        print_message(line.rpartition("; ")[0] if line.endswith(shlex.quote(database)) else line)

    with temporary_database() as database:
        options = options or LoadOptions()
        code = import_paths(
            list(paths), database, options, print_line=print_outcome, index=False, **rest
        )
        return code, list(bundle_runs(database, root, config, print_message))


def import_paths(
    paths: list[str],
    database: str,
    options: LoadOptions,
    *,
    print_line: PrintLine,
    latest: bool = False,
    follow: bool = False,
    then: str = "",
    strict: bool = False,
    index: bool = True,
    process_count: int = 1,
    limits: Limits = DEFAULT_LIMITS,
    names: Mapping[str, str] = NO_NAMES,
    lines: ProgressLines | None = None,
) -> int:
    """Import the paths, each as a run of its own except that the logs of one folder are one run;
    return the exit code.

    If one of several paths cannot be imported, its error is printed and the others are imported.
    `then` is the action when --follow ends.

    Raises ValueError, StoreError or OSError if nothing was imported or, with `lines`, if any path
    failed.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)  # thousands of short-lived records, none in reference cycles
    if follow and len(paths) > 1:
        raise ValueError(
            "--follow takes one PATH and several were given; give the folder that the logs are in."
        )
    if follow and paths == ["-"]:
        raise ValueError(
            "--follow takes a log or a folder; standard input is read to its end without it."
        )
    if process_count > 1 and (follow or limits != DEFAULT_LIMITS):
        raise ValueError(
            "--jobs cannot be combined with --follow or --limit-…, which use one process; "
            "leave it out."
        )
    find = partial(find_sources, latest=latest, limits=limits, names=names)
    bundles, paths = ([], paths) if follow else split_bundles(paths)
    if bundles and options != LoadOptions(again=options.again, sender=options.sender):
        label = names.get(Path(bundles[0]).name, bundles[0])
        raise ValueError(
            f"{label} is a bundle, which is taken as it is; give the options about what is "
            "stored, names, suites and "
            "tags to logs alone"
        )
    attempts = _ImportAttempts(
        print_line, is_alone=len(bundles) + len(paths) == 1, has_reader=lines is not None
    )
    found: list[SourceGroup] = []
    for path in [] if follow else paths:
        with attempts.attempt():
            found.append(find(path))
    groups = join_folders(found)
    if not (bundles or groups or follow):
        raise NoSuchLog(_NOTHING)
    # A caller with limits serves the database, so it exists.
    with closing(open_writer(database, create=lines is None)) as connection:
        migrate_connection(connection)
        budget = Budget(connection, limits)
        if lines is not None:
            budget.listen()
        importing = _ImportSession(
            connection, database, options, print_line, lines, index, budget, process_count
        )
        for bundle in bundles:
            with attempts.attempt():
                importing.read_bundle(bundle, names.get(Path(bundle).name, Path(bundle).name))
        if follow:
            with attempts.attempt():
                importing.follow(paths[0], partial(find, paths[0]), then)
        for group in groups:
            with attempts.attempt():
                importing.read_group(group, latest)
            if group not in found:  # each of its files is a PATH
                attempts.has_failed |= importing.has_unread_file
    if attempts.has_failed and not (importing.has_imported or attempts.is_partly_read):
        raise NoSuchLog(_NOTHING)
    return FAILED if attempts.has_failed or (strict and importing.rejected) else DONE


_NOTHING = "nothing was imported: each PATH failed, as said above"


@dataclass
class _ImportAttempts:
    """Attempts to import several paths: a failing one is reported and does not affect the others.

    With progress lines or a single path, the error is raised instead.
    """

    print_line: PrintLine
    is_alone: bool
    has_reader: bool
    has_failed: bool = False
    is_partly_read: bool = False  # up to a limit; imported records stay

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Count an attempt within the block, and report its error.

        Raises StoreError, ValueError or OSError if there is a single path or the database fails.
        """
        try:
            yield
        except (StoreBusy, StoreFull, BrokenPipeError):
            raise
        except (StoreError, ValueError, OSError) as error:
            if self.has_reader:
                raise
            limit = getattr(error, "limit", None)
            message = f"{error} --limit-{limit} N raises the limit." if limit else str(error)
            self.is_partly_read |= limit in ("records", "rows")  # checked between two batches
            if self.is_alone and not self.is_partly_read:
                raise (ValueError(message) if limit else error) from error
            self.has_failed = True
            self.print_line(f"failed: {message}")


@dataclass
class _ImportSession:
    connection: sqlite3.Connection
    database: str
    options: LoadOptions
    print_line: PrintLine
    lines: ProgressLines | None
    index: bool
    budget: Budget
    process_count: int
    rejected: bool = False
    has_unread_file: bool = False
    _came: dict[str, list[str]] = field(default_factory=dict)  # the runs of each group

    @property
    def has_imported(self) -> bool:
        return bool(self._came)

    def follow(self, path: str, find: Callable[[], SourceGroup], then: str) -> None:
        loader = await_log(path, find, self._begin, self.print_line)
        self._read(loader, find, then)

    def read_group(self, group: SourceGroup, latest: bool) -> None:
        if group.sources:
            self.read_logs(group)
        if group.results and not latest:
            self.read_results(group)
        if group.repros and not latest:
            self.read_repros(group)

    def read_logs(self, group: SourceGroup) -> None:
        try:
            loader = self._begin(group)
        except NoSuchLog as error:
            if not group.results:
                raise
            self.print_line(str(error))
        else:
            self._read(loader)

    def read_results(self, group: SourceGroup) -> None:
        began_s = time.monotonic()
        show = _progress_line(group, group.results)
        size_bytes = sum(source.size_bytes or 0 for source in group.results)
        if size_bytes > SLOW_BYTES:
            self.print_line(
                f"{group.label}: {size_bytes / 1e6:,.0f} MB of results; each 100,000 rows take "
                "minutes"
            )
        max_records = self.budget.limits.records
        loaded = load_results(
            self.connection, self.database, group, self.options, show, max_records=max_records
        )
        for number, done in enumerate(loaded):
            self.budget.check_limits(group.label, done.record_count)
            # Skipped files are reported once, with the group.
            self._report(
                done, replace(group, ignored=[]) if number or group.sources else group, began_s
            )
            began_s = time.monotonic()

    def read_repros(self, group: SourceGroup) -> None:
        began_s = time.monotonic()
        done = import_scripts(self.connection, self.database, group, self.options)
        if done.run_id:
            self.budget.check_limits(group.label, done.record_count)
            has_others = bool(group.sources or group.results)  # already reported skipped files
            ignored = (
                [] if has_others else [name for name in group.ignored if "storages" not in name]
            )
            self._report(done, replace(group, ignored=ignored), began_s)
            return
        examples = "; ".join(str(reject.example) for reject in done.rejects.by_kind.values())
        if group.sources or group.results:
            self.print_line(examples)
            return
        raise NoSuchLog(f"{group.label}: none of torch's scripts in it is a repro: {examples}")

    def read_bundle(self, path: str, label: str) -> None:
        began_s = time.monotonic()
        max_bytes = self.budget.limits.total_bytes
        apart: list[str] = []
        foreign: list[str] = []
        merging = merge_bundle(
            self.connection,
            path,
            label=label,
            again=self.options.again,
            max_bytes=max_bytes,
            sender=self.options.sender,
        )
        for merged in merging:
            self.budget.check_limits(label, merged.record_count)
            if merged.state == "apart":
                apart.append(merged.run_id)
                continue
            if merged.state == "foreign":
                foreign.append(merged.run_id)
                continue
            done = ImportSummary(
                merged.run_id,
                merged.name,
                log_count=1,
                known_run=merged.state in ("known", "grown", "apart"),
                deleted=merged.state == "deleted",
                record_count=merged.record_count,
                read_bytes=os.path.getsize(path),
            )
            self._report(done, SourceGroup(label, []), began_s, merged)
        if foreign:
            raise NotOwner(self.options.sender, *foreign)
        if apart:
            raise StoreError(
                f"run {', '.join(apart)} is there already, with records that {label} lacks, or "
                "pruned, or still being "
                "recorded: nothing of it was added. Import the logs or files themselves there, "
                "which adds what is new."
            )

    def _begin(self, group: SourceGroup) -> LogLoader:
        loader = LogLoader(
            self.connection, self.database, group, self.options, process_count=self.process_count
        )
        if not may_add(
            self.connection, loader.imported.run_id, self.options.sender
        ):  # before its run is reported
            loader.close()
            raise NotOwner(self.options.sender, loader.imported.run_id)
        return loader

    def _read(
        self, loader: LogLoader, follow: Callable[[], SourceGroup] | None = None, then: str = ""
    ) -> None:
        began_s = time.monotonic()
        try:
            show = (
                self.lines.begin(loader.group, loader.imported)
                if self.lines
                else _progress_line(loader.group)
            )
            done = loader.read(
                self.budget.watch(loader.group.label, lambda: loader.imported.record_count, show)
            )
            if follow is not None and not done.deleted:
                self.print_line(
                    f"following {_format_logs(done)} into run {done.run_id}; Ctrl-C ends it{then}"
                )
                go_on(loader, follow, show)
        finally:
            loader.finish()
        self._report(done, loader.group, began_s)

    def _report(
        self,
        done: ImportSummary,
        group: SourceGroup,
        began_s: float,
        merged: MergedRun | None = None,
    ) -> None:
        took_s = time.monotonic() - began_s
        self.print_line(
            _describe_merged(merged, took_s)
            if merged
            else _format_outcome(done, took_s, self.database)
        )
        remarks = _list_remarks(done, group)
        others = [
            run_id for run_id in self._came.setdefault(group.label, []) if run_id != done.run_id
        ]
        self._came[group.label].append(done.run_id)
        if self.lines and others:  # the reader of the lines keeps the last one
            remarks.append(
                f"there are {len(others) + 1} runs in it; the others are {', '.join(others[-5:])}"
            )
        for line in [*remarks, *_list_damage(done)]:
            self.print_line(line)
        if self.lines:
            # The counts by kind are included, and name no file.
            kinds = sorted(done.rejects.by_kind.items())
            locations = [
                f"{KINDS.get(kind, kind)}: first {_format_location(reject)}"
                for kind, reject in kinds
                if reject.file_label
            ]
            self.lines.end(done, [*remarks, *locations])
        if self.index and not done.deleted:
            index_after(self.connection, done.run_id, self.print_line)
        self.rejected |= bool(done.rejects.total) or done.deleted
        self.has_unread_file |= not OF_WHOLE_FILE.isdisjoint(done.rejects.by_kind)


def split_bundles(paths: list[str]) -> tuple[list[str], list[str]]:
    bundles, others = [], []
    for path in paths:
        files = (
            [os.path.join(path, name) for name in sorted(os.listdir(path))]
            if os.path.isdir(path)
            else [path]
        )
        inside = [file for file in files if is_bundle(file)]
        bundles += inside
        if len(inside) < len(files) or not files:
            others.append(path)
    return bundles, others


def join_folders(groups: list[SourceGroup]) -> list[SourceGroup]:
    joined: dict[object, SourceGroup] = {}
    for number, group in enumerate(groups):
        files = [*group.sources, *group.results, *group.repros]
        path = files[0].path if len(files) == 1 else None
        folder = path.resolve().parent if path is not None else None
        first = joined.get(folder) if folder is not None else None
        if first is None:
            joined[folder or number] = group
        else:
            joined[folder] = SourceGroup(
                str(folder.name if folder else ""),
                [*first.sources, *group.sources],
                results=[*first.results, *group.results],
                repros=[*first.repros, *group.repros],
            )
    return list(joined.values())


def read_names(path: str | None) -> Mapping[str, str]:
    if path is None:
        return NO_NAMES
    names = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(
            f"{path}: expected a JSON object of texts, what a file is called by its name on disk"
        )
    return names


def _describe_merged(merged: MergedRun, took_s: float) -> str:
    records = _format_count(merged.record_count, "record")
    new_records = _format_count(merged.record_count, "new record")
    states = {
        "new": f"{records} of a bundle in {took_s:.1f} s",
        "grown": f"{new_records} of a bundle in {took_s:.1f} s",
        "known": "nothing new, it is here already",
        "deleted": (
            "it was deleted from this database, so it is left out; --again imports it all the same"
        ),
    }
    return f"{merged.name}: run {merged.run_id}: {states[merged.state]}"


def _format_outcome(done: ImportSummary, took_s: float, database: str) -> str:
    if done.deleted:
        return (
            f"{done.name}: run {done.run_id} was deleted from this database, or pruned, so its "
            "log is left out; "
            "--again imports a deleted one all the same"
        )
    show = command_hints.collector_command("show", done.run_id, database=database)
    if done.result_count is not None and (done.record_count or not done.known_run):
        new = "new " if done.known_run else ""
        breaks = (
            f" and {_format_count(done.break_count, 'graph break')}" if done.break_count else ""
        )
        return (
            f"{done.name}: {_format_count(done.result_count, f'{new}result')}{breaks} of "
            f"{_format_logs(done)} in run {done.run_id}; "
            f"{show}"
        )
    if done.known_run and not done.record_count:
        return (
            f"{done.name}: nothing new; {_format_logs(done)} of run {done.run_id} "
            f"had been imported; {show}"
        )
    if done.repro_count is not None:
        return (
            f"{done.name}: {_format_count(done.repro_count, 'repro')} of torch's scripts in run "
            f"{done.run_id}; {show}"
        )
    rate = f", {done.read_bytes / 1e6 / took_s:.0f} MB/s" if took_s > 0.05 else ""
    new = "new records" if done.known_run else "records"
    return (
        f"{done.name}: {done.record_count:,} {new} of {_format_logs(done)} in run {done.run_id} "
        f"({done.read_bytes / 1e6:.1f} MB in {took_s:.1f} s{rate}); {show}"
    )


def _list_remarks(done: ImportSummary, group: SourceGroup) -> list[str]:
    remarks = []
    if done.with_source:
        remarks.append(
            "the log was imported with its source before, which stays; delete the run and use "
            "--again to drop it"
        )
    if done.without_payloads:
        remarks.append(
            "the log was imported without its texts before and goes on so; delete the run and "
            "use --again to have them"
        )
    for label, run_id in done.changed:
        remarks.append(
            f"{label} begins as a log of run {run_id} and goes on otherwise, so it is a run of "
            "its own"
        )
    for label, run_id in done.elsewhere:
        remarks.append(
            f"{label} is in run {run_id}, imported by itself before, and stays there; delete "
            "that run and import the "
            "folder with --again to have one run of both"
        )
    for label, run_id in done.also_in:
        remarks.append(
            f"{label} was imported by itself before, as run {run_id}, which stays; delete it "
            "if it is one too many"
        )
    if done.apart:
        remarks.append(
            f"the logs lie apart: some began more than {APART_US // 60_000_000} minutes after "
            "all others had ended; if "
            "they are of several runs, delete the run and import each by itself (--latest "
            "takes the newest)"
        )
    if group.ignored:
        names = ", ".join(group.ignored[:3]) + (" …" if len(group.ignored) > 3 else "")
        remarks.append(f"skipped, neither trace logs nor benchmark results: {names}")
    return remarks


def _list_damage(done: ImportSummary) -> list[str]:
    texts = []
    for kind, reject in sorted(done.rejects.by_kind.items()):
        where = (
            f", first {_format_location(reject)}" if reject.first_line or reject.file_label else ""
        )
        texts.append(f"{reject.count} × {KINDS.get(kind, kind)}{where}")
    return texts


def _format_location(reject: Reject) -> str:
    line = f"at line {reject.first_line}" if reject.first_line else ""
    of = "of" if line else "in"
    return f"{line} {of} {reject.file_label}".strip() if reject.file_label else line


def _format_logs(done: ImportSummary) -> str:
    if done.repro_count is not None:
        return _format_count(done.log_count, "script")
    return _format_count(done.log_count, "log" if done.result_count is None else "file")


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _progress_line(group: SourceGroup, sources: list[LogSource] | None = None) -> Progress:
    return count_megabytes(
        group.label, sum(source.size_bytes or 0 for source in (sources or group.sources))
    )
