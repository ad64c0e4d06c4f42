"""Run docs/notebook.ipynb over the demo's history; write the tables of docs/frames.md.

`python -m tests.unit.app.notebook.documents` writes both anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

from compileboard.app.notebook.board import Board, BoardRun
from compileboard.app.notebook.data_frames import FrameMethod
from compileboard.collectors.contract.metric_fields import FIELDS
from tests.tools.history import record_history
from tests.tools.observed import ROOT
from tests.tools.written_tables import fill_table

NOTEBOOK, FRAMES = ROOT / "docs" / "notebook.ipynb", ROOT / "docs" / "frames.md"


def run_notebook(folder: Path) -> nbformat.NotebookNode:
    """Run every cell in a folder that has the database; return the notebook with its outputs."""
    record_history(folder / "compileboard.db")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PLOTLY_RENDERER": "plotly_mimetype"}
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    return notebook


def list_methods(owner: type) -> dict[str, FrameMethod]:
    """Return the methods that give frames, by name."""
    return {name: method for name, method in vars(owner).items() if isinstance(method, FrameMethod)}


def write_frames() -> Iterator[str]:
    """Yield the table of all frames."""
    yield from ("| method | has | keywords |", "|---|---|---|")
    for owner, source in ((Board, "board"), (BoardRun, "run")):
        for name, method in list_methods(owner).items():
            summary = method.operation.summary.partition(":")[0].partition(", ")[0].rstrip(".")
            words = ["*runs and rows*"] if method.of_runs else []
            words += [f"`{key}`" for key in method.own_names]
            yield f"| `{source}.{name}()` | {summary} | {', '.join(words)} |"


def write_columns() -> Iterator[str]:
    """Yield the tables of the columns of the main frames."""
    for name in (
        "runs",
        "compiles",
        "compilations",
        "graph_breaks",
        "recompiles",
        "results",
        "incidents",
    ):
        columns = list_methods(Board)[name].columns
        own = [column for column in columns if name != "compilations" or column.name not in FIELDS]
        yield from (
            "",
            f"### `board.{name}()`",
            "",
            "| column | dtype | meaning |",
            "|---|---|---|",
        )
        for column in own:
            meaning = column.description.replace("|", "\\|")
            yield f"| `{column.name}` | `{column.kind}` | {meaning} |"
        if len(own) < len(columns):
            yield from (
                "",
                "The other columns are torch's own metrics under torch's names, in torch's units.",
            )


def fill_tables(text: str) -> str:
    """Return the page with its tables written anew."""
    return fill_table(fill_table(text, "frames", write_frames()), "columns", write_columns())


def main() -> None:
    FRAMES.write_text(fill_tables(FRAMES.read_text(encoding="utf-8")), encoding="utf-8")
    with TemporaryDirectory() as folder:
        nbformat.write(run_notebook(Path(folder)), NOTEBOOK)


if __name__ == "__main__":
    main()
