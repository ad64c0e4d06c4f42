"""A machine that only pushes needs nothing but Python and torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.observed import ROOT
from tests.unit.push.push_server import push_server

# In each process of the test: whatever is not Python's own cannot be imported.
BLOCK = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        ours = ("compileboard", "sitecustomize", "usercustomize")
        if top not in sys.stdlib_module_names and top not in ours:
            raise ModuleNotFoundError(f"{name} is not of the standard library", name=name)
sys.meta_path.insert(0, Finder())
"""
PROGRAM = """
import os, sys, time
from pathlib import Path
import compileboard.collectors.api
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.record.sidecar import spawn_sidecar
from compileboard.collectors.record.facts import describe_run, make_spool, spool_folder
config = RunConfig(name="plain", server=sys.argv[1])
manifest = describe_run(config, {}, argv=["x"], cwd="/", code_folder="/")
folder = spool_folder(manifest, os.environ)
make_spool(folder, manifest)
facts = {"run_id": manifest.run_id, "pid": os.getpid()}
spool = Spool(str(folder), manifest.run_id, "", lambda: facts)
spool.write("cudagraph_skip", {"reason": "cpu device"}, context=[None, 0, 0, 0, None])
spawn_sidecar(folder)
manifest.end("finished", time.time_ns() // 1000).write(folder)
spool.close()
while folder.exists() or list((folder.parent.parent / "outbox").glob("*/*")):
    time.sleep(0.05)
print(manifest.run_id)
"""


def test_recorder_and_sender_need_the_standard_library_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("COMPILEBOARD_")
    }
    environ |= {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "COMPILEBOARD_HOME": str(tmp_path / "home"),
    }
    with push_server() as server:
        command = [sys.executable, "-c", PROGRAM, server.address]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        events, marks = server.read(done.stdout.strip())
    assert [event.KIND for event in events] == [
        "run_started",
        "process_started",
        "cudagraph_skipped",
        "run_ended",
    ]
    assert [mark.MARK for mark in marks] == ["beat", "end"]
