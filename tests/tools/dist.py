"""Build the wheel and the sdist, and try both in clean environments of every Python: `make dist`.

`python -m tests.tools.dist 3.11 3.12` tries these and fails where one is missing; without names,
all that are found, and at least two. Needs Python's standard library, git and a package index. What
is built is what git tracks.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "dist"
MINORS = (10, 11, 12, 13, 14)
LEAST_TRIED = 2
SERVER_MINOR = 11  # the oldest Python 3 that the dashboard runs on
LOG = ROOT / "tests/data/trace/torch2.11-cuda-zoo_recompiles.log.xz"
LOG_RECOMPILES = "recompiles                           8"
# Where the tracked folders lie in the wheel.
INSTALLED = {
    "compileboard/": "compileboard/",
    "app/": "compileboard/app/",
    "collectors/": "compileboard/collectors/",
    "static/": "compileboard/app/static/",
    "templates/": "compileboard/app/templates/",
}
START_S = 60


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which a package was installed, and a folder to work in."""

    folder: Path

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self.folder / "bin" / program), *arguments]
        return run(*command, cwd=self.folder, env=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """Without settings of ours, and without the tree that `python -m` was started in."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("COMPILEBOARD_", "PYTHON"))
        }
        return kept | {"COMPILEBOARD_HOME": str(self.folder / "home")}


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Return what the command printed. Raises AssertionError with it if it failed."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def list_tracked() -> list[str]:
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    return [name for name in names if os.path.lexists(ROOT / name) and name]


def build(folder: Path) -> tuple[Path, Path]:
    """Build both from a copy of the tracked files, without what older builds left in the tree."""
    tree = folder / "tree"
    for name in list_tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    python = make_environment(sys.executable, folder / "build", "build", "setuptools>=77")
    options = ("-m", "build", "--no-isolation", "--outdir")
    python.run("python", *options, str(OUT), str(tree))
    (sdist,), (wheel,) = OUT.glob("*.tar.gz"), OUT.glob("*.whl")
    python.run("python", *options, str(folder / "direct"), "--wheel", str(tree))
    (direct,) = (folder / "direct").glob("*.whl")
    check_content(wheel, direct, sdist, str(folder))
    return wheel, sdist


def check_content(wheel: Path, direct: Path, sdist: Path, build_folder: str) -> None:
    """Check that the wheel of the sdist has each tracked file of the packages and nothing else."""
    expected = {
        installed + name.removeprefix(folder)
        for name in list_tracked()
        for folder, installed in INSTALLED.items()
        if name.startswith(folder) and not (ROOT / name).is_symlink()
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        content = b"\n".join(archive.read(name) for name in sorted(names))
    with zipfile.ZipFile(direct) as archive:
        assert names == set(archive.namelist()), "the sdist builds another wheel than the clone"
    found = {name for name in names if ".dist-info/" not in name}
    assert found == expected, f"missing: {expected - found}; not ours: {found - expected}"
    for path in (build_folder, str(ROOT), str(Path.home()) + "/"):
        assert path.encode() not in content, f"the wheel names a path of this machine: {path}"
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in sources)


def make_environment(python: str, folder: Path, *packages: str) -> Environment:
    run(python, "-m", "venv", "--clear", str(folder), cwd=ROOT)
    environment = Environment(folder)
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    environment.run("python", *install, *packages)
    return environment


def check_collector(environment: Environment) -> None:
    assert "Commands:" in environment.run("compileboard-collect", "--help")
    environment.run("compileboard-collect", "import", "--db", "runs.db", str(LOG))
    shown = environment.run("compileboard-collect", "show", "latest", "--db", "runs.db")
    assert LOG_RECOMPILES in shown, f"show counted something else:\n{shown}"
    installed = environment.run("python", "-m", "pip", "list", "--format=freeze")
    assert "\ntorch==" not in installed, "an extra brings torch"


def check_server(environment: Environment) -> None:
    """Serve a fresh database under gunicorn, then one with a run, and ask for pages."""
    assert "Commands:" in environment.run("compileboard", "--help")
    check_collector(environment)
    for database, path in (("fresh.db", "/readyz"), ("runs.db", "/runs")):
        command = [environment.folder / "bin/compileboard", "serve", "--port=0", "--db", database]
        with subprocess.Popen(
            command,
            cwd=environment.folder,
            env=environment.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as server:
            try:
                address = wait_for_address(server)
                for asked in (path, "/", "/static/css/app.css"):
                    wait_for_answer(address + asked)
            finally:
                server.send_signal(signal.SIGINT)
                printed = server.communicate(timeout=START_S)[0]
        assert server.returncode in (0, 130), f"serve ended with {server.returncode}:\n{printed}"


def wait_for_answer(address: str) -> None:
    """Ask until the server answers with content: it is not ready while its follower starts."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=START_S) as answer:
                assert answer.status == 200 and answer.read(), f"{address} is empty"
            return
        except urllib.error.HTTPError as error:
            assert time.monotonic() < deadline, f"{address}: {error}\n{error.read().decode()}"
            time.sleep(0.5)


def wait_for_address(server: subprocess.Popen[str]) -> str:
    lines = []
    for line in server.stdout or ():
        lines.append(line)
        address = next((word for word in line.split() if word.startswith("http://")), None)
        if address:
            return address.rstrip("/.")
    raise AssertionError("serve ended before it served:\n" + "".join(lines))


def find_python(minor: int) -> str | None:
    """Return Python 3.`minor` of the path, else the newest that pyenv has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(
        pyenv.glob(f"3.{minor}.*/bin/python"),
        key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()],
    )
    for python in (f"python3.{minor}", *map(str, reversed(installed))):
        probe = (python, "-c", "import sys; print(sys.version_info[1])")
        try:
            if run(*probe, cwd=ROOT).strip() == str(minor):
                return python
        except (OSError, AssertionError):
            continue  # not there, or a shim of pyenv's for a version that is not chosen
    return None


def try_package(
    python: str, folder: Path, package: str, check: Callable[[Environment], None]
) -> tuple[bool, str]:
    started = time.monotonic()
    try:
        check(make_environment(python, folder, package))
    except Exception as error:
        print(f"\n{folder.name}: {error!r}", file=sys.stderr)
        return False, "FAILED"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True, f"ok, {time.monotonic() - started:.0f} s"


def read_minors(names: Sequence[str]) -> tuple[int, ...]:
    known = {f"3.{minor}": minor for minor in MINORS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"dist: {unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(known[name] for name in names)


def list_gaps(found: Collection[int], asked: Sequence[int] = ()) -> tuple[str, bool]:
    """Return a sentence about the Pythons that were not tried, and whether enough were tried."""
    missing = [f"3.{minor}" for minor in asked or MINORS if minor not in found]
    if not missing:
        return "every Python asked for was tried" if asked else "every Python was tried", True
    verb = "was" if len(missing) == 1 else "were"
    sentence = f"Python {', '.join(missing)} {verb} not tried: not on this machine"
    if asked:
        return f"{sentence}, and asked for", False
    is_enough = len(found) >= LEAST_TRIED
    return (
        sentence
        if is_enough
        else f"{sentence}, and {LEAST_TRIED} are needed: install one, or name those to try"
    ), is_enough


def main(names: Sequence[str]) -> int:
    asked = read_minors(names)
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        wheel, sdist = build(folder)
        print(f"built {wheel.name} and {sdist.name} in {time.monotonic() - started:.0f} s")
        columns = (
            ("wheel, collector", f"{wheel}[collector]", check_collector, min(MINORS)),
            ("sdist, collector", f"{sdist}[collector]", check_collector, min(MINORS)),
            ("wheel, server", f"{wheel}[collector,server]", check_server, SERVER_MINOR),
        )
        pythons = {minor: find_python(minor) for minor in asked or MINORS}
        tried = {
            (minor, title): pool.submit(
                try_package, python, folder / f"{title} on 3.{minor}", package, check
            )
            for minor, python in pythons.items()
            if python
            for title, package, check, oldest in columns
            if minor >= oldest
        }
        titles = [title for title, *_ in columns]
        print("".join(f"{title:20}" for title in ("Python", *titles)).rstrip())
        for minor, python in pythons.items():
            row = [
                tried[minor, title].result()[1]
                if (minor, title) in tried
                else f"needs 3.{SERVER_MINOR}"
                for title in titles
            ]
            cells = row if python else ["not on this machine"]
            print("".join(f"{cell:20}" for cell in (f"3.{minor}", *cells)).rstrip(), flush=True)
    print(f"in {time.monotonic() - started:.0f} s; both are in {OUT.relative_to(ROOT)}")
    sentence, is_enough = list_gaps([minor for minor, python in pythons.items() if python], asked)
    print(sentence)
    return int(not is_enough or not all(future.result()[0] for future in tried.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
