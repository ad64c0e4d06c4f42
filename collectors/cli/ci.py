"""`ci`: measure a workflow's checkout and its base commit."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import closing

import click

from compileboard.collectors.cli.common import db_option
from compileboard.collectors.record.git import find_base, resolve_commit
from compileboard.collectors.store.connection import StoreMissing, open_reader
from compileboard.command_line import Command

RUNS_SQL = """
select r.id, t.value
from runs as r
left join run_tags as t on t.run_id = r.id and t.key = 'diff_branch'
order by r.started_us desc, r.id desc
limit 100
"""


@click.command(
    cls=Command,
    epilog="Examples:\n"
    "  %(prog)s --bench '--suite builtin --performance --accuracy'\n"
    "  %(prog)s --command 'python -m pytest -q tests/compile'\n",
)
@db_option
@click.option("--bench", metavar="OPTIONS", help="Measure models: options of `bench`.")
@click.option("--command", metavar="COMMAND", help="Record a command, without a shell.")
@click.option(
    "--base", metavar="REF", help="Commit to compare with. Default: that of the workflow's event."
)
@click.option(
    "--baseline", metavar="WHAT", help="Stored run to compare with: measure the checkout alone."
)
def ci(
    db: str, bench: str | None, command: str | None, base: str | None, baseline: str | None
) -> int:
    """Measure a pull request's checkout and its base on one machine, in GitHub Actions.

    Writes `run`, `base-run` and `base` (the commit's hash) to $GITHUB_OUTPUT, or `problem` with
    the reason for no run. An empty option counts as not given. The exit code is that of measuring
    the checkout.
    """
    try:
        if bool(bench) == bool(command):
            raise ValueError(
                "nothing to measure; expected --bench 'OPTIONS' or --command 'COMMAND', one of both"
            )
        words = _read_words(db, bench, command)
        commit = _find_commit(base, baseline)
    except ValueError as error:
        _write_outputs({"problem": str(error)})
        raise
    # After `run`'s `--` come the command's own words.
    words[3:3] = [] if baseline else ["--diff-branch", commit]
    from compileboard.collectors.cli.main import main

    before = _list_runs(db)
    code = main(words)
    # Newest first, and only those of this call.
    new = [row for row in _list_runs(db) if row not in before]
    runs = {side or "new": run_id for run_id, side in reversed(new)}
    outputs = {"base": commit, "run": runs.get("new", ""), "base-run": runs.get("base", "")}
    missing = (
        "the checkout"
        if not outputs["run"]
        else "the base"
        if not (baseline or outputs["base-run"])
        else ""
    )
    if missing:
        outputs["problem"] = (
            f"{words[0]} ended with exit code {code} before it recorded {missing}; the reason "
            "is in the job's log"
        )
    _write_outputs(outputs)
    return code


def _read_words(db: str, bench: str | None, command: str | None) -> list[str]:
    try:
        if bench:
            return ["bench", "--db", db, *shlex.split(bench)]
        return ["run", "--db", db, "--", *shlex.split(command or "")]
    except ValueError as error:
        raise ValueError(
            f"{'--bench' if bench else '--command'} {bench or command}: {error}"
        ) from None


def _find_commit(base: str | None, baseline: str | None) -> str:
    try:
        return resolve_commit(base, os.getcwd()) if base else find_base(os.environ, os.getcwd())
    except ValueError:
        if not baseline:
            raise
        return ""


def _write_outputs(outputs: Mapping[str, str]) -> None:
    if path := os.environ.get("GITHUB_OUTPUT"):
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(
                f"{name}={' '.join(value.split())}\n" for name, value in outputs.items()
            )


def _list_runs(db: str) -> list[tuple[str, str | None]]:
    try:
        with closing(open_reader(db)) as reader:
            return [tuple(row) for row in reader.execute(RUNS_SQL)]
    except StoreMissing:
        return []
