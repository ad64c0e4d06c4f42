"""`repro`: what each command prints and ends with, and what it refuses in one sentence."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.contract.repros import ReproManifest
from compileboard.collectors.record.own_repros import find_other_writer
from compileboard.collectors.repro.describing import describe_rerun
from compileboard.collectors.repro.loading import load_path
from compileboard.collectors.repro.repro import NotRunnable, Repro, advise_preload
from compileboard.collectors.terminal.values import read_size

RECORDED = (
    Path(__file__).parents[2] / "data" / "repros" / "dynamic_pad.txt"
)  # torch's script of planted.dynamic_only
PLANTED = Path(__file__).parents[2] / "programs" / "planted.py"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a script that torch wrote."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(RECORDED, tmp_path / "repro.py")
    return tmp_path


def _id_of(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["repro", "list", "--db", "a.db", "--json"]) == 0
    return str(json.loads(capsys.readouterr().out)[0]["id"])


def test_script_is_stored_listed_shown_and_known_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", "import", "repro.py", "--db", "a.db"]) == 0
    assert "stored as repro" in capsys.readouterr().err
    assert main(["repro", "import", "repro.py", "--db", "a.db"]) == 0
    assert "known as repro" in capsys.readouterr().err
    number = _id_of(capsys)
    assert main(["repro", "show", number[:6], "--db", "a.db"]) == 0
    shown = capsys.readouterr().out
    assert "25 operations, level aot; symbols s77 = 19" in shown and "s77×32" in shown
    assert "was not recorded by you on this machine. It runs only with --trust." in shown


@pytest.mark.parametrize("name", ["sent.py", "sent.tar.gz"])
def test_exported_file_is_loaded_as_what_was_exported(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["repro", "export", "repro.py", "-o", name]) == 0
    assert f"wrote {name}" in capsys.readouterr().err
    original, sent = load_path(folder / "repro.py"), load_path(folder / name)
    assert (sent.manifest, sent.program) == (original.manifest, original.program)
    assert original.distrust is None and sent.distrust is not None
    assert main(["repro", "export", "repro.py", "-o", name]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main(["repro", "export", name, "-o", name, "--force"]) == 0


def test_a_file_that_cannot_be_written_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", "export", "repro.py", "-o", "absent/sent.py"]) == 2
    assert (
        capsys.readouterr().err
        == "compileboard: 'absent/sent.py' cannot be written: No such file or directory\n"
    )


def test_what_was_made_to_travel_runs_only_with_trust(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["repro", "export", "repro.py", "-o", "sent.tar.gz"])
    main(["repro", "import", "repro.py", "--db", "a.db"])
    for name in ("sent.tar.gz", _id_of(capsys)):
        for command in (["run"], ["check"], ["get-args", "-o", "x.pt"]):
            assert main(["repro", command[0], name, *command[1:], "--db", "a.db"]) == 2
            message = capsys.readouterr().err
            assert message.count("\n") == 1 and "then say --trust" in message


@pytest.mark.parametrize(("mode", "others"), [(0o666, "every user"), (0o664, "its group")])
def test_what_others_can_write_runs_only_with_trust(
    folder: Path, mode: int, others: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = folder / "repro.py"
    (folder / "link.py").symlink_to(script)
    for path in (script, folder):
        before = path.stat().st_mode & 0o777
        path.chmod(mode | (before & 0o111))
        for name in ("repro.py", "link.py", str(folder)):
            assert main(["repro", "run", name]) == 2
            assert (
                f"can be written by {others}, and to run it is to run its code"
                in capsys.readouterr().err
            )
        path.chmod(before)


def test_a_link_in_a_folder_that_others_can_write_is_not_ones_own(folder: Path) -> None:
    shared, script = folder / "shared", folder / "repro.py"
    shared.mkdir()
    (shared / "link.py").symlink_to(script)
    shared.chmod(0o1777)  # as /tmp: others can change no file of mine
    assert find_other_writer(shared / "link.py") is None
    shared.chmod(0o777)
    assert find_other_writer(script) is None and "every user" in str(
        find_other_writer(shared / "link.py")
    )


@pytest.mark.torch
def test_run_says_whether_it_fails_here_and_keeps_the_answer(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = ["--preload", f"{PLANTED}:dynamic_only", "--timeout", "200"]
    assert main(["repro", "run", "repro.py", *planted]) == 0
    assert (
        "Fails here: NotImplementedError: planted: padding of a dynamic size."
        in capsys.readouterr().out
    )
    main(["repro", "import", "repro.py", "--db", "a.db"])
    number = _id_of(capsys)
    assert main(["repro", "run", number, "--db", "a.db", "--trust", "--json", *planted]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["operation"]) == ("same", "aten.constant_pad_nd.default")
    for name in ("repro.py", number):
        assert main(["repro", "show", name, "--db", "a.db"]) == 0
        assert "run: same, aten.constant_pad_nd.default" in capsys.readouterr().out
    with closing(sqlite3.connect("a.db")) as connection:
        assert connection.execute("select command, status from repro_results").fetchall() == [
            ("run", "same")
        ]


@pytest.mark.nightly
@pytest.mark.torch
def test_another_failure_than_the_recorded_one_is_not_reproduced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RECORDED.read_text().replace("check_str=None)\n", "check_str='another error')\n", 1)
    (folder / "other.py").write_text(text)
    assert main(["repro", "run", "other.py", "--preload", f"{PLANTED}:dynamic_only"]) == 1
    assert "Fails here in another way: NotImplementedError" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.torch
def test_script_that_never_ends_is_ended_and_counts_as_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "endless.py").write_text(
        "import time\nwhile True:\n    time.sleep(1)\n" + RECORDED.read_text()
    )
    assert main(["repro", "run", "endless.py", "--timeout", "2"]) == 2
    assert (
        "Not answered: it reached the time limit; --timeout and --memory allow more."
        in capsys.readouterr().out
    )


@pytest.mark.nightly
@pytest.mark.torch
def test_inputs_are_written_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    assert main(["repro", "get-args", "repro.py", "-o", "absent/inputs.pt"]) == 2
    assert "absent/inputs.pt' cannot be written: Parent directory" in capsys.readouterr().err
    assert main(["repro", "get-args", "repro.py", "-o", "inputs.pt"]) == 0
    assert "arg2_1  float32  19×32  cpu, drawn" in capsys.readouterr().out
    inputs = torch.load("inputs.pt")
    assert (
        list(inputs) == ["arg0_1", "arg1_1", "arg2_1", "arg3_1", "arg4_1"]
        and inputs["arg1_1"] == 19
    )


def test_an_archive_of_a_folder_that_torch_left_is_its_script(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    debug = folder / "model__0_inference_0.0"
    debug.mkdir()
    (debug / "output_code.py").write_text("async_compile = 1\n")
    shutil.move(folder / "repro.py", debug / "fx_graph_runnable.py")
    with tarfile.open(folder / "debug.tar.gz", "w:gz") as archive:  # as torch's `trace.upload_tar`
        archive.add(debug, arcname=debug.name)
    packed, alone = load_path(folder / "debug.tar.gz"), load_path(debug)
    assert (packed.manifest, packed.program, alone.distrust) == (
        alone.manifest,
        alone.program,
        None,
    )
    assert str(packed.distrust).endswith("debug.tar.gz' is an archive, which was made to travel")
    with tarfile.open(folder / "two.tar.gz", "w:gz") as archive:
        for name in ("a", "b"):
            archive.add(debug, arcname=name)
    assert main(["repro", "show", "two.tar.gz"]) == 2
    assert (
        "has 2 repros; unpack it and name one of them: 'a/fx_graph_runnable.py', 'b/"
        in capsys.readouterr().err
    )


def _hostile_archive() -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../program.py"), io.BytesIO())
    return body.getvalue()


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("note.txt", b"hello", "has no `class Repro`"),
        ("note.py", b"class Repro(", "not valid Python"),
        ("binary.py", bytes(range(256)), "is not text"),
        (
            "bad.tar.gz",
            _hostile_archive(),
            "this archive has '../../program.py'; expected manifest.json",
        ),
        ("cut.tar.gz", b"\x1f\x8b\x08", "this archive cannot be read"),
        ("new\nline\x1b[31m.py", b"", "has no `class Repro`"),
    ],
    ids=[
        "words",
        "cut-off",
        "bytes",
        "hostile-archive",
        "cut-archive",
        "hostile-name",
    ],  # an archive has the time in it
)
def test_file_that_is_no_repro_is_refused_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, body: bytes, sentence: str
) -> None:
    (folder / name).write_bytes(body)
    for command in ("show", "run"):
        assert main(["repro", command, name]) == 2
        message = capsys.readouterr().err
        assert sentence in message and message.count("\n") == 1 and "\x1b" not in message


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent.py", "there is no file 'absent.py'"),
        ("zzzz", "is not the id of a repro"),
        ("0123", "no repro of this database begins with"),
        ("empty", "'empty' has no repro: expected minifier_launcher.py"),
        ("pipe", "is not a regular file"),
    ],
)
def test_name_of_nothing_is_refused_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    main(["repro", "import", "repro.py", "--db", "a.db"])
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    capsys.readouterr()
    assert main(["repro", "run", name, "--db", "a.db"]) == 2
    message = capsys.readouterr().err
    assert sentence in message and message.count("\n") == 1


def test_folder_that_torch_left_gives_its_launcher_or_smallest_checkpoint(folder: Path) -> None:
    checkpoints = folder / "torch_compile_debug" / "run_1" / "minifier" / "checkpoints"
    (checkpoints / "storages").mkdir(parents=True)
    for count in (40, 9):
        shutil.copyfile(RECORDED, checkpoints / f"{count}.py")
    loaded = load_path(folder / "torch_compile_debug")
    assert loaded.path == str(checkpoints / "9.py") and loaded.storage_folder == str(checkpoints)
    shutil.copyfile(RECORDED, checkpoints.parent / "minifier_launcher.py")
    assert load_path(folder / "torch_compile_debug").path == str(
        checkpoints.parent / "minifier_launcher.py"
    )
    (folder / "torch_compile_debug" / "run_2").mkdir()
    shutil.copyfile(RECORDED, folder / "torch_compile_debug" / "run_2" / "minifier_launcher.py")
    with pytest.raises(NotRunnable, match="has 2 repros; name one of them"):
        load_path(folder / "torch_compile_debug")


@pytest.mark.parametrize(
    ("text", "size"), [("500M", 500 << 20), ("8G", 8 << 30), ("8GiB", 8 << 30), ("7", 7)]
)
def test_size_is_read(text: str, size: int) -> None:
    assert read_size(text) == size
    for wrong in ("", "G", "-1G", "1.5G", "8X"):
        with pytest.raises(ValueError, match="expected a size"):
            read_size(wrong)


@pytest.mark.parametrize(
    "address", ["board", "file:///etc/passwd", "http://a:b@board", "http://board/?x", ""]
)
def test_push_to_nothing_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert main(["repro", "push", "repro.py", "--server", address]) == 2
    assert "--server" in capsys.readouterr().err


@pytest.mark.torch
def test_backend_that_nothing_registers_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RECORDED.read_text().replace(
        "torch._dynamo.repro.after_aot", "torch._dynamo.repro.after_dynamo"
    )
    (folder / "mine.py").write_text(
        text.replace("check_str=None)\n", "backend='planted_absent')\n", 1)
    )
    assert main(["repro", "run", "mine.py"]) == 2
    assert (
        "needs the backend 'planted_absent', which nothing here registers"
        in capsys.readouterr().err
    )


def test_a_function_that_registers_must_be_named() -> None:
    recorded = Repro(ReproManifest(kind="compile", level="aot", preload=("train.py",)), "graph")
    answer = {
        "status": "passes",
        "differences": [],
        "random_inputs": [],
        "torch_version": "2.13",
        "seconds": 1.0,
    }
    answer |= {"failure": "passes", "expected": None, "level": "aot"}
    assert "--preload train.py:FUNCTION" in describe_rerun(recorded, answer)
    alone = Repro(ReproManifest(kind="compile", level="aot"), "graph")
    assert "preload" not in describe_rerun(alone, answer)
    assert advise_preload(()) == "name its module or file with --preload"
    assert advise_preload(("a.py", "b.py")).startswith(
        "a.py, b.py do not by being imported; name the function"
    )


@pytest.mark.nightly
@pytest.mark.torch
def test_each_repro_of_a_folder_is_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = folder / "several"
    several.mkdir()
    for name in ("a.py", "b.py"):
        shutil.copyfile(RECORDED, several / name)
    (several / "c.py").write_text(
        RECORDED.read_text().replace("check_str=None)\n", "check_str='another')\n", 1)
    )
    (several / "note.py").write_text("no repro\n")
    assert (
        main(["repro", "run", "several", "--preload", f"{PLANTED}:dynamic_only", "--no-isolate"])
        == 1
    )
    told = capsys.readouterr()
    assert (
        told.out.count("planted: padding of a dynamic size.") == 3 and "in another way" in told.out
    )
    assert (
        "2 of 3 fail as they were recorded" in told.err
        and "--no-isolate is not needed: each trial" in told.err
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["minify", "repro.py", "--check-str", "x"], "No such option"),
        (
            ["minify", "f_KeyError_3.rec"],
            "is dynamo's record of a frame and has no graph: only `repro run` takes it",
        ),
        (
            ["run", "notes.rec"],
            "is not a record of dynamo: expected a file FUNCTION_ERROR_LINE.rec",
        ),
    ],
)
def test_what_is_torchs_alone_is_one_sentence(
    folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "f_KeyError_3.rec").touch()
    assert main(["repro", *words]) == 2
    assert sentence in capsys.readouterr().err


# As much of dill as a record needs: pickle, and code by marshal.
DILL = """
import copyreg, marshal, types
from pickle import Pickler, Unpickler, dump, dumps, load, loads
extend = lambda use_dill: None
copyreg.pickle(types.CodeType, lambda code: (marshal.loads, (marshal.dumps(code),)))
"""
DYNAMO_FAILS = """
from torch._dynamo.variables.tensor import TensorVariable
whole = TensorVariable.call_method
def fails(self, tx, name, args, kwargs):
    if name == "relu":
        raise KeyError("planted")
    return whole(self, tx, name, args, kwargs)
def plant():
    TensorVariable.call_method = fails
"""


@pytest.mark.nightly
@pytest.mark.torch
def test_a_frame_that_dynamo_could_not_trace_is_traced_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "dill.py").write_text(DILL)
    (folder / "planted_frame.py").write_text(DYNAMO_FAILS)
    program = (
        "import torch, planted_frame\nplanted_frame.plant()\n@torch.compile(backend='eager')\n"
    )
    (folder / "program.py").write_text(
        f"{program}def f(x):\n    return x.relu()\nf(torch.ones(3))\n"
    )
    monkeypatch.setenv(
        "PYTHONPATH", f"{folder / 'lib'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    recording = {**os.environ, "TORCH_COMPILE_REPLAY_RECORD": "1"}
    subprocess.run([sys.executable, "program.py"], env=recording, capture_output=True, check=False)
    assert main(["repro", "run", "torch_compile_debug", "--preload", "planted_frame.py:plant"]) == 0
    assert "Fails here as it was recorded: KeyError." in capsys.readouterr().out
    assert main(["repro", "run", "torch_compile_debug"]) == 1
    assert "Passes here." in capsys.readouterr().out
