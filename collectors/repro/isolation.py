"""Trials in processes of their own, with limits: what a repro does there (crash, hang, take all memory) ends there.

Three processes. The command (no torch) calls `run_task("package.module:function", repro, options, …)`. That starts the
*driver*, which loads torch and what is to be preloaded once, and calls the function with a `ReproTask`. The function
calls `task.trials.run(function, *arguments)` as often as needed: each is a *trial*, a forked child of its own process
group with one time and one memory limit, an own folder, and an `Outcome` that comes back through a pipe. What a trial
returns is pickled; what the task returns is JSON, as is what it passes to `task.progress`.

The driver never initialises CUDA, which could not be forked afterwards: a trial does, and its end frees the device
whatever it did to it. Where this process has initialised it all the same, a trial's arguments go, pickled, to a process
that was forked before (`needs_fork_server`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.runs.program import end_with, signal_name
from compileboard.collectors.spool.folders import home
from compileboard.start import shared_command

OK, RAISED, SIGNAL, TIMED_OUT, OUT_OF_MEMORY = "ok", "raised", "signal", "timed out", "out of memory"
DEFAULT_SECONDS = 120.0
MOST_TEXT_CHARS = 8_000  # of a message; head and tail of a longer one
_PRELOADING = "preloading "
_STEP_S = 0.05
_END_PATIENCE_S = 2.0
_NO_ROOM = ("alloc", "out of memory", "cannot allocate", "memory exhausted")


@dataclass(frozen=True)
class TrialLimits:
    """What one trial may take. `memory_bytes` comes on top of what torch itself has; on a GPU it bounds the GPU's."""

    seconds: float = DEFAULT_SECONDS
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    status: str  # OK | RAISED | SIGNAL | TIMED_OUT | OUT_OF_MEMORY
    value: Any = None  # of OK
    errors: tuple[tuple[str, str], ...] = ()  # of RAISED: type and message, the outermost first, then its causes
    traceback: str | None = None
    signal: str | None = None  # of SIGNAL: SIGSEGV
    seconds: float = 0.0
    output: str = ""  # the end of what it printed

    @property
    def error_type(self) -> str | None:
        """Return the type of the error that was raised."""
        return self.errors[0][0] if self.errors else None

    @property
    def message(self) -> str:
        """Describe the end in a line or more."""
        if self.errors:
            return f"{self.errors[0][0]}: {self.errors[0][1]}"
        return self.signal or self.status

    def check(self) -> None:
        """Pass on what a trial says of why it could not begin: an absent library, too much memory.

        Raises: NotRunnable.
        """
        refused = next((message for kind, message in self.errors if kind == NotRunnable.__name__), None)
        if refused is not None:
            raise NotRunnable(refused)


class Trials:
    """Trials of one driver, one after another."""

    def __init__(self, limits: TrialLimits, folder: Path, device: str = "cpu") -> None:
        self.limits = limits
        self.device = device
        self._folder = folder
        self._count = 0
        self._server: _ForkServer | None = None

    def needs_fork_server(self) -> None:
        """Fork what later trials are forked from: to be called before this process initialises CUDA."""
        if self._server is None:
            self._server = _ForkServer(self)

    def close(self) -> None:
        """End the process that later trials are forked from; it ends with this one at the latest."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def run(self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None) -> Outcome:
        """Call a function in a child of its own; return how that ended.

        With a fork server its arguments are pickled, else the child just has them.
        """
        if self._server is not None:
            return self._server.run(function, arguments, limits or self.limits)
        return self.fork(function, arguments, limits or self.limits)

    def fork(self, function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits) -> Outcome:
        """Run one trial as a fork of this process."""
        self._count += 1
        folder = self._folder / f"trial-{os.getpid()}-{self._count}"
        folder.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        started_s = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        driver, child = os.getpid(), os.fork()
        if child == 0:
            _be_trial(driver, reading, writing, folder, limits, self.device, function, arguments)
        os.close(writing)
        _CHILDREN.add(child)
        try:
            with contextlib.suppress(OSError):
                os.setpgid(child, child)  # the child does so too: whoever comes first
            body, status, is_late = _await(child, reading, started_s + limits.seconds)
        finally:
            os.close(reading)
            _end_trial(child)
        outcome = _understand(body, status, is_late, limits, time.monotonic() - started_s, _tail(folder / "output.txt"))
        shutil.rmtree(folder, ignore_errors=True)
        return outcome


@dataclass
class ReproTask:
    """What a task gets in the driver."""

    repro: Repro
    options: dict[str, Any]
    trials: Trials
    limits: TrialLimits
    folder: Path  # private; gone afterwards
    progress: Callable[[dict[str, Any]], None] = lambda _: None
    device: str | None = None  # that was asked for instead of the recorded one

    @contextlib.contextmanager
    def deadline(self, what: str) -> Any:
        """Bound work in the driver itself by the time limit: the command ends it from outside."""
        self.progress({"deadline_s": self.limits.seconds, "what": what})
        try:
            yield
        finally:
            self.progress({"deadline_s": None})


def run_task(
    target: str,
    repro: Repro,
    options: Mapping[str, Any] | None = None,
    *,
    limits: TrialLimits,
    preload: Sequence[str] = (),
    device: str | None = None,
    environment: Mapping[str, str],
    on_progress: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a task of a repro in a driver of its own and return its result; whatever interrupts us ends all of it.

    `target` is `package.module:function` of ours, called with a ReproTask. Nothing of the user's caches is touched.
    Raises: NotRunnable, in a sentence.
    """
    with tempfile.TemporaryDirectory(prefix="compileboard-repro-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job = {
            "target": target,
            "repro": repro,
            "options": dict(options or {}),
            "limits": limits,
            "preload": [*repro.manifest.preload, *preload],
            "device": device,
            "cwd": os.getcwd(),
            "probes": str(home(environment) / "repro" / "processor"),
        }
        (folder / "job.pickle").write_bytes(pickle.dumps(job))
        reading, writing = os.pipe()
        try:
            with (folder / "driver.txt").open("wb") as output:
                driver = subprocess.Popen(
                    shared_command(f"{__name__}:start_driver", str(os.getpid()), name, str(writing)),
                    env=driver_environment(environment, folder),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(writing,),
                )
        except OSError as error:
            os.close(reading)
            raise NotRunnable(f"no process can be started ({error})") from None
        finally:
            os.close(writing)
        stage = ""

        def note(message: dict[str, Any]) -> None:
            nonlocal stage
            stage = message.get("stage", stage)
            on_progress(message)

        try:
            result = _follow(driver, reading, note)
        finally:
            os.close(reading)
            _end_driver(driver)
        if result is None:
            raise NotRunnable(_describe_end(driver.returncode, stage, _tail(folder / "driver.txt")))
        if "cannot" in result:
            raise NotRunnable(str(result["cannot"]))
        answer: dict[str, Any] = result["result"]
        return answer


def driver_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment of a driver: own caches, one thread, nothing recorded, nothing that torch would dump."""
    dropped = (
        "COMPILEBOARD_",
        "TORCH_TRACE",
        "TORCH_LOGS",
        "TORCH_COMPILE_DEBUG",
        "TORCHDYNAMO_REPRO",
        "TORCHDYNAMO_EXPORT",
    )
    passed = {name: value for name, value in environment.items() if not name.startswith(dropped)}
    return {
        **passed,
        **PRIVATE,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


# Set again after a repro's program has run, which may hold the environment of the machine that wrote it.
PRIVATE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",  # it knows nothing of what is preloaded
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # to ask whether there is a GPU must not initialise CUDA
}


# --- in the command


def _follow(
    driver: subprocess.Popen[bytes], reading: int, on_progress: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """Read what the driver writes, a JSON text a line, until its result."""
    pending, deadline_s, what = b"", None, ""
    while True:
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise NotRunnable(f"{what} did not end within the time limit; --timeout allows more")
        if not select.select([reading], [], [], 0.2)[0]:
            on_progress({})
            continue
        chunk = os.read(reading, 1 << 16)
        if not chunk:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=_END_PATIENCE_S)
            return None
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "result" in message or "cannot" in message:
                return dict(message)
            if "deadline_s" in message:
                limit_s = message["deadline_s"]
                deadline_s, what = (time.monotonic() + limit_s if limit_s else None), message.get("what", "")
            else:
                on_progress(message)


def _end_driver(driver: subprocess.Popen[bytes]) -> None:
    """End the driver; its trials end with it, by their own signal or by SIGTERM's handler."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(driver.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(timeout=_END_PATIENCE_S)
    driver.wait()


def _describe_end(code: int | None, stage: str, tail: str) -> str:
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing")
    ended = f"was ended by {signal_name(-code)}" if code is not None and code < 0 else f"ended with exit code {code}"
    advice = _advise(stage.removeprefix(_PRELOADING).partition(":")[0]) if stage.startswith(_PRELOADING) else ""
    return f"the process that loads the repro {ended} while {stage or 'starting'}: {last[:300]}{advice}"


# --- in the driver

_CHILDREN: set[int] = set()
_GIVEN: dict[str, str] = {}  # the private environment, to be set again


def start_driver(parent: str, folder_name: str, descriptor: str) -> None:
    """Run the job of a folder and write its result; called in a process of its own."""
    end_with(int(parent))
    signal.signal(signal.SIGTERM, _end_on_signal)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel, folder = int(descriptor), Path(folder_name)
    _GIVEN.update({name: os.environ[name] for name in (*PRIVATE, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")})

    def write(message: Mapping[str, Any]) -> None:
        body = json.dumps(message, default=str).encode() + b"\n"
        while body:
            body = body[os.write(channel, body) :]

    message: dict[str, Any]
    try:
        message = {"result": _drive(folder, write)}
    except NotRunnable as error:
        message = {"cannot": str(error)}
    except ModuleNotFoundError as error:
        message = {"cannot": describe_absent(error)}
    except BaseException as error:  # whatever the repro's own code raises
        message = {"cannot": f"the repro cannot be loaded: {_describe(error)}"}
        traceback.print_exc()
    write(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _drive(folder: Path, write: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    with (folder / "job.pickle").open("rb") as file:
        job = pickle.load(file)  # noqa: S301  our own, of this minute
    sys.path.insert(0, job["cwd"])
    repro: Repro = job["repro"]
    write({"stage": "loading torch"})
    device = job["device"] or _find_device(repro)
    prepare_torch(device)
    if job["preload"]:
        write({"deadline_s": job["limits"].seconds, "what": "preloading"})
        preload_modules(job["preload"], job["cwd"], lambda name: write({"stage": f"{_PRELOADING}{name}"}))
        write({"deadline_s": None})
    if device == "cpu":
        write({"stage": "asking what the processor can do"})
        _probe_processor(job["probes"])
    module, _, name = job["target"].partition(":")
    trials = Trials(job["limits"], folder, device)
    task = ReproTask(repro, job["options"], trials, job["limits"], folder, write, job["device"])
    answer: dict[str, Any] = getattr(import_module(module), name)(task)
    return answer


def prepare_torch(device: str) -> None:
    """Load torch with one thread; on a GPU, so that this process can be forked.

    Raises: NotRunnable without torch, or without the device.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NotRunnable("torch is not installed in this environment; run this where the program runs") from None
    torch.set_num_threads(1)
    if device.partition(":")[0] == "cuda":
        count = torch.cuda.device_count()
        if count <= int(device.partition(":")[2] or 0):
            raise NotRunnable(f"this repro needs {device}, and this machine has {count} GPUs; try --device cpu")
        from torch._subclasses import fake_tensor

        if hasattr(fake_tensor, "init_gpu_context"):
            fake_tensor.init_gpu_context = lambda *_: None  # it would initialise CUDA for fake tensors
    import torch._dynamo
    import torch._inductor.compile_fx


def _probe_processor(folder: str) -> None:
    """Ask inductor what the processor can do, for all trials: 11 s in an empty cache folder, 1 s in this one."""
    own = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    with contextlib.suppress(Exception):  # else each trial asks
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
        finally:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = own


def preload_modules(names: Sequence[str], cwd: str, report: Callable[[str], None] = lambda _: None) -> None:
    """Import what registers operations, lowerings, backends: modules or files; `name:function` calls a function too.

    Nothing is compiled meanwhile: a script that does its work when it is imported would fail here as it did.
    Raises: NotRunnable.
    """
    dynamo = import_module("torch._dynamo")
    modules: dict[str, Any] = {}  # a file that is named twice is run once
    for name in dict.fromkeys(names):
        report(name)
        source, _, function = name.partition(":")
        key = os.path.realpath(os.path.join(cwd, source)) if source.endswith(".py") else source
        try:
            if key not in modules:
                with dynamo.config.patch(disable=True):
                    modules[key] = _load_file(source, cwd) if source.endswith(".py") else import_module(source)
            if function:
                getattr(modules[key], function)()
        except ModuleNotFoundError as error:
            raise NotRunnable(f"cannot preload {name}: {describe_absent(error)}") from None
        except NotRunnable:
            raise
        except (Exception, SystemExit) as error:
            raise NotRunnable(f"cannot preload {name}: {_describe(error)}{_advise(source)}") from None


def _advise(name: str) -> str:
    is_script = name.endswith(".py")
    return "; what registers nothing belongs below `if __name__ == '__main__':`" if is_script else ""


def _load_file(name: str, cwd: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(cwd, name)
    if not path.is_file():
        raise NotRunnable(f"cannot preload {name}: there is no such file in {cwd}; give its place with --preload")
    sys.path.insert(1, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def restore_environment() -> None:
    """Set the private caches and limits again: a program of torch's sets those of the machine that wrote it."""
    os.environ.update(_GIVEN)
    inductor = sys.modules.get("torch._inductor.config")
    for name, value in (("compile_threads", 1), ("fx_graph_cache", False), ("fx_graph_remote_cache", False)):
        if inductor is not None and hasattr(inductor, name):
            setattr(inductor, name, value)
    functorch = sys.modules.get("torch._functorch.config")
    if functorch is not None and hasattr(functorch, "enable_autograd_cache"):
        setattr(functorch, "enable_autograd_cache", False)  # noqa: B010  torch is untyped here


def _find_device(repro: Repro) -> str:
    devices = (entry.device for entry in (*repro.manifest.inputs, *repro.manifest.dynamo_inputs) if entry.device)
    return next((device for device in devices if not device.startswith(("cpu", "meta"))), "cpu")


def _end_on_signal(_number: int, _frame: object) -> NoReturn:
    for child in list(_CHILDREN):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    os._exit(1)


def _await(child: int, reading: int, deadline_s: float) -> tuple[bytes | None, int | None, bool]:
    """Wait for a trial's message or its end: the message, how it ended, and whether its time ran out."""
    body, status = b"", None
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None, None, True
        if select.select([reading], [], [], min(left_s, _STEP_S))[0]:
            chunk = os.read(reading, 1 << 20)
            body += chunk
            if len(body) >= 8 and len(body) - 8 >= struct.unpack("<q", body[:8])[0]:
                return body[8:], None, False
            if not chunk:
                _, status = os.waitpid(child, 0)
                _CHILDREN.discard(child)
                return None, status, False
        elif (
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            and not select.select([reading], [], [], 0)[0]
        ):
            _, status = os.waitpid(child, 0)  # what it started may still have the pipe
            _CHILDREN.discard(child)
            return None, status, False


def _end_trial(child: int) -> None:
    """End a trial and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if child in _CHILDREN:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        _CHILDREN.discard(child)


def _understand(
    body: bytes | None, status: int | None, is_late: bool, limits: TrialLimits, seconds: float, output: str
) -> Outcome:
    if is_late:
        return Outcome(TIMED_OUT, seconds=seconds, output=output)
    if body is not None:
        outcome: Outcome = pickle.loads(body)  # noqa: S301  of our own child
        return Outcome(outcome.status, outcome.value, outcome.errors, outcome.traceback, None, seconds, output)
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        is_full = number == signal.SIGKILL or ("bad_alloc" in output and limits.memory_bytes is not None)
        return Outcome(OUT_OF_MEMORY if is_full else SIGNAL, signal=signal_name(number), seconds=seconds, output=output)
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return Outcome(RAISED, errors=(("SystemExit", f"it ended with exit code {code}"),), seconds=seconds, output=output)


# --- in a trial


def _be_trial(
    driver: int,
    reading: int,
    writing: int,
    folder: Path,
    limits: TrialLimits,
    device: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> NoReturn:
    try:
        os.setpgid(0, 0)
        end_with(driver)
        os.close(reading)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _CHILDREN.clear()
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        outcome = _call(function, arguments, limits, device)
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        try:
            body = pickle.dumps(outcome)
        except Exception as error:
            body = pickle.dumps(Outcome(RAISED, errors=(("PicklingError", f"its result cannot be sent: {error}"),)))
        message = struct.pack("<q", len(body)) + body
        while message:
            message = message[os.write(writing, message) :]
    finally:
        os._exit(0)


def _call(function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits, device: str) -> Outcome:
    try:
        _limit_memory(limits, device)
        return Outcome(OK, function(*arguments))
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)  # room to describe it
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        status = OUT_OF_MEMORY if _is_memory_error(error) else RAISED
        return Outcome(status, errors=list_errors(error), traceback=shorten(text))


def _limit_memory(limits: TrialLimits, device: str) -> None:
    if limits.memory_bytes is None:
        return
    if device.partition(":")[0] == "cuda":  # its addresses are far more than its memory: RLIMIT_AS would refuse them
        import torch

        index = int(device.partition(":")[2] or 0)
        total_bytes = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limits.memory_bytes / total_bytes), index)
        return
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = used_bytes + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def list_errors(error: BaseException) -> tuple[tuple[str, str], ...]:
    """Return an error's type and message, then those that it came of: what torch wraps others in says little."""
    errors: list[tuple[str, str]] = []
    pending: list[BaseException | None] = [error]
    while pending and len(errors) < 10:
        current = pending.pop(0)
        if current is None:
            continue
        entry = (type(current).__name__, shorten(str(current)))
        if entry not in errors:
            errors.append(entry)
            pending += [getattr(current, "inner_exception", None), current.__cause__, current.__context__]
    return tuple(errors)


def shorten(text: str) -> str:
    """Return the head and tail of a long text."""
    half = MOST_TEXT_CHARS // 2
    return text if len(text) <= MOST_TEXT_CHARS else f"{text[:half]}\n…\n{text[-half:]}"


def _is_memory_error(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, (RuntimeError, OSError)) and "memory" in text and any(word in text for word in _NO_ROOM)


def _describe(error: BaseException) -> str:
    line = next((part.strip() for part in str(error).splitlines() if part.strip()), "")
    return f"{type(error).__name__}: {line[:300]}".removesuffix(": ")


def describe_absent(error: ModuleNotFoundError) -> str:
    """Describe a library that a repro needs and that is not here."""
    return f"this repro needs {error.name}, which is not installed here; install it, or name its file with --preload"


def _tail(path: Path, most_bytes: int = MOST_TEXT_CHARS) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@dataclass
class _ForkServer:
    """A process that was forked before CUDA was initialised, from which trials are forked."""

    trials: Trials
    _descriptor: int = field(init=False)
    _pid: int = field(init=False)

    def __post_init__(self) -> None:
        import socket

        ours, theirs = socket.socketpair()
        owner = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            with contextlib.suppress(BaseException):
                end_with(owner)
                _serve(theirs.detach(), self.trials)
            os._exit(0)
        theirs.close()
        self._descriptor = ours.detach()

    def close(self) -> None:
        """End it: it reads the end of its requests."""
        os.close(self._descriptor)
        os.waitpid(self._pid, 0)

    def run(self, function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits) -> Outcome:
        """Have a trial forked there."""
        _send(self._descriptor, _dump((function, arguments, limits)))
        body = _receive(self._descriptor)
        if body is None:
            raise NotRunnable("the process that starts trials has ended")
        outcome: Outcome = pickle.loads(body)  # noqa: S301  of our own child
        return outcome


def _serve(descriptor: int, trials: Trials) -> None:
    while (body := _receive(descriptor)) is not None:
        outcome = trials.fork(_call_pickled, (body,), _load(body)[2])
        _send(descriptor, pickle.dumps(outcome))


def _call_pickled(body: bytes) -> Any:
    function, arguments, _ = _load(body)
    return function(*arguments)


def _dump(value: Any) -> bytes:
    import io

    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer)  # keeps what shares storage
    return buffer.getvalue()


def _load(body: bytes) -> Any:
    import io

    import torch

    return torch.load(io.BytesIO(body), weights_only=False, map_location="cpu")


def _send(descriptor: int, body: bytes) -> None:
    message = struct.pack("<q", len(body)) + body
    while message:
        message = message[os.write(descriptor, message) :]


def _receive(descriptor: int) -> bytes | None:
    head = _read_exactly(descriptor, 8)
    return _read_exactly(descriptor, struct.unpack("<q", head)[0]) if head is not None else None


def _read_exactly(descriptor: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        chunk = os.read(descriptor, min(1 << 20, count - len(parts)))
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)
