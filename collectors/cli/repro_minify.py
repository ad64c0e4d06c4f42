"""`repro minify`: find the fewest operations that still fail in the same way."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import click

from compileboard.collectors.cli.common import print_message
from compileboard.collectors.cli.repro import (
    json_option,
    level_option,
    load_trusted,
    name_argument,
    origin_options,
    save,
    trial_options,
    work,
)
from compileboard.collectors.repro.findings import Minification
from compileboard.collectors.terminal.values import read_seconds
from compileboard.command_line import Command, Value
from compileboard.exit_codes import DONE, FAILED

MOST_LINES = 40  # of the smallest graph on the terminal
_FORWARD = re.compile(r"^    def forward\(.*?(?=^\S)", re.MULTILINE | re.DOTALL)


@click.command("minify", cls=Command)
@name_argument
@origin_options
@level_option
@click.option(
    "--strict", is_flag=True, help="Of a wrong answer: take any other bits than eager's as wrong."
)
@click.option(
    "--max-time",
    type=Value(read_seconds),
    metavar="S",
    help="Stop after this, with the smallest so far.",
)
@click.option(
    "--resume/--no-resume", default=True, help="Go on from what was tried before. Default: resume."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the smallest program too.",
)
@trial_options
@json_option
def minify_command(
    name: str,
    level: str | None,
    strict: bool,
    max_time: float | None,
    resume: bool,
    output: Path | None,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Make a failing graph as small as possible, with the same failure.

    Each trial is a process of its own, within --timeout and --memory. Ctrl-C ends the search; the
    same command continues it. Exit code 0: it fails, and this is the smallest. 1: it does not fail
    here as recorded. 2: it could not be run.
    """

    from compileboard.collectors.repro.repro import now_us, work_folder

    loaded, started_us = load_trusted(name, options, trust=trust), now_us()
    folder = work_folder(loaded, os.environ)
    if not resume:
        for path in folder.glob("queries-*.jsonl"):
            path.unlink()
    asked = {"level": level, "strict": strict, "max_seconds": max_time, "folder": str(folder)}
    try:
        body = work(loaded, "compileboard.collectors.repro.minify.task:run", asked, **options)
    except KeyboardInterrupt:
        smallest = folder / "smallest.py"
        print_message("interrupted; the same command goes on from here")
        if smallest.exists():
            print_message(f"smallest program so far: {smallest}")
        raise
    answer, program = Minification.load(body["answer"]), body["program"]
    detail = {**body["answer"], "torch_version": body["torch_version"]}
    columns = {"operation": body["operation"], "node_count": answer.nodes_after, "program": program}
    save(loaded, "minify", started_us, detail, **(columns if answer.answers else {}))
    if output is not None and program is not None:
        output.write_text(program, encoding="utf-8", errors="surrogatepass")
    print(
        json.dumps(body, indent=2, ensure_ascii=False)
        if as_json
        else "\n".join(_describe(answer, program))
    )
    return DONE if answer.answers else FAILED


def _describe(answer: Any, program: str | None) -> list[str]:
    lines = [answer.sentence()]
    if not answer.answers:
        return lines
    lines.append(f"fails: {answer.failure}")
    if program is not None:
        forward = _FORWARD.search(program)
        code = (forward[0] if forward else "").rstrip().splitlines()
        lines += ["", *code[:MOST_LINES], *(["    …"] if len(code) > MOST_LINES else []), ""]
    lines += [text for condition, text in _notes(answer) if condition]
    lines.append(
        f"{answer.tried_count} trials, {answer.remembered_count} answers from memory, "
        f"{answer.seconds:.1f} s"
    )
    return lines


def _notes(answer: Any) -> list[tuple[bool, str]]:
    limited = (
        f"{answer.limited_count} trials reached a limit and count as passing; --timeout, "
        "--memory allow more"
    )
    return [
        (
            answer.status == "minified" and not answer.is_confirmed,
            "it passed when it was tried once more: it comes and goes",
        ),
        (
            answer.is_confirmed and answer.fails_with_random_inputs is False,
            "it fails only with these values of its inputs",
        ),
        (answer.limited_count > 0, limited),
    ]
