"""A trial has the recorded environment as far as kept, and nothing of the recording's."""

import json
import os
import sys
from contextlib import closing

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.terminal.run_summary import find_run
from compileboard.collectors.trials.patches import join_environment, load_program
from tests.unit.app.seed import START_US, add_run


def test_torchs_variables_are_as_recorded_and_the_others_as_they_are():
    current = {
        "PATH": "/bin",
        "TORCH_LOGS": "+dynamo",
        "PYTORCH_ALLOC_CONF": "now",
        "OMP_NUM_THREADS": "8",
    }
    recorded = {"TORCHDYNAMO_VERBOSE": "1", "PYTORCH_ALLOC_CONF": "then", "OMP_NUM_THREADS": "1"}
    assert join_environment(current, recorded) == {"PATH": "/bin", **recorded}


def test_what_belongs_to_a_recording_is_left_out():
    current = {
        "COMPILEBOARD_RUN_ID": "shared",
        "COMPILEBOARD_SPOOL": "/s",
        "COMPILEBOARD_HOME": "/home",
        "HF_TOKEN": "x",
    }
    recorded = {
        "TORCH_TRACE": "/t",
        "TORCHINDUCTOR_CACHE_DIR": "/c",
        "COMPILEBOARD_BENCH_PLAN": "p",
        "TORCH_KEY": "<withheld>",
    }
    assert join_environment(current, recorded) == {"COMPILEBOARD_HOME": "/home", "HF_TOKEN": "x"}


def test_latest_may_be_a_benchmark_as_in_show(tmp_path):
    database = str(tmp_path / "a.db")
    migrate(database)
    facts = json.dumps({"argv": [sys.executable, "x.py"]})
    with closing(open_writer(database)) as store:
        for number, source in enumerate(("live", "bench", "trial", "import")):
            started_us = START_US + number
            run = {"source": source, "cwd": str(tmp_path), "facts": facts}
            add_run(store, source, started_us=started_us, state="finished", **run)
        assert load_program(store, "latest", os.environ).run_id == "bench"
        # A patch is tried on one program.
        assert load_program(store, "latest", os.environ, sources=("live",)).run_id == "live"
        assert (find_run(store, "latest"), find_run(store, "latest", "live")) == ("import", "live")
