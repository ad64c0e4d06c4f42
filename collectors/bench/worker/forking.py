"""A process that imports torch and forks one process per requested task. Linux.

It calls nothing in torch: a process with running threads cannot be forked safely.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, NoReturn

from compileboard.collectors.bench.worker import child
from compileboard.collectors.bench.worker.torch_setup import prepare_environment
from compileboard.collectors.record.garbage import without_collections
from compileboard.collectors.record.program import end_with
from compileboard.start import shared_command


def serve(parent: str) -> None:
    end_with(int(parent))
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library that prints answers nothing
    prepare_environment()
    with without_collections():
        import torch._dynamo.testing  # noqa: F401

    if not _forks_safely():
        return
    os.write(answers, b"ready\n")
    server = os.getpid()
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            _run(line, server, answers)
        os.write(answers, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _forks_safely() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _forget_server() -> None:
    hooks = sys.modules.get("_compileboard.observe.hooks")
    installed = hooks.current() if hooks is not None else None
    if installed is not None:
        installed.spool.parent_id = None


def _run(line: bytes, server: int, answers: int) -> NoReturn:
    try:
        os.close(answers)
        os.setsid()
        request: dict[str, Any] = json.loads(line)
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for descriptor, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.orig_argv = shared_command(f"{child.__name__}:start", str(server), request["folder"])
        sys.argv = ["-c", str(server), request["folder"]]
        _forget_server()
        child.start(str(server), request["folder"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)
