"""`repro minify`, `analyze` and `bisect`: make a failing graph small, and find what makes
it fail.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compileboard.collectors.cli.common import print_json, print_message
from compileboard.collectors.cli.repro import (
    json_option,
    level_option,
    load_trusted,
    name_argument,
    origin_options,
    run_repro_task,
    save_command_result,
    trial_options,
)
from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.repro.findings import Minification
from compileboard.collectors.terminal.values import format_table, read_seconds
from compileboard.command_line import Command, Value
from compileboard.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from compileboard.collectors.repro.findings import JudgedNode, TriedSetting

MAX_LINES = 40  # Lines of the smallest graph shown.
_FORWARD = re.compile(r"^    def forward\(.*?(?=^\S)", re.MULTILINE | re.DOTALL)
MAX_ROWS = 12  # Rows of the table shown.
PACKAGE = "compileboard.collectors.repro.locate"
strict_option = click.option(
    "--strict", is_flag=True, help="Take other bits than eager's as wrong."
)


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
    same command continues it. Exit code 0: the smallest graph that fails was found. 1: the graph
    does not fail here as recorded. 2: it could not be run.
    """
    from compileboard.collectors.repro.repro import work_folder

    loaded, started_us = load_trusted(name, options, trust=trust), read_clock_us()
    folder = work_folder(loaded, os.environ)
    if not resume:
        for path in folder.glob("queries-*.jsonl"):
            path.unlink()
    asked = {"level": level, "strict": strict, "max_seconds": max_time, "folder": str(folder)}
    try:
        body = run_repro_task(
            loaded, "compileboard.collectors.repro.minify.task:run", asked, **options
        )
    except KeyboardInterrupt:
        smallest = folder / "smallest.py"
        print_message("interrupted; the same command goes on from here")
        if smallest.exists():
            print_message(f"smallest program so far: {smallest}")
        raise
    answer, program = Minification.load(body["answer"]), body["program"]
    detail = {**body["answer"], "torch_version": body["torch_version"]}
    columns = {"operation": body["operation"], "node_count": answer.nodes_after, "program": program}
    save_command_result(loaded, "minify", started_us, detail, **(columns if answer.answers else {}))
    if output is not None and program is not None:
        output.write_text(program, encoding="utf-8", errors="surrogatepass")
    if as_json:
        print_json(body)
    else:
        print("\n".join(_describe_minification(answer, program)))
    return DONE if answer.answers else FAILED


def _describe_minification(answer: Any, program: str | None) -> list[str]:
    lines = [answer.sentence()]
    if not answer.answers:
        return lines
    lines.append(f"fails: {answer.failure}")
    if program is not None:
        forward = _FORWARD.search(program)
        code = (forward[0] if forward else "").rstrip().splitlines()
        lines += ["", *code[:MAX_LINES], *(["    …"] if len(code) > MAX_LINES else []), ""]
    lines += [text for condition, text in _list_notes(answer) if condition]
    lines.append(
        f"{answer.tried_count} trials, {answer.remembered_count} answers from memory, "
        f"{answer.seconds:.1f} s"
    )
    return lines


def _list_notes(answer: Any) -> list[tuple[bool, str]]:
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


@click.command("analyze", cls=Command)
@name_argument
@origin_options
@level_option
@strict_option
@click.option("--all", "with_all", is_flag=True, help="Print every operation that was judged.")
@trial_options
@json_option
def analyze_command(
    name: str,
    level: str | None,
    strict: bool,
    with_all: bool,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the operation of a graph that is wrong, or fails.

    Each operation gets the compiled values of its inputs, and its result is compared with float64
    and with eager. Exit code 0: an operation was found, or several that are wrong only when fused.
    1: none was. 2: it could not be run.
    """
    from compileboard.collectors.repro import findings
    from compileboard.collectors.repro.repro import advise_passing

    loaded, started_us = load_trusted(name, options, trust=trust), read_clock_us()
    asked = {"level": level, "strict": strict, "memory_bytes": options["memory"]}
    answer = run_repro_task(loaded, f"{PACKAGE}.analyze_task:analyze", asked, **options)
    analysis = findings.Analysis.load(answer)
    save_command_result(loaded, "analyze", started_us, {**answer, "sentence": analysis.sentence()})
    if as_json:
        print_json(answer)
    else:
        rows = analysis.rows if with_all else _choose_rows(analysis.rows)
        counts = (
            f"{analysis.judged_count} operations judged, {analysis.random_count} random, "
            f"{analysis.not_judged_count} not judged, {analysis.compile_count} compiles"
        )
        print(
            "\n".join(
                [
                    f"{analysis.sentence()}.",
                    *(
                        advise_passing(loaded.manifest.preload)
                        if analysis.status == findings.NOT_REPRODUCED
                        else ()
                    ),
                    *format_nodes(rows),
                    *_end_sentences(analysis.notes),
                    counts,
                ]
            )
        )
    return DONE if analysis.status in (findings.NAMED, findings.ONLY_FUSED) else FAILED


@click.command("bisect", cls=Command)
@name_argument
@origin_options
@level_option
@strict_option
@click.option(
    "--settings", is_flag=True, help="Try single settings of inductor even where a step is named."
)
@trial_options
@json_option
def bisect_command(
    name: str,
    level: str | None,
    strict: bool,
    settings: bool,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the pass, lowering, decomposition or setting without which a graph passes.

    Runs torch's bisector, then tries inductor's settings one by one. Your inductor cache is not
    changed. Exit code 0: a step or a setting was found. 1: none was. 2: it could not be run.
    """
    from compileboard.collectors.repro import findings
    from compileboard.collectors.repro.repro import advise_passing

    loaded, started_us = load_trusted(name, options, trust=trust), read_clock_us()
    asked = {"level": level, "strict": strict, "settings": settings}
    answer = run_repro_task(loaded, f"{PACKAGE}.bisect:bisect", asked, **options)
    bisection = findings.Bisection.load(answer)
    save_command_result(loaded, "bisect", started_us, {**answer, "sentence": bisection.sentence()})
    if as_json:
        print_json(answer)
    else:
        lines = [
            f"{bisection.sentence()}.",
            *(
                advise_passing(loaded.manifest.preload)
                if bisection.status == findings.NOT_REPRODUCED
                else ()
            ),
            *format_settings(bisection.settings),
            *_end_sentences(bisection.notes),
        ]
        print("\n".join([*lines, f"{bisection.trial_count} trials"]))
    return DONE if bisection.status == findings.NAMED else FAILED


def _choose_rows(rows: Sequence[JudgedNode]) -> list[JudgedNode]:
    from compileboard.collectors.repro.findings import WRONG_VERDICTS

    wrong = [row for row in rows if row.verdict in WRONG_VERDICTS]
    return wrong[:MAX_ROWS] if wrong else list(rows[:3])


def format_nodes(rows: Sequence[JudgedNode]) -> list[str]:
    cells = [
        [
            row.node,
            row.operation,
            row.verdict.replace("_", " "),
            _format_number(row.error),
            _format_number(row.eager_error),
            _format_number(row.limit),
            {True: "yes", False: "no", None: "–"}[row.explains],
            row.source or row.reason or "",
        ]
        for row in rows
    ]
    return _format_table(
        ["node", "operation", "verdict", "error", "eager", "limit", "explains", ""], cells
    )


def format_settings(settings: Sequence[TriedSetting]) -> list[str]:
    words = {True: "passes", False: "fails", None: "fails otherwise"}
    cells = [[entry.setting, entry.value, words[entry.passes]] for entry in settings]
    return _format_table(["setting", "value", "graph"], cells)


def _format_table(head: list[str], cells: list[list[str]]) -> list[str]:
    from compileboard.collectors.terminal.run_summary import printable

    if not cells:
        return []
    table = [head, *([printable(cell) for cell in row] for row in cells)]
    return [f"  {line}" for line in format_table(table)]


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _end_sentences(notes: Sequence[str]) -> list[str]:
    return [f"{note}." for note in notes]
