"""A pytest plugin that limits graph breaks and recompiles in a project's own tests.

def test_model(compileboard):
    with compileboard.observe():
        model(x)
    compileboard.assert_no_new_graph_breaks()
    compileboard.assert_max_recompiles(1)

Known graph breaks are kept in `graph_breaks.json` beside the test; `pytest
--compileboard-update` writes it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from compileboard.collectors.contract.events import GraphBroke, Recompiled
    from compileboard.collectors.contract.shapes import Frame
    from compileboard.collectors.record.in_process import BlockRecord

UPDATE = "--compileboard-update"
FILE_NAME = "graph_breaks.json"
_MAX_FRAMES = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compileboard", "torch.compile, by CompileBoard")
    group.addoption(
        UPDATE,
        action="store_true",
        help=f"keep the graph breaks that tests see as known ones, in {FILE_NAME}",
    )


@pytest.fixture
def compileboard(request: pytest.FixtureRequest) -> CompileBoard:
    """Count torch.compile's graph breaks and recompiles in a test, and assert limits on them."""
    test = request.node
    return CompileBoard(
        test.nodeid,
        Path(test.path).with_name(FILE_NAME),
        request.config.rootpath,
        update=bool(request.config.getoption(UPDATE)),
    )


class CompileBoard:
    """Observes blocks of one test, and asserts limits on their graph breaks and recompiles."""

    def __init__(self, test: str, baseline: Path, root: Path, *, update: bool) -> None:
        self._test, self._baseline, self._root, self._update = test, baseline, root, update
        self._blocks: list[
            BlockRecord
        ] = []  # the outermost: what a block inside sees, they see too
        self._depth = 0
        self._breaks_by_baseline: dict[
            Path, dict[str, GraphBroke]
        ] = {}  # what this test's assertions have seen, by baseline

    @contextmanager
    def observe(self, *, reset: bool = True) -> Iterator[BlockRecord]:
        """Observe the block; assertions cover all blocks of the test, including open ones so far.

        `reset` clears Dynamo's cache first, so that tests do not depend on each other. The test
        fails if torch cannot be imported.
        """
        __tracebackhide__ = True
        try:
            import torch  # noqa: F401  to say so in one line where it is missing
        except ImportError as error:
            pytest.fail(
                f"compileboard: {error}; the model's torch is what is observed: install it "
                "into this Python "
                "(`pip install torch`), or skip the test with `pytest.importorskip('torch')`",
                pytrace=False,
            )
        from compileboard.collectors.record.in_process import watch

        with watch([self._root], reset=reset) as seen:
            if not self._depth:
                self._blocks.append(seen)
            self._depth += 1
            try:
                yield seen
            finally:
                self._depth -= 1

    def assert_no_new_graph_breaks(
        self,
        function: Callable[..., Any] | None = None,
        *args: Any,
        baseline: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Fail if a graph break is not in the baseline file; return the function's result.

        With a function, only its call counts, otherwise everything observed in the test. A relative
        `baseline` is relative to the test. `--compileboard-update` writes the file instead of
        failing.
        """
        __tracebackhide__ = True
        result, blocks = self._call(function, args, kwargs)
        from compileboard.collectors.contract.verdicts import (
            compare_counts,
        )  # here: most test runs never ask

        observed = {
            graph_break.fingerprint: graph_break
            for seen in blocks
            for graph_break in seen.distinct_graph_breaks
        }
        path = self._baseline if baseline is None else self._baseline.parent / baseline
        # The file beside the test knows it by file and name; another may be shared by tests of
        # several folders.
        key = _shorten(self._test) if baseline is None else self._test
        if self._update:
            written = self._breaks_by_baseline.setdefault(
                path, {}
            )  # a test's second assertion must not erase what its first wrote
            written |= observed
            _update(path, key, list(written.values()))
            return result
        known = {str(entry.get("fingerprint")): 1 for entry in _load(path).get(key, [])}
        words = compare_counts(known, dict.fromkeys(observed, 1))
        new = [
            graph_break
            for fingerprint, graph_break in observed.items()
            if words[fingerprint] == "new"
        ]
        if new:
            pytest.fail(_format_breaks(new, len(observed) - len(new), path, key), pytrace=False)
        return result

    def assert_max_recompiles(
        self, most: int, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Fail if there were more than `most` recompiles; return the function's result.

        With a function, only its call counts, otherwise everything observed in the test.
        """
        __tracebackhide__ = True
        result, blocks = self._call(function, args, kwargs)
        recompiles = [recompile for seen in blocks for recompile in seen.recompiles]
        if len(recompiles) > most:
            pytest.fail(_format_recompiles(recompiles, most, _list_resumed(blocks)), pytrace=False)
        return result

    def _call(
        self, function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[BlockRecord]]:
        __tracebackhide__ = True
        result, blocks = None, self._blocks
        if function is not None:
            with self.observe() as seen:
                result = function(*args, **kwargs)
            blocks = [seen]
        if not blocks:
            pytest.fail(
                "compileboard: nothing was observed; run the model inside `with "
                "compileboard.observe():`, or give the "
                "assertion the function and its arguments",
                pytrace=False,
            )
        for block in blocks:
            block.catch_up()
        losses = {reason: count for block in blocks for reason, count in block.losses.items()}
        if losses:
            pytest.fail(
                f"compileboard: the hooks lost records, so there is no result: {losses}",
                pytrace=False,
            )
        return result, blocks


def _shorten(test: str) -> str:
    path, colons, name = test.partition("::")
    return path.rpartition("/")[2] + colons + name


def _load(path: Path) -> dict[str, list[dict[str, Any]]]:
    __tracebackhide__ = True
    what_to_do = f"fix it, or delete it and create it again with `pytest {UPDATE}`"
    try:
        breaks_by_test = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        pytest.fail(f"compileboard: cannot read {path}: {error}; {what_to_do}", pytrace=False)
    if not isinstance(breaks_by_test, dict) or not all(
        _is_entry(entries) for entries in breaks_by_test.values()
    ):
        pytest.fail(
            (
                f"compileboard: {path} is not a table of tests with lists of graph breaks; "
                f"{what_to_do}"
            ),
            pytrace=False,
        )
    return breaks_by_test


def _is_entry(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _update(path: Path, key: str, breaks: list[GraphBroke]) -> None:
    import fcntl  # here, so that a Python without it can load the plugin

    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        breaks_by_test = _load(path)
        new = {name: entries for name, entries in breaks_by_test.items() if name != key}
        if breaks:
            new[key] = [
                {
                    "fingerprint": graph_break.fingerprint,
                    "gb_id": graph_break.gb_id,
                    "reason": graph_break.reason,
                    "where": _where(graph_break, line=False),
                }
                for graph_break in breaks
            ]
        if new == breaks_by_test:
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(new, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        os.close(folder)


def _where(graph_break: GraphBroke, *, line: bool = True) -> str:
    location = (
        f"{graph_break.file}:{graph_break.line}"
        if line and graph_break.line
        else graph_break.file or "unknown"
    )
    return f"{location} in {graph_break.function}" if graph_break.function else location


def _format_breaks(new: list[GraphBroke], known_count: int, path: Path, key: str) -> str:
    lines = [f"{len(new)} new graph break{'' if len(new) == 1 else 's'} ({known_count} known)"]
    for number, graph_break in enumerate(new, 1):
        lines += [
            "",
            f"{number}. {' '.join(graph_break.reason.split())}"
            + (f" [{graph_break.gb_id}]" if graph_break.gb_id else ""),
        ]
        lines.append(f"   at {_where(graph_break)}")
        lines += [
            f"   {_frame(frame)}" for frame in _drop_pytest_frames(graph_break.stack)[-_MAX_FRAMES:]
        ]
        if graph_break.explanation:
            lines.append(f"   {' '.join(graph_break.explanation.split())}")
        lines += [f"   hint: {' '.join(hint.split())}" for hint in graph_break.hints]
    lines += [
        "",
        (
            f"Take the break out of the code, or keep it as known: pytest {UPDATE} writes it to "
            f"{path} under"
        ),
        f"{key!r}.",
    ]
    return "\n".join(lines)


def _drop_pytest_frames(stack: list[Frame]) -> list[Frame]:
    outer = [
        n
        for n, frame in enumerate(stack, 1)
        if str(frame.get("file")).startswith(("_pytest/", "pluggy/"))
    ]
    own = stack[max(outer, default=0) :]
    return [
        frame
        for frame in own
        if os.path.basename(str(frame.get("file"))) != os.path.basename(__file__)
    ]


def _frame(frame: Frame) -> str:
    code = f": {frame['code']}" if frame.get("code") else ""
    return f"  {frame.get('file')}:{frame.get('line')} in {frame.get('name')}{code}"


def _list_resumed(blocks: list[BlockRecord]) -> set[str | None]:
    return {
        started.compile_id
        for seen in blocks
        for started in seen.compiles
        if started.resumed_at is not None
    }


def _format_recompiles(recompiles: list[Recompiled], most: int, resumed: set[str | None]) -> str:
    from compileboard.collectors.fixes.recompile_fixes import (
        describe_guard_fixes,
    )  # here: most test runs never ask

    lines = [
        f"{len(recompiles)} recompile{'' if len(recompiles) == 1 else 's'}, at most {most} expected"
    ]
    for number, recompile in enumerate(recompiles, 1):
        guard = recompile.guards[0] if recompile.guards else None
        reason = (
            " ".join((guard.reason if guard else recompile.text).split()) or "torch gave no reason"
        )
        lines += [
            "",
            (
                f"{number}. compile {recompile.compile_id}, because {recompile.recompiled_from} "
                f"failed: {reason}"
            ),
        ]
        if guard is None:
            continue
        if guard.file or guard.source_line:
            lines.append(
                f"   at {guard.file}:{guard.line}"
                + (f": {guard.source_line}" if guard.source_line else "")
            )
        suggestion = describe_guard_fixes(
            guard, file=guard.file, after_break=recompile.compile_id in resumed
        )
        if suggestion:
            lines.append(f"   {suggestion}")
    lines += ["", "Follow the suggestions, or raise the number that this test allows."]
    return "\n".join(lines)
