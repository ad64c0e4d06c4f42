"""Programs with what was written down of them, their recordings, and how two recordings differ."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

from benchmarks.common import ROOT
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.run_causes import load_causes
from tests.integration.fixes.recording import DATABASE, RUN, recorded

KEPT = Path(tempfile.gettempdir()) / "compileboard-cases"
SAVE_RESULT = '\n\ntorch.save(globals().get("result"), "result.pt")\n'
NOT_RECORDING = ("fixes", "trials", "cli", "terminal", "repro", "bench", "push", "formats", "logs")
SECONDS = 300
NOT_RECORDED = 77  # an exit code of no program
_WARNING = re.compile(r"[\w.]+\.py:\d+: (\w*Warning: .*)")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


@dataclass(frozen=True)
class Program:
    """A program, and what was written down of it before any advice was asked for.

    The recorded text has only the first line of that: nothing that records or advises reads the
    rest.
    """

    name: str
    text: str
    title: str
    facts: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Program:
        head, text = path.read_text(encoding="utf-8").removeprefix('"""').split('"""\n', 1)
        title, _, rest = head.partition("\n\n")
        found = re.findall(r"^([A-Z]\w+):\s(.*?)(?=^[A-Z]\w+:|\Z)", rest, re.M | re.S)
        facts = {name: " ".join(words.split()) for name, words in found}
        return cls(path.stem, f'"""{title}"""\n{text}', title, facts)

    @property
    def is_right_as_it_is(self) -> bool:
        return self.facts["Right"].startswith("Nothing")


def list_programs(folder: Path, names: Collection[str] = ()) -> list[Program]:
    paths = sorted(folder.glob("[a-z]*_*.py"))
    return [Program.read(path) for path in paths if not names or path.stem in names]


@dataclass(frozen=True)
class Counts:
    graph_break_count: int
    skipped_frame_count: int
    recompile_count: int
    recompile_limit_count: int
    compile_count: int

    @property
    def trouble(self) -> tuple[int, int]:
        """What is wrong because of breaks, and because of recompiles."""
        return (
            self.graph_break_count + self.skipped_frame_count,
            self.recompile_count + self.recompile_limit_count,
        )

    def __str__(self) -> str:
        return ", ".join(map(str, vars(self).values()))


@dataclass(frozen=True)
class Recording:
    """A program that was run while it was observed."""

    folder: Path

    @classmethod
    def make(cls, name: str, text: str) -> Recording:
        """Run a program, or find the recording of the same text."""
        folder = KEPT / hashlib.sha256(f"{text}{_identify_recorder()}".encode()).hexdigest()[:20]
        if not folder.exists():
            part = folder.with_suffix(".part")  # what an interrupted run leaves
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            (part / f"{name}.py").write_text(text + SAVE_RESULT, encoding="utf-8")
            _run(part, name)
            part.rename(folder)
        return cls(folder)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    @property
    def exit(self) -> str:
        return self._read("exit")

    @property
    def failure(self) -> str:
        errors = re.findall(
            r"^[\w.]+(?:Error|Exception|Unsupported)\b.*", self._read("stderr"), re.M
        )
        return errors[-1][:120] if errors else f"exit code {self.exit}"

    @property
    def printed(self) -> list[str]:
        return [_round(line.rstrip()) for line in self._read("stdout").splitlines()]

    @property
    def warnings(self) -> Counter[str]:
        """The program's own, without those of torch about its compilation and gradients."""
        found = (_WARNING.search(line) for line in self._read("stderr").splitlines())
        texts = [_round(match[1]) for match in found if match]
        return Counter(text for text in texts if not re.search("ynamo|torch|Backward", text))

    @property
    def result(self) -> Any:
        path = self.folder / "result.pt"
        return torch.load(path, weights_only=False) if path.exists() else None

    @cached_property
    def counts(self) -> Counts:
        with closing(open_reader(self.folder / DATABASE)) as connection:
            names = ", ".join(Counts.__dataclass_fields__)
            row = connection.execute(f"select {names} from run_totals").fetchone()
        return Counts(**dict(row))

    @cached_property
    def causes(self) -> list[Cause]:
        with closing(open_reader(self.folder / DATABASE)) as connection:
            return load_causes(connection, RUN)


def _run(folder: Path, name: str) -> None:
    """Run a program in a fork of this process, which has imported what takes long."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        code = NOT_RECORDED
        try:
            code = _record(folder, name)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == NOT_RECORDED:
        raise SystemExit(f"{name} could not be recorded: {folder / 'stderr'}")
    (folder / "exit").write_text(str(code))


def _record(folder: Path, name: str) -> int:
    os.chdir(folder)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.alarm(SECONDS)
    torch.set_num_threads(1)
    code = 0
    with recorded(folder):
        try:
            runpy.run_path(f"{name}.py", run_name="__main__")
        except Exception:
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _identify_recorder() -> str:
    """Return what identifies this torch and the code that records, without that which judges."""
    digest = hashlib.sha256(metadata.version("torch").encode())
    collectors = ROOT / "collectors"
    for path in sorted(collectors.rglob("*.py")):
        if path.relative_to(collectors).parts[0] not in NOT_RECORDING:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _round(line: str) -> str:
    return _NUMBER.sub(lambda number: f"{float(number[0]):.3g}", line)


def list_differences(old: Any, new: Any, path: str = "result") -> Iterator[str]:
    """Yield where two results differ, in type too: a float that became a tensor is one."""
    if type(old) is not type(new):
        yield f"{path} is {type(old).__name__}, now {type(new).__name__}"
    elif isinstance(old, torch.Tensor):
        if old.shape != new.shape or old.dtype != new.dtype:
            yield f"{path} is {old.dtype}{list(old.shape)}, now {new.dtype}{list(new.shape)}"
        elif not torch.allclose(
            old.detach().double(), new.detach().double(), rtol=1e-4, atol=1e-5, equal_nan=True
        ):
            yield f"{path} has other values"
    elif isinstance(old, dict):
        if old.keys() != new.keys():
            yield f"{path} has other keys"
        for key in old.keys() & new.keys():
            yield from list_differences(old[key], new[key], f"{path}[{key!r}]")
    elif isinstance(old, (list, tuple)):
        if len(old) != len(new):
            yield f"{path} has {len(old)} items, now {len(new)}"
        for number, (left, right) in enumerate(zip(old, new)):
            yield from list_differences(left, right, f"{path}[{number}]")
    elif isinstance(old, float):
        if abs(old - new) > 1e-5 + 1e-4 * abs(old) and old == old:
            yield f"{path} is {old:.6g}, now {new:.6g}"
    elif old != new:
        yield f"{path} is {old!r}, now {new!r}"


def list_harms(before: Recording, after: Recording) -> Iterator[str]:
    if after.exit != before.exit:
        yield f"ends with {after.failure}"
    yield from list_differences(before.result, after.result)
    if before.printed != after.printed:
        lost, new = (
            list((Counter(one) - Counter(other)).elements())
            for one, other in (
                (before.printed, after.printed),
                (after.printed, before.printed),
            )
        )
        yield f"lines lost: {lost[:2]}, new: {new[:2]}" if lost or new else "lines in another order"
    if lost := Counter(before.warnings.keys() - after.warnings.keys()):
        yield f"{lost.total()} warnings lost: {next(iter(lost))[:80]}"
