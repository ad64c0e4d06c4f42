"""Printing, logging and warning in compiled code."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program, with_settings
from compileboard.collectors.fixes.fix import Fix

PRINT = program("""
    import torch


    @torch.compile
    def step(x):
        loss = (x * x).mean()
        print("loss", loss)
        return loss * 2


    result = [step(torch.arange(4.0)) for _ in range(2)]
""")
LOGGER = program("""
    import logging

    import torch

    log = logging.getLogger("train")


    @torch.compile
    def step(x):
        y = x * 2
        log.info("step of %s rows", 4)
        return y + 1


    result = step(torch.arange(4.0))
""")
WARN = program("""
    import warnings

    import torch


    @torch.compile
    def scale(x):
        y = x * 2
        warnings.warn("scale() is old: use rescale()", stacklevel=2)
        return y + 1


    result = scale(torch.arange(4.0))
""")
REORDER_PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"
IGNORE_INFO = "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.info)"
REORDER_WARN = "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)"

LOGGING_MODULE = program("""
    import logging

    import torch


    @torch.compile
    def step(x):
        y = x * 2
        logging.warning("step")
        return y + 1


    result = step(torch.arange(4.0))
""")
PRINT_LIST = program("""
    import torch

    torch._dynamo.config.reorderable_logging_functions.add(print)


    @torch.compile
    def step(x):
        y = x * 2
        print("shape", y.shape)
        return y + 1


    result = step(torch.arange(4.0))
""")
BREAKPOINT = program("""
    import sys

    import torch

    sys.breakpointhook = lambda: None


    @torch.compile
    def step(x):
        y = x * 2
        breakpoint()
        return y + 1


    result = step(torch.arange(4.0))
""")

FIXES = (
    Fix(
        id="print_reordered",
        kind="graph_break",
        keys=("GB0059",),
        title="Let Dynamo run {expression} after the graph",
        applies="The arguments are tensors, constants or formatted strings of them.",
        cost="Prints come after the graph has run, with values as they are then. A printed tensor waits for the GPU.",
        before=PRINT,
        after=with_settings(PRINT, REORDER_PRINT),
        settings=(REORDER_PRINT,),
    ),
    Fix(
        id="print_in_caller",
        kind="graph_break",
        keys=("GB0059",),
        title="Return what is printed, and call {expression} in the caller",
        applies="The caller can be changed.",
        cost="Nothing in compiled code. A printed tensor waits for the GPU, as before.",
        before=PRINT,
        after=program("""
            import torch


            @torch.compile
            def step(x):
                loss = (x * x).mean()
                return loss * 2, loss


            result = []
            for _ in range(2):
                y, loss = step(torch.arange(4.0))
                print("loss", loss)
                result.append(y)
        """),
    ),
    Fix(
        id="print_removed",
        kind="graph_break",
        keys=("GB0059",),
        title="Remove {expression}",
        applies="The print is for debugging, or has a list or an object as argument, which no setting reorders.",
        cost="Nothing is printed.",
        before=PRINT,
        after=PRINT.replace('    print("loss", loss)\n', ""),
    ),
    Fix(
        id="logger_ignored",
        kind="graph_break",
        keys=("GB0291",),
        title="Drop {expression} from compiled code",
        applies="The record may be lost in compiled code. Add each method that is used: info, debug, warning.",
        cost="Every record of this method is lost in compiled code, also of warnings and errors.",
        before=LOGGER,
        after=with_settings(LOGGER, IGNORE_INFO),
        settings=(IGNORE_INFO,),
        minimum_torch=(2, 13),  # 2.11 has the setting, and fails to write it into its log
    ),
    Fix(
        id="logger_in_caller",
        kind="graph_break",
        keys=("GB0291",),
        title="Call {expression} in the caller",
        applies="The caller can be changed.",
        cost="None: every record is kept.",
        before=LOGGER,
        after=program("""
            import logging

            import torch

            log = logging.getLogger("train")


            @torch.compile
            def step(x):
                y = x * 2
                return y + 1


            log.info("step of %s rows", 4)
            result = step(torch.arange(4.0))
        """),
    ),
    Fix(
        id="logger_guarded",
        kind="graph_break",
        keys=("GB0291",),
        title="Call {expression} only where the code runs eagerly",
        applies="The record is for debugging, and eager runs are enough for it.",
        cost="The record is lost in compiled code.",
        before=LOGGER,
        after=LOGGER.replace('    log.info("', '    if not torch.compiler.is_compiling():\n        log.info("'),
    ),
    Fix(
        id="warning_reordered",
        kind="graph_break",
        keys=("GB0007",),
        title="Let Dynamo give the warning after the graph",
        applies="The message is a constant.",
        cost="The warning comes after the graph has run, and names another line.",
        before=WARN,
        after=with_settings(WARN, REORDER_WARN),
        settings=(REORDER_WARN,),
    ),
    Fix(
        id="warning_in_caller",
        kind="graph_break",
        keys=("GB0007",),
        title="Warn in the caller or in `__init__`",
        applies="The caller can be changed.",
        cost="None.",
        before=WARN,
        after=program("""
            import warnings

            import torch


            @torch.compile
            def scale(x):
                y = x * 2
                return y + 1


            warnings.warn("scale() is old: use rescale()", stacklevel=2)
            result = scale(torch.arange(4.0))
        """),
    ),
    Fix(
        id="logging_in_caller",
        kind="graph_break",
        keys=("GB4841",),
        title="Call {expression} in the caller",
        applies="A function of the module logging is called in compiled code. No setting ignores it.",
        cost="None: every record is kept.",
        before=LOGGING_MODULE,
        after=program("""
            import logging

            import torch


            @torch.compile
            def step(x):
                y = x * 2
                return y + 1


            logging.warning("step")
            result = step(torch.arange(4.0))
        """),
    ),
    Fix(
        id="print_formatted",
        kind="graph_break",
        keys=("GB0296",),
        title="Print only tensors, constants and formatted strings",
        applies="A reordered print has a list, a shape or an object as argument.",
        cost="Prints come after the graph has run.",
        before=PRINT_LIST,
        after=PRINT_LIST.replace("y.shape)", "str(y.shape))"),
    ),
    Fix(
        id="breakpoint_removed",
        kind="graph_break",
        keys=("GB0059",),
        title="Remove `breakpoint()`, or debug with `torch.compiler.set_stance('force_eager')`",
        applies="A breakpoint is left in compiled code.",
        cost="None.",
        before=BREAKPOINT,
        after=BREAKPOINT.replace("    breakpoint()\n", ""),
    ),
)
