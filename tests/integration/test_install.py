"""Recording from inside a program: install, observe, and out again."""

from __future__ import annotations

import pytest

from tests.tools.observed import Workplace, wait_for
from tests.unit.push.push_server import push_server

pytestmark = pytest.mark.torch

INSTALL = """
import sys, warnings
import torch
import compileboard
from compileboard.collectors.observe import hooks, torch_compat

NAMES = ("trace_structured", "log_compilation_event", "log_cudagraph_skip_and_bump_counter")

def held():
    modules = [(name, module) for name, module in sys.modules.items() if module]
    loaded = [(name, vars(module)) for name, module in modules if name.startswith("torch")]
    return {(name, one): found[one] for name, found in loaded for one in NAMES if one in found}

def restored():
    now = held()
    return all(now[key] is value for key, value in before.items()) and not any(
        "compileboard" in (getattr(value, "__module__", "") or "")
        or "collectors" in value.__module__
        for value in now.values())

def work(k):
    text = f"def function_{k}(x):\\n    return x + {k}"
    exec(compile(text, __file__, "exec"), scope := {})
    torch.compile(scope[f"function_{k}"], backend="eager")(torch.ones(2))

import torch._dynamo, torch._inductor.cudagraph_utils
before = held()
work(1)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    run = compileboard.install(db=sys.argv[1], name="<b>late</b>", tags={"k": "v"})
    again = compileboard.install(db=sys.argv[1])
print(again is run, [str(w.message) for w in said])
work(2)
print(restored())
compileboard.uninstall()
print(restored(), hooks.current())
work(3)
with compileboard.observe(name="second", db=sys.argv[1]) as second:
    work(4)
try:
    with compileboard.observe(name="third", db=sys.argv[1]) as third:
        work(5)
        raise ValueError("theirs")
except ValueError as error:
    print("raised", error)
print(run._repr_html_())
print(" ".join(str(second).split()))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(compileboard.uninstall(), [str(w.message) for w in said])
"""


def test_install_late_twice_and_out_again(workplace: Workplace) -> None:
    done = workplace.plain(workplace.write(INSTALL), workplace.database)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("True [")
    assert "installed after 1 compilation record;" in lines[0]
    assert "already installed in this process; it goes on recording run" in lines[0]
    assert lines[1:3] == ["False", "True None"]
    assert lines[3] == "raised theirs"
    assert "&lt;b&gt;late&lt;/b&gt;" in lines[4]
    assert "<b>late" not in lines[4]
    assert "second" in lines[5] and "finished" in lines[5]
    assert "nothing to uninstall" in lines[6]
    rows = workplace.rows(
        """
        select runs.name, state, functions.name as function
        from runs
        join compiles on run_id = runs.id
        join functions on functions.id = function_id
        order by runs.id
        """
    )
    assert [tuple(row.values()) for row in rows] == [
        ("<b>late</b>", "finished", "function_2"),
        ("second", "finished", "function_4"),
        ("third", "finished", "function_5"),
    ]
    assert workplace.spools == []


NESTED = """
import sys, warnings
{order}
import torch
import compileboard

def work(k):
    text = f"def function_{{k}}(x):\\n    return x + {{k}}"
    exec(compile(text, __file__, "exec"), scope := {{}})
    torch.compile(scope[f"function_{{k}}"], backend="eager")(torch.ones(2))

tags = {{"hf_token": "hunter2Xyzzy", "model": "m"}}
outer = compileboard.install(db=sys.argv[1], name="outer", tags=tags)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with compileboard.observe(name="inner", db=sys.argv[1], capture_env=("HOME",)) as inner:  # here
        work(1)
    again = compileboard.install(db=sys.argv[1])  # there
work(2)
print(inner is outer, again is outer)
lines = open(sys.argv[0]).read().splitlines()
for one in said:
    comment = lines[one.lineno - 1].split("# ")[-1]
    print(one.filename == sys.argv[0], comment, str(one.message).split("; ")[1])
compileboard.uninstall()
print(repr(outer))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with compileboard.observe(name="own", db=sys.argv[1]):  # late
        work(3)
for one in said:
    print(one.filename == sys.argv[0], lines[one.lineno - 1].split("# ")[-1])
import compileboard.collectors.observe.hooks
print(compileboard.observe.__module__, compileboard.observe.__name__)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "order",
    ["", "import torch, compileboard.collectors.observe.hooks", "from compileboard import observe"],
)
def test_observe_inside_install_joins_it_and_ends_nothing(workplace: Workplace, order: str) -> None:
    done = workplace.plain(workplace.write(NESTED.format(order=order)), workplace.database)
    assert done.returncode == 0, done.stderr
    run_id = workplace.value("select id from runs where name = 'outer'")
    goes_on = f"it goes on recording run {run_id}"
    assert done.stdout.splitlines() == [
        "True True",
        f"True here {goes_on}, and the name 'inner' is not used",
        f"True there {goes_on}",
        (
            f"<Run {run_id} 'outer', finished: 2 compiles, 0 graph breaks, 0 recompiles; in "
            f"{workplace.database}>"
        ),
        "True late",
        "compileboard.collectors.api observe",
    ]
    rows = workplace.rows(
        "select name, compile_count from runs join run_totals on run_totals.run_id = runs.id "
        "order by started_us"
    )
    assert [tuple(row.values()) for row in rows] == [("outer", 2), ("own", 1)]
    assert workplace.value("select value from run_tags where key = 'hf_token'") == "<withheld>"
    assert b"hunter2Xyzzy" not in workplace.all_bytes()


INSIDE = """
import compileboard, torch
run = compileboard.install()
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
print(run.id)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("own_trace", [False, True])
def test_install_inside_an_observed_program_says_so_and_records_once(
    workplace: Workplace, own_trace: bool
) -> None:
    env = {"TORCH_TRACE": str(workplace.folder / "trace")} if own_trace else {}
    finished = workplace.run(workplace.write(INSIDE), env=env)
    assert finished.returncode == 0, finished.stderr
    assert "already installed in this process by `collectors run`" in finished.stderr
    assert workplace.only_run()["id"] == finished.stdout.strip()
    assert workplace.only_run()["compile_count"] == 1
    assert not (workplace.folder / "compileboard.db").exists()


ENDING = """
import compileboard, os, signal, sys, torch
compileboard.install(db=sys.argv[1])
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
raise ValueError("theirs")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "code", "state"), [("kill", -9, "interrupted"), ("raise", 1, "failed")]
)
def test_an_installed_program_that_ends_badly(
    workplace: Workplace, how: str, code: int, state: str
) -> None:
    assert workplace.plain(workplace.write(ENDING), workplace.database, how).returncode == code
    wait_for(lambda: workplace.database.exists() and workplace.spools == [])
    assert (workplace.only_run()["state"], workplace.only_run()["compile_count"]) == (state, 1)


WITHOUT_PLACE = """
import warnings, sys, torch, compileboard
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with compileboard.observe(db=sys.argv[1]) as run:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
print(len(said), said[0].message, repr(run)[:5])
"""


def test_a_database_or_home_that_cannot_be_written_is_a_warning_and_the_run_waits(
    workplace: Workplace,
) -> None:
    program = workplace.write(WITHOUT_PLACE)
    lost = workplace.plain(program, workplace.database, env={"COMPILEBOARD_HOME": "/proc/none"})
    assert (lost.returncode, lost.stderr) == (0, "")
    assert lost.stdout.startswith("1 CompileBoard does not record this process: the spool folder ")
    done = workplace.plain(program, workplace.folder / "no" / "t.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "1 CompileBoard does not record this run yet, it waits in its spool: "
    )
    (workplace.folder / "no").mkdir()
    # Its recorder may still be waiting for the database, and is then as quick as the command.
    wait_for(
        lambda: (
            "finished" in workplace.collect("list", "--db", workplace.folder / "no" / "t.db").stdout
            and not workplace.spools
        )
    )


PUSHED = """
import sys
import torch
import compileboard
run = compileboard.install(server=sys.argv[1], name="pushed")
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
compileboard.uninstall()
print(run)
"""


def test_a_process_is_pushed_without_a_database(workplace: Workplace) -> None:
    with push_server() as server:
        done = workplace.plain(workplace.write(PUSHED), server.address)
        assert (done.returncode, done.stderr) == (0, "")
        run_id = done.stdout.split()[1]
        assert done.stdout == f"run {run_id} (pushed): pushed to {server.address}/runs/{run_id}\n"
        wait_for(lambda: not workplace.outbox)
        kinds = [event.KIND for event in server.read(run_id)[0]]
    assert {"run_started", "process_started", "compile_started", "compiled", "run_ended"} <= set(
        kinds
    )
    assert not list(workplace.folder.glob("*.db"))
