"""Run the steps of a Dockerfile's stage in a root file system, then the image's command.

`python -m tests.tools.deploy.dockerfile web /path/to/rootfs`, as root. The root file system stands
for the image that
the stage is FROM: a Debian with Python and pip, as debootstrap makes one. COPY, RUN, ENV, WORKDIR,
USER and the health check are the Dockerfile's own; ENTRYPOINT and CMD are started as its user and
stopped as Docker stops them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.observed import ROOT

HEALTH_TRIES = 60
STOP_S = 40


@dataclass
class Image:
    """What the steps so far made of an image."""

    root: Path
    folder: str = "/"
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def list_command(self, *words: str) -> list[str]:
        """Return a command that runs in the image as its user."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        values = [
            f"{name}={value}" for name, value in {"PATH": path, **pip, **self.environment}.items()
        ]
        script = f'cd {shlex.quote(self.folder)} && exec "$@"'
        chroot = ["chroot", f"--userspec={self.user}", str(self.root)]
        return [*chroot, "env", "-i", *values, "sh", "-c", script, "sh", *words]

    def find(self, path: str) -> Path:
        """Return where a path of the image is here."""
        return self.root / os.path.normpath(os.path.join(self.folder, path)).lstrip("/")


def list_steps(stage: str) -> list[tuple[str, str]]:
    """Return the instructions of a stage with their arguments, lines that go on joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    stages = re.split(r"^FROM \S+ AS (\w+)\n", text, flags=re.MULTILINE)
    bodies = dict(zip(stages[1::2], stages[2::2]))
    lines = [line.strip() for line in bodies[stage].splitlines()]
    steps = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in steps]


def run_step(image: Image, name: str, text: str) -> None:
    """Do what one instruction says.

    Raises: ValueError for an instruction that is not known here; CalledProcessError if a command
    fails.
    """
    if name == "WORKDIR":
        image.folder = os.path.join(image.folder, text)
        image.find(".").mkdir(parents=True, exist_ok=True)
    elif name == "COPY":
        *sources, target = text.split()
        for source in sources:
            _copy(ROOT / source, image.find(target), into=target.endswith("/"))
    elif name == "RUN":
        subprocess.run(image.list_command("sh", "-c", text), check=True)
    elif name == "ENV":
        image.environment |= dict(pair.split("=", 1) for pair in shlex.split(text))
    elif name == "USER":
        image.user = text
    elif name == "HEALTHCHECK":
        image.health = json.loads(text.partition("CMD ")[2])
    elif name in ("ENTRYPOINT", "CMD"):
        setattr(image, "entrypoint" if name == "ENTRYPOINT" else "command", json.loads(text))
    elif name not in ("VOLUME", "EXPOSE"):
        raise ValueError(f"{name} is an instruction that this does not know")


def _copy(source: Path, target: Path, *, into: bool) -> None:
    """Copy the files that git has: an image is built of a clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-s", str(source)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        path = line.partition("\t")[2]
        inner = Path(path).relative_to(source.relative_to(ROOT))
        goal = target / (source.name if into and source.is_file() else "") / inner
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, goal, follow_symlinks=False)


def check_server(image: Image) -> int:
    """Start what the image starts, ask its health check until it passes, and stop it; return the
    exit code.
    """
    server = subprocess.Popen(image.list_command(*image.entrypoint, *image.command))
    try:
        for _ in range(HEALTH_TRIES):
            if (
                subprocess.run(image.list_command(*image.health), capture_output=True).returncode
                == 0
            ):
                break
            time.sleep(0.5)
        else:
            raise TimeoutError("the health check never passed")
        print("the health check passes", flush=True)
        server.send_signal(signal.SIGTERM)
        return server.wait(timeout=STOP_S)
    finally:
        server.kill()
        server.wait()


def main() -> int:
    """Run the steps; return 0 where all of them, the health check and the stop worked."""
    stage, root = sys.argv[1:]
    image = Image(Path(root))
    for name, text in list_steps(stage):
        print(f"{name} {text}", flush=True)
        run_step(image, name, text)
    code = check_server(image)
    print(f"stopped by SIGTERM: exit code {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
