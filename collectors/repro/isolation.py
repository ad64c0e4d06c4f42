"""The driver process of a repro, which loads torch once and forks a child for each trial
(`trials`).

The command (without torch) calls `run_task("package.module:function", repro, options, …)`, which
starts the driver. The driver loads torch and the preloaded modules, then calls the function with a
`ReproTask`. Each `task.runner.run(function, *arguments)` is a trial: a forked child with its own
process group and limits. Results and progress are JSON.

The driver never initialises CUDA, which would prevent forking; trials do, and their exit frees the
device. Inductor is loaded on request (`ForkedRunner.load_inductor`), because loading it takes as
long as torch.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from compileboard.collectors.record.garbage import without_collections
from compileboard.collectors.record.memory import lift_memory_limit, limit_memory
from compileboard.collectors.record.program import (
    END_TIMEOUT_S,
    end_group,
    end_with,
    read_tail,
    signal_name,
    start_session,
)
from compileboard.collectors.record.spool import home
from compileboard.collectors.repro.preloads import (
    advise_script,
    describe_absent,
    describe_raised,
    list_preload,
    list_unset_settings,
    preload_modules,
)
from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.repro.trials import (
    MAX_TEXT_CHARS,
    ForkedRunner,
    TrialLimits,
    end_trials,
    is_memory_error,
)
from compileboard.start import shared_command

_PRELOADING = "preloading "


@dataclass
class ReproTask:
    repro: Repro
    options: dict[str, Any]
    runner: ForkedRunner
    folder: Path  # private; removed afterwards
    progress: Callable[[dict[str, Any]], None] = lambda _: None
    device: str | None = None  # requested instead of the recorded one

    @contextlib.contextmanager
    def deadline(self, what: str) -> Any:
        self.progress({"deadline_s": self.runner.limits.seconds, "what": what})
        try:
            yield
        finally:
            self.progress({"deadline_s": None})

    def load_compiler(self, level: str) -> None:
        compiler = self.repro.manifest.compiler
        if level == "aot" and compiler is not None:
            raise NotRunnable(
                f"its graph was given to the program's own compiler {compiler!a}, which only the "
                "program can call; `repro show --program` prints the graph"
            )
        is_used = level == "aot" or (self.repro.manifest.backend or "inductor") == "inductor"
        if is_used and not self.runner.has_inductor:
            self.progress({"stage": "loading inductor"})
            self.runner.load_inductor()


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
    """Run a task in a new driver process and return its result. An interrupt ends all its
    processes.

    `target` is a `package.module:function` of this project. The user's caches are not changed.
    Raises NotRunnable if the repro cannot run here, or the driver ends without a result.
    """
    with tempfile.TemporaryDirectory(
        prefix="compileboard-repro-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        job = {
            "target": target,
            "repro": repro,
            "options": dict(options or {}),
            "limits": limits,
            "preload": list_preload(repro.manifest.preload, preload),
            "device": device,
            "folders": [os.getcwd(), *repro.folders],
            "probes": str(home(environment) / "repro" / "processor"),
        }
        (folder / "job.pickle").write_bytes(pickle.dumps(job))
        reading, writing = Pipe(duplex=False)
        command = shared_command(
            f"{__name__}:start_driver", str(os.getpid()), name, str(writing.fileno())
        )
        try:
            with (folder / "driver.txt").open("wb") as output:
                driver = start_session(
                    command,
                    output,
                    env=driver_environment(environment, folder),
                    cwd=folder,
                    pass_fds=(writing.fileno(),),
                )
        except OSError as error:
            raise NotRunnable(f"no process can be started ({error})") from None
        finally:
            writing.close()
        stage = ""

        def note(message: dict[str, Any]) -> None:
            nonlocal stage
            stage = message.get("stage", stage)
            on_progress(message)

        try:
            result = _follow_driver(driver, reading, note)
        finally:
            reading.close()
            # Its trials end with it, by parent-death signal or the SIGTERM handler.
            end_group(driver)
        if result is None:
            raise NotRunnable(
                _describe_end(
                    driver.returncode, stage, read_tail(folder / "driver.txt", MAX_TEXT_CHARS)
                )
            )
        if "cannot" in result:
            raise NotRunnable(str(result["cannot"]))
        answer: dict[str, Any] = result["result"]
        return answer


def driver_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the driver's environment: private caches, one thread, no recording or debug dumps."""
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


# Restored after a repro's program has run, which may set the environment of the machine that wrote
# it.
PRIVATE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",  # its key does not include preloaded code
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # checking for a GPU must not initialise CUDA
}


def _follow_driver(
    driver: subprocess.Popen[bytes],
    reading: Connection,
    on_progress: Callable[[dict[str, Any]], None],
) -> dict[str, Any] | None:
    """Return a driver's result, or None if it ended without one."""
    deadline_s, what = math.inf, ""
    while True:
        if time.monotonic() > deadline_s:
            raise NotRunnable(f"{what} did not end within the time limit; --timeout allows more")
        if not reading.poll(0.2):
            on_progress({})
            continue
        try:
            message: dict[str, Any] = json.loads(reading.recv_bytes())
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(timeout=END_TIMEOUT_S)
            return None
        if "result" in message or "cannot" in message:
            return message
        if "deadline_s" in message:
            limit_s = message["deadline_s"]
            deadline_s = time.monotonic() + limit_s if limit_s else math.inf
            what = message.get("what", "")
        else:
            on_progress(message)


def _describe_end(code: int | None, stage: str, tail: str) -> str:
    last = next(
        (line.strip() for line in reversed(tail.splitlines()) if line.strip()), "it printed nothing"
    )
    ended = (
        f"was ended by {signal_name(-code)}"
        if code is not None and code < 0
        else f"ended with exit code {code}"
    )
    advice = (
        advise_script(stage.removeprefix(_PRELOADING).partition(":")[0])
        if stage.startswith(_PRELOADING)
        else ""
    )
    return (
        f"the process that loads the repro {ended} while {stage or 'starting'}: "
        f"{last[:300]}{advice}"
    )


_GIVEN: dict[str, str] = {}  # the private environment, to restore it


def start_driver(parent: str, folder_name: str, descriptor: str) -> None:
    end_with(int(parent))
    signal.signal(signal.SIGTERM, _end_on_signal)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel, folder = Connection(int(descriptor), readable=False), Path(folder_name)
    _GIVEN.update(
        {
            name: os.environ[name]
            for name in (*PRIVATE, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        }
    )

    def write(message: Mapping[str, Any]) -> None:
        channel.send_bytes(json.dumps(message, default=str).encode())

    message: dict[str, Any]
    try:
        message = {"result": _run_driver(folder, write)}
    except NotRunnable as error:
        message = {"cannot": str(error)}
    except ModuleNotFoundError as error:
        message = {"cannot": describe_absent(error)}
    except BaseException as error:  # raised by the repro's own code
        lift_memory_limit()
        what = (
            "needs more memory than it may take" if is_memory_error(error) else "cannot be loaded"
        )
        message = {"cannot": f"the repro {what}: {describe_raised(error)}"}
        traceback.print_exc()
    write(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run_driver(folder: Path, write: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    with (folder / "job.pickle").open("rb") as file:
        job = pickle.load(file)  # noqa: S301  our own, of this minute
    repro: Repro = job["repro"]
    sys.path[:0], sys.path[len(sys.path) :] = job["folders"][:1], job["folders"][1:]
    write({"stage": "loading torch"})
    module, _, name = job["target"].partition(":")
    device = job["device"] or _find_device(repro)
    with without_collections():
        prepare_torch(device)
        target = import_module(module)
    limit_memory(None if device.startswith("cuda") else job["limits"].memory_bytes)
    runner = ForkedRunner(job["limits"], folder, device, job["probes"])
    task = ReproTask(repro, job["options"], runner, folder, write, job["device"])
    needs_compiler = repro.manifest.kind in ("compile", "accuracy")
    if needs_compiler and repro.manifest.compiler is None:  # other graphs do not need it
        task.load_compiler(repro.manifest.level)
    if job["preload"]:
        write({"deadline_s": job["limits"].seconds, "what": "preloading"})
        preload_modules(
            job["preload"],
            [*repro.folders, *job["folders"]],
            repro.manifest.backend,
            lambda name: write({"stage": f"{_PRELOADING}{name}"}),
        )
        write({"deadline_s": None})
    for setting in list_unset_settings(repro):
        write({"note": _describe_unset(setting, repro)})
    return {**getattr(target, name)(task), "torch_version": str(import_module("torch").__version__)}


def _describe_unset(setting: str, repro: Repro) -> str:
    file = next(iter(repro.manifest.preload), "FILE")
    return (
        f"{setting} is left out: its value was an object of the program's; name the function that "
        f"sets it: --preload {file}:FUNCTION"
    )


def prepare_torch(device: str) -> None:
    """Load torch with one thread, without initialising the GPU so that this process can fork.

    Raises NotRunnable without torch or the device.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NotRunnable(
            "torch is not installed in this environment; run this where the program runs"
        ) from None
    torch.set_num_threads(1)
    if device.partition(":")[0] == "cuda":
        count = torch.cuda.device_count()
        if count <= int(device.partition(":")[2] or 0):
            raise NotRunnable(
                f"this repro needs {device}, and this machine has {count} GPUs; try --device cpu"
            )
        from torch._subclasses import fake_tensor

        if hasattr(fake_tensor, "init_gpu_context"):
            fake_tensor.init_gpu_context = lambda *_: (
                None
            )  # it would initialise CUDA for fake tensors
    import torch._dynamo


def restore_environment() -> None:
    """Restore the private caches and limits, which torch's scripts overwrite."""
    os.environ.update(_GIVEN)
    inductor = sys.modules.get("torch._inductor.config")
    for name, value in (
        ("compile_threads", 1),
        ("fx_graph_cache", False),
        ("fx_graph_remote_cache", False),
    ):
        if inductor is not None and hasattr(inductor, name):
            setattr(inductor, name, value)
    functorch = sys.modules.get("torch._functorch.config")
    if functorch is not None and hasattr(functorch, "enable_autograd_cache"):
        setattr(functorch, "enable_autograd_cache", False)  # noqa: B010  torch is untyped here


def _find_device(repro: Repro) -> str:
    devices = (
        entry.device
        for entry in (*repro.manifest.inputs, *repro.manifest.dynamo_inputs)
        if entry.device
    )
    return next((device for device in devices if not device.startswith(("cpu", "meta"))), "cpu")


def _end_on_signal(_number: int, _frame: object) -> NoReturn:
    end_trials()
    os._exit(1)
