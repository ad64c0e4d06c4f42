"""Let a program of a test be a fork of a process that has imported torch: 2 s less each.

`serve` is that process. `become_fork` runs as a test's Python starts: if it is to run a file that
imports torch, or one of our own workers that does, it asks for a fork, which gets its arguments,
environment, folder and open files, passes on signals, and ends as the fork ended. What torch reads
from the environment while it is imported makes a start of its own, as the mark `real_start` does.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import types

FORKS = "QUICK_FORKS"  # the socket's path
READ_BY_TORCH = ("TORCH", "PYTORCH", "OMP_", "MKL_", "KMP_", "TRITON", "CUDA", "LD_")
READ_LATE = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
# Ours that import torch; the first argument of most is the process that they end with.
ANSWERERS = (
    "compileboard.collectors.bench.suites.user:main",
    "compileboard.collectors.bench.plan.preflight:answer",
)
WORKERS = (
    *ANSWERERS,
    "compileboard.collectors.bench.worker.child:serve",
    "compileboard.collectors.bench.worker.child:start",
    "compileboard.collectors.bench.distributed.rank:start",
    "compileboard.collectors.repro.isolation:start_driver",
)
WORKER_AT, PARENT_AT = 4, 5  # in `python -c CODE PACKAGE WORKER PARENT …`
PR_SET_PDEATHSIG = 1
MAX_FILES = 16
MAX_OTHERS = 4
others = {}
open_until_the_end = []
BEYOND_ALL = 200  # no file that is passed has such a number
OWN_START = ("COMPILEBOARD_TRIAL", "COMPILEBOARD_STACK_ROOM")
LONGEST = 1 << 20
MAX_WAIT_S = 10


def read_at_import(environment):
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_BY_TORCH) and name not in READ_LATE
    }


def is_worker(words):
    return len(words) > PARENT_AT and words[1] == "-c" and words[WORKER_AT] in WORKERS


def has_parent(words):
    return is_worker(words) and words[WORKER_AT] not in ANSWERERS


def imports_torch(words):
    if len(words) < 2 or not words[1].endswith(".py"):
        return is_worker(words)
    with open(words[1], encoding="utf-8") as file:
        return "import torch" in file.read()


def list_passed_files():
    """List the open files that this process was given: Python's own are not inheritable."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    passed = []
    for number in sorted(numbers):
        with contextlib.suppress(OSError):  # the folder's own is closed by now
            if number < 3 or os.get_inheritable(number):
                passed.append(number)
    return passed


def ask(path, request):
    server = socket.socket(socket.AF_UNIX)
    while True:
        try:
            server.connect(path)
            break
        except FileNotFoundError:  # it is importing torch, unless it has ended
            if os.getppid() == 1 or not os.path.isdir(os.path.dirname(path)):
                raise
            time.sleep(0.05)
    body = json.dumps(request).encode()
    socket.send_fds(server, [len(body).to_bytes(8, "big")], request["files"])
    server.sendall(body)
    return server.makefile("rb")


def become_fork():
    """Return where this process has to run its program itself."""
    path, words = os.environ[FORKS], sys.orig_argv
    if any(map(os.environ.get, OWN_START)):
        return
    with contextlib.suppress(OSError):
        if not imports_torch(words):
            return
        is_ours = is_worker(words)
        if has_parent(words):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != int(words[PARENT_AT]):
                os._exit(1)
        files = list_passed_files()
        request = {
            "words": words,
            "environment": dict(os.environ),
            "cwd": os.getcwd(),
            "umask": os.umask(0o022),
            "files": files,
        }
        os.umask(request["umask"])
        answers = ask(path, request)
        answer = answers.readline()
        if answer.startswith(b"/"):  # a process that imported torch in this environment
            answers = ask(answer.decode().strip(), request)
            answer = answers.readline()
        pid = int(answer or 0)
        if not pid:
            return
        send = os.killpg if is_ours else os.kill
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda n, _frame: send(pid, n))
        status = int(answers.readline() or 256)
        if status < 0:
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):
                signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status)


def serve(path):
    """Answer until nobody has the other end of standard input open: then remove the folder."""
    import_torch()
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
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
            os._exit(0)
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
        end_finished(running, ready)
        if listener in ready:
            asker, _ = listener.accept()
            asker.settimeout(MAX_WAIT_S)
            try:
                request, streams = receive(asker)
            except (OSError, ValueError):  # killed as it asked
                asker.close()
                continue
            wanted = read_at_import(request["environment"])
            if wanted != imported:
                other = is_worker(request["words"]) and serve_beside(path, wanted)
                answer(asker, other or 0)
                asker.close()
            elif (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (listener, asker, *running.values()):
                    one.close()
                os.close(ended)
                os.close(wake)
                if is_worker(request["words"]):
                    os.setsid()
                take_files(streams, request["files"])
                return request
            else:
                running[pid] = asker
                answer(asker, pid)
            for stream in streams:
                os.close(stream)


def import_torch():
    os.environ["TORCH_WARM_POOL"] = "0"  # older torch starts workers, which the forks would share
    import torch
    import torch._dynamo.testing
    import torch._inductor.compile_fx

    del os.environ["TORCH_WARM_POOL"]
    for name in list_imports_of_compiling(torch):
        with contextlib.suppress(ImportError):  # the code that was generated
            __import__(name)
    torch._inductor.codecache.torch_key()  # of all its source
    gc.collect()
    gc.freeze()  # a fork searches, and copies, what it makes itself alone
    gc.unfreeze = pretend_to_unfreeze


def pretend_to_unfreeze():
    gc.get_freeze_count = int


def list_imports_of_compiling(torch):
    """Compile in a fork; return what torch imported to do so."""
    before = set(sys.modules)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
                layer = torch.nn.Linear(4, 4, bias=False)  # needs no C++ compiler
                torch.compile(layer)(torch.ones(2, 4)).sum().backward()
                names = [name for name in sys.modules if name not in before]
                os.write(writing, " ".join(names).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading, encoding="utf-8") as file:
        return file.read().split()


def end_finished(running, ready):
    """Answer the askers whose forks have ended; end the forks whose askers have."""
    for pid, asker in list(running.items()):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            answer(asker, os.waitstatus_to_exitcode(status))
            running.pop(pid).close()
        elif asker in ready:  # it was killed
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
            running.pop(pid).close()
            os.waitpid(pid, 0)


def serve_beside(path, variables):
    """Start a process like this one that imports torch with other variables; return its path."""
    beside = f"{path}.{len(others)}"
    key = json.dumps(variables, sort_keys=True)
    if key in others:
        return others[key]
    if len(others) == MAX_OTHERS:
        return None
    own = {name: value for name, value in os.environ.items() if not name.startswith(READ_BY_TORCH)}
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.dup2(reading, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execve(sys.executable, [sys.executable, __file__, beside], {**own, **variables})
    os.close(reading)
    others[key] = beside
    open_until_the_end.append(writing)
    return beside


def take_files(received, numbers):
    """Give received files the numbers that they have in the process that passed them."""
    beyond = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, BEYOND_ALL) for number in received]
    for number in received:
        os.close(number)
    for number, copy in zip(numbers, beyond):
        os.dup2(copy, number)
        os.close(copy)


def receive(asker):
    head, streams, _, _ = socket.recv_fds(asker, 8, MAX_FILES)
    body = b""
    while len(body) < int.from_bytes(head, "big"):
        more = asker.recv(LONGEST)
        if not more:
            break
        body += more
    return json.loads(body), streams


def answer(asker, what):
    with contextlib.suppress(OSError):  # killed as it waited
        asker.sendall(f"{what}\n".encode())


def prepare(request):
    """Make this process look as if it had been started; return its program."""
    words = request["words"]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in sys.path[1:] if entry not in given]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    sys.orig_argv, sys.argv = words, words[1:]
    wanted = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*wanted, *rest]
    sys.path_importer_cache.clear()
    sys.modules.pop("sitecustomize", None)
    forks = os.environ.pop(FORKS)
    with contextlib.suppress(ImportError):
        import sitecustomize  # noqa: F401  the hooks' own, where it is observed
    os.environ[FORKS] = forks
    module = types.ModuleType("__main__")
    module.__builtins__ = __builtins__
    sys.modules["__main__"] = module
    if is_worker(words):
        sys.argv = ["-c", *words[3:]]
        if has_parent(words):
            sys.argv[PARENT_AT - 2] = str(os.getppid())
        sys.path.insert(0, "")
        return compile(words[2], "<string>", "exec"), module.__dict__
    path = words[1]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    module.__file__ = path
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
