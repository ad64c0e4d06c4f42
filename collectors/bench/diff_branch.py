"""`--diff-branch`: measure the checkout as it is, then another commit of it, and compare the two."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.bench.comparison import compare
from compileboard.collectors.bench.isolate import PACKAGE_ROOT
from compileboard.collectors.bench.measuring import Job, Place, Say, finish, measure
from compileboard.collectors.bench.suites.user import read_only
from compileboard.collectors.bench.worktree import Commit, find_commit, moved, moved_environment, worktree

TAG, REF_TAG = "diff_branch", "diff_branch_ref"
MakeJob = Callable[[argparse.Namespace, Place, dict[str, str]], Job]


def measure_both(arguments: argparse.Namespace, make_job: MakeJob, say: Say) -> int:
    """Measure both, each in a run of its own, and print how they compare; 0 if anything of both was measured.

    Raises: ValueError in words for what cannot be compared; StoreError.
    """
    if arguments.resume is not None:
        raise ValueError("--diff-branch measures two runs anew; --resume goes on with one")
    commit = find_commit(arguments.diff_branch, os.getcwd())
    say(f"new: the checkout {commit.root} as it is; base: {commit.ref} ({commit.sha[:12]}), in a worktree of its own")
    with worktree(commit) as tree:
        asked, there = _in_the_worktree(arguments, commit, tree)
        jobs = [
            make_job(arguments, Place(suffix=f" --diff-branch {commit.sha}"), {TAG: "new"}),
            make_job(asked, there, {TAG: "base", REF_TAG: commit.ref}),
        ]
        found, codes = [], []
        for job in map(_with_own_folder, jobs):
            found.append(measure(job, arguments, None, say))
            codes.append(finish(found[-1], arguments, say, job.request.tags[TAG]))
            if found[-1].interrupted:
                return codes[-1]
    new, base = found
    print(f"\nbase {commit.ref} ({commit.sha[:12]}) → new, the checkout\n")
    print(compare(base.results, new.results))
    return max(codes)


def _with_own_folder(job: Job) -> Job:
    """Let what a measurement leaves beside its numbers (a trace, a snapshot) go where the other run's does not."""
    if not (job.settings.export_profiler_trace or job.settings.snapshot_memory):
        return job
    folder = os.path.join(job.settings.output_directory or os.getcwd(), job.request.tags[TAG])
    return replace(job, settings=replace(job.settings, output_directory=folder))


def _in_the_worktree(arguments: argparse.Namespace, commit: Commit, tree: Path) -> tuple[argparse.Namespace, Place]:
    """Return the arguments with the model's path in the worktree, and the place to measure it in."""
    asked = copy.copy(arguments)
    if arguments.only is not None and ":" in arguments.only:
        only = read_only(arguments.only)
        asked.only = replace(only, path=moved(only.path, commit.root, tree)).text
        if asked.only != only.text and not os.path.exists(read_only(asked.only).path):
            raise ValueError(f"--diff-branch {commit.ref}: {only.path} is not in that commit, so it cannot be compared")
    folder = moved(os.getcwd(), commit.root, tree)
    there = Place(
        cwd=folder if os.path.isdir(folder) else str(tree),
        environment=moved_environment(os.environ, commit.root, tree, Path(PACKAGE_ROOT)),
        stands_for=(str(tree), str(commit.root)),
        suffix=f" --diff-branch {commit.sha}",
    )
    return asked, there
