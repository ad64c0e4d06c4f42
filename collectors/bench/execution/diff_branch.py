"""Measure the checkout and another commit, the latter in a worktree, and compare them."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compileboard.collectors.bench.execution.runner import Checkout, Job, PrintLine, finish, measure
from compileboard.collectors.bench.execution.task_process import PACKAGE_ROOT
from compileboard.collectors.bench.plan.request import BenchRequest
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.report.summary import compare
from compileboard.collectors.bench.suites.user import read_only
from compileboard.collectors.record.git import ask_git


@dataclass(frozen=True)
class ResolvedCommit:
    root: Path  # The top folder of the checkout.
    ref: str  # The user's spelling.
    sha: str


def find_commit(ref: str, folder: str) -> ResolvedCommit:
    """Return the repository, name and hash of a branch, tag or commit.

    Raises ValueError if the folder is not in a repository, or the repository does not have it.
    """
    root = ask_git(["rev-parse", "--show-toplevel"], folder)
    if root.returncode:
        raise ValueError(
            f"--diff-branch {ref}: {folder} is in no git checkout; start it in the repository "
            "to compare"
        )
    parsed = ask_git(
        ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"], folder
    )
    if parsed.returncode:
        raise ValueError(
            f"--diff-branch {ref}: the repository {root.stdout.strip()} has no such branch or "
            "commit"
        )
    return ResolvedCommit(Path(root.stdout.strip()).resolve(), ref, parsed.stdout.strip())


@contextlib.contextmanager
def worktree(commit: ResolvedCommit) -> Iterator[Path]:
    """Check out a commit into a temporary folder, which is removed afterwards, even on Ctrl-C.

    Raises ValueError with git's message on failure.
    """
    folder = Path(tempfile.mkdtemp(prefix="compileboard-diff-branch-")).resolve()
    tree = folder / commit.root.name
    try:
        done = ask_git(
            ["worktree", "add", "--detach", "--quiet", str(tree), commit.sha], str(commit.root)
        )
        if done.returncode:
            raise ValueError(f"--diff-branch {commit.ref}: git worktree: {done.stderr.strip()}")
        yield tree
    finally:
        ask_git(["worktree", "remove", "--force", str(tree)], str(commit.root))
        shutil.rmtree(folder, ignore_errors=True)


def relocate_path(path: str, root: Path, tree: Path) -> str:
    if not os.path.isabs(path):
        return path  # relative to a folder that is moved
    resolved = Path(path).resolve()
    return str(tree / resolved.relative_to(root)) if resolved.is_relative_to(root) else path


def relocate_environment(
    environment: Mapping[str, str], root: Path, tree: Path, own: Path
) -> dict[str, str]:
    """Return an environment whose PYTHONPATH points into the worktree instead of the checkout.

    This includes folders that an editable installation put on sys.path. A virtual environment
    inside the checkout and our own code (`own`) keep their paths.
    """
    given = environment.get("PYTHONPATH", "")
    entries = (
        [relocate_path(entry, root, tree) for entry in given.split(os.pathsep)] if given else []
    )
    unmoved = [Path(sys.prefix).resolve(), own]
    for entry in sys.path:
        path = Path(entry or ".").resolve()
        if (
            entry
            and path.is_relative_to(root)
            and not any(path.is_relative_to(other_path) for other_path in unmoved)
        ):
            entries.append(relocate_path(entry, root, tree))
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(entries))}


def move_into(tree: Path, commit: ResolvedCommit) -> tuple[str, dict[str, str]]:
    """Return the folder of the worktree that corresponds to the current one, and an environment for
    it.
    """
    folder = relocate_path(os.getcwd(), commit.root, tree)
    environment = relocate_environment(os.environ, commit.root, tree, Path(PACKAGE_ROOT))
    return folder if os.path.isdir(folder) else str(tree), environment


@contextlib.contextmanager
def enter_base(ref: str, command: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Change into a commit's worktree; yield the command and environment adapted to it.

    Raises ValueError if the commit does not exist.
    """
    before = os.getcwd()
    commit = find_commit(ref, before)
    with worktree(commit) as tree:
        folder, environment = move_into(tree, commit)
        moved = [relocate_path(word, commit.root, tree) for word in command]
        # An interpreter of a virtual environment inside the checkout is not in any commit.
        words = [new if os.path.exists(new) else old for old, new in zip(command, moved)]
        os.chdir(folder)
        try:
            yield words, environment
        finally:
            os.chdir(before)


TAG, REF_TAG = "diff_branch", "diff_branch_ref"
MakeJob = Callable[[BenchRequest, Checkout, dict[str, str]], Job]


def measure_both(arguments: BenchRequest, make_job: MakeJob, print_line: PrintLine) -> int:
    """Measure both commits, each in a run of its own, and print a comparison; return 0 if anything
    was measured.

    Raises ValueError if they cannot be compared, StoreError.
    """
    if arguments.resume is not None:
        raise ValueError("--diff-branch measures two runs anew; --resume goes on with one")
    commit = find_commit(str(arguments.diff_branch), os.getcwd())
    print_line(
        f"new: the checkout {commit.root} as it is; base: {commit.ref} ({commit.sha[:12]}), in "
        "a worktree of its own"
    )
    with worktree(commit) as tree:
        base_request, checkout = _move_request_into_worktree(arguments, commit, tree)
        jobs = [
            make_job(arguments, Checkout(suffix=f" --diff-branch {commit.sha}"), {TAG: "new"}),
            make_job(base_request, checkout, {TAG: "base", REF_TAG: commit.ref}),
        ]
        outcomes, codes = [], []
        for job in map(_use_separate_folders, jobs):
            outcomes.append(measure(job, arguments, None, print_line))
            codes.append(finish(outcomes[-1], arguments, print_line, job.config.tags[TAG]))
            if outcomes[-1].interrupted:
                return codes[-1]
    new, base = outcomes
    print(f"\nbase {commit.ref} ({commit.sha[:12]}) → new, the checkout\n")
    print(compare(base.results, new.results))
    return max(codes)


def _use_separate_folders(job: Job) -> Job:
    def move(task: Task) -> Task:
        if not (task.asked.export_profiler_trace or task.asked.snapshot_memory):
            return task
        parent = task.asked.output_directory or os.getcwd()
        return task.change(output_directory=os.path.join(parent, job.config.tags[TAG]))

    return replace(job, plan=list(map(move, job.plan)))


def _move_request_into_worktree(
    arguments: BenchRequest, commit: ResolvedCommit, tree: Path
) -> tuple[BenchRequest, Checkout]:
    request = copy.copy(arguments)
    if arguments.only is not None and ":" in arguments.only:
        only = read_only(arguments.only)
        request.only = replace(only, path=relocate_path(only.path, commit.root, tree)).text
        if request.only != only.text and not os.path.exists(read_only(request.only).path):
            raise ValueError(
                f"--diff-branch {commit.ref}: {only.path} is not in that commit, so it cannot "
                "be compared"
            )
    folder, environment = move_into(tree, commit)
    suffix = f" --diff-branch {commit.sha}"
    return request, Checkout(folder, environment, (str(tree), str(commit.root)), suffix)
