"""A trial has the recorded environment as far as kept, and nothing of the recording's."""

from compileboard.collectors.trials.patches import join_environment


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
