"""Let a program of a test be a fork of a process that has imported torch: 2 s less each.

`serve` is that process. `become_fork` runs as a test's Python starts: if it is to run a file that
imports torch, it asks for a fork, which gets its arguments, environment, folder and streams, passes
on signals, and ends as the fork ended. What torch reads from the environment while it is imported
makes a start of its own, as the mark `real_start` does.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import types

FORKS = "QUICK_FORKS"  # the socket's path
READ_BY_TORCH = ("TORCH", "PYTORCH", "OMP_", "MKL_", "KMP_", "TRITON", "CUDA", "LD_")
READ_LATE = {"TORCHINDUCTOR_CACHE_DIR"}
OWN_START = ("COMPILEBOARD_TRIAL", "COMPILEBOARD_STACK_ROOM")
LONGEST = 1 << 20


def read_at_import(environment):
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_BY_TORCH) and name not in READ_LATE
    }


def become_fork():
    """Return where this process has to run its program itself."""
    path, words = os.environ[FORKS], sys.orig_argv
    if len(words) < 2 or not words[1].endswith(".py") or any(map(os.environ.get, OWN_START)):
        return
    with contextlib.suppress(OSError):
        with open(words[1], encoding="utf-8") as file:
            if "import torch" not in file.read():
                return
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        request = {
            "words": words,
            "environment": dict(os.environ),
            "cwd": os.getcwd(),
            "umask": os.umask(0o022),
        }
        os.umask(request["umask"])
        body = json.dumps(request).encode()
        socket.send_fds(server, [len(body).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(body)
        answers = server.makefile("rb")
        pid = int(answers.readline() or 0)
        if not pid:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda n, _frame: os.kill(pid, n))
        status = int(answers.readline() or 256)
        if status < 0:
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status)


def serve(path):
    """Answer until whoever started this process closes its standard input."""
    import torch
    import torch._dynamo.testing  # noqa: F401

    imported = read_at_import(os.environ)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(32)
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running = {}
    print("ready", flush=True)
    while True:
        watched = [0, ended, listener, *running.values()]
        ready, _, _ = select.select(watched, [], [])
        if 0 in ready:
            os._exit(0)
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
        for pid, asker in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                with contextlib.suppress(OSError):
                    asker.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                running.pop(pid).close()
            elif asker in ready:  # it was killed
                os.kill(pid, signal.SIGKILL)
                running.pop(pid).close()
                os.waitpid(pid, 0)
        if listener in ready:
            asker, _ = listener.accept()
            request, streams = receive(asker)
            if read_at_import(request["environment"]) != imported:
                asker.sendall(b"0\n")
                asker.close()
            elif (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (listener, asker, *running.values()):
                    one.close()
                os.close(ended)
                os.close(wake)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                return request
            else:
                running[pid] = asker
                asker.sendall(b"%d\n" % pid)
            for stream in streams:
                os.close(stream)


def receive(asker):
    head, streams, _, _ = socket.recv_fds(asker, 8, 3)
    body = b""
    while len(body) < int.from_bytes(head, "big"):
        body += asker.recv(LONGEST)
    return json.loads(body), streams


def prepare(request):
    """Make this process look as if it had been started; return its program."""
    path = request["words"][1]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in sys.path[1:] if entry not in given]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    sys.orig_argv, sys.argv = request["words"], request["words"][1:]
    wanted = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*wanted, *rest]
    sys.path_importer_cache.clear()
    sys.modules.pop("sitecustomize", None)
    forks = os.environ.pop(FORKS)
    with contextlib.suppress(ImportError):
        import sitecustomize  # noqa: F401  the hooks' own, where it is observed
    os.environ[FORKS] = forks
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec"), module.__dict__


def main():
    code, names = prepare(serve(sys.argv[1]))
    try:
        exec(code, names)
        return
    except SystemExit:
        raise
    except BaseException as error:
        raised = error.with_traceback(error.__traceback__.tb_next)
    sys.last_type, sys.last_value, sys.last_traceback = type(raised), raised, raised.__traceback__
    sys.last_exc = raised
    sys.excepthook(type(raised), raised, raised.__traceback__)
    sys.stdout.flush()
    if isinstance(raised, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)


if __name__ == "__main__":
    main()
