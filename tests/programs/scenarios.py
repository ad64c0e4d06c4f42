"""Small programs, chosen by words on the command line: ways to use torch.compile."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import torch


def add(x, k=1):
    return x * 2 + k


def compiled(function=add, **options):
    return torch.compile(function, **{"backend": "eager", **options})


def numbered(number):
    """Make a function of a file: of one without, an older torch compiles a wrapper of its own."""
    text = f"def function_{number}(x):\n    return x + {number}"
    exec(compile(text, __file__, "exec"), scope := {})
    return scope[f"function_{number}"]


def many(count=100):
    for number in range(count):
        compiled(numbered(number))(torch.ones(2))


def reset():
    for _ in range(3):
        f = compiled(dynamic=False)
        f(torch.ones(3))
        f(torch.ones(4))
        torch._dynamo.reset()


def forks():
    compiled()(torch.ones(2))
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            torch._dynamo.reset()
            compiled()(torch.ones(3 + number))
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0


def worker(size):
    compiled()(torch.ones(size))


def workers():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        processes = [context.Process(target=worker, args=(size,)) for size in (2, 3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0


def pools():
    from concurrent.futures import ProcessPoolExecutor

    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            list(pool.map(worker, (2, 3, 4, 5)))


def subprocesses():
    subprocess.run([sys.executable, __file__, "reset", "threads"], check=True)
    subprocess.run(["sh", "-c", f"{sys.executable} {__file__} aot; exit 0"], check=True)


def replaced():
    """Compile, then become another program by exec, which compiles too."""
    compiled(lambda x: x - 7)(torch.ones(2))
    os.execv(sys.executable, [sys.executable, __file__, "many_failing"])


def many_failing():
    many(4)
    failing()


def threads():
    def work(number):
        def function(x):
            return x + number

        compiled(function)(torch.ones(2))

    started = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def ranks():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    compiled()(torch.ones(2 + rank))
    dist.barrier()
    dist.destroy_process_group()


def failing():
    def broken(graph, inputs):
        raise RuntimeError("<b>this backend</b> always fails & 'says' so")

    try:
        compiled(backend=broken)(torch.ones(2))
    except Exception as error:
        print(type(error).__name__, "<b>this backend</b>" in str(error))


def fullgraph():
    def breaking(x):
        torch._dynamo.graph_break()
        return x

    try:
        compiled(breaking, fullgraph=True)(torch.ones(2))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])


def inductor():
    torch.compile(lambda x: (x * x).sum())(torch.ones(4, requires_grad=True)).backward()


def aot():
    f = compiled(lambda x: (x * x).sum(), backend="aot_eager")
    x = torch.ones(4, requires_grad=True)
    f(x).backward()
    with torch.no_grad():
        f(torch.ones(4))


def callbacks():
    from torch._dynamo.callback import callback_handler

    seen = []
    callback_handler.register_start_callback(lambda *args: seen.append("start"))
    callback_handler.register_end_callback(lambda *args: seen.append("end"))
    compiled()(torch.ones(2))
    print(seen)


def logging_config():
    import logging.config

    logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
    compiled()(torch.ones(2))


def bad_functions():
    """Call torch's trace function as a third party does, with functions that raise."""

    def bad():
        raise ValueError("bad function")

    for keywords in (
        {"metadata_fn": bad},
        {"metadata_fn": lambda: {"name": "recompile_reasons"}, "payload_fn": bad},
    ):
        try:
            torch._logging.trace_structured("artifact", **keywords)
            print("nothing raised")
        except ValueError as error:
            print("raised", error)
    compiled()(torch.ones(2))


def fork_while_compiling():
    started = threading.Event()

    def slow(graph, inputs):
        started.set()
        time.sleep(0.5)
        return graph.forward

    thread = threading.Thread(target=lambda: compiled(backend=slow)(torch.ones(2)))
    thread.start()
    started.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    thread.join()


def daemon():
    """Close every descriptor, as a daemon does, and go on."""
    compiled()(torch.ones(2))
    os.closerange(3, 256)
    with open("theirs.txt", "w") as file:
        file.write("mine alone")
        file.flush()
        compiled(lambda x: x - 1)(torch.ones(2))


def tampered():
    """Break our hooks from inside: what they lose is counted, and the program goes on."""
    import torch._dynamo  # what the hooks wait for

    hooks = sys.modules.get("_compileboard.observe.hooks")
    if hooks is not None:
        hooks.current().spool.write = lambda *_: 1 / 0
    print(compiled()(torch.ones(2)))
    if hooks is not None:
        del hooks.current().spool.write


def settings():
    compiled()(torch.ones(2))
    torch._dynamo.config.cache_size_limit = 21  # of old, and of today another name of it


def endless():
    number = 0
    while True:
        number += 1
        compiled(numbered(number))(torch.ones(2))
        if number == 1:
            print(os.getpid(), flush=True)


if __name__ == "__main__":
    for word in sys.argv[1:]:
        globals()[word]()
