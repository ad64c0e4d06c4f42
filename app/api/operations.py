"""Every endpoint of the API."""

from __future__ import annotations

from compileboard.app.api import answers
from compileboard.app.api.fleet import (
    activity,
    checks,
    comparison,
    graph_breaks,
    imports,
    incidents,
    models,
    overview,
    recompiles,
    repros,
    search,
    streams,
    trends,
)
from compileboard.app.api.run import (
    aot,
    artifacts,
    caches,
    compiles,
    guards,
    ranks,
    run,
    shapes,
    stacks,
    timeline,
)

_RUN = (run, compiles, artifacts, guards, caches, aot, ranks, stacks, shapes, timeline)
_FLEET = (search, imports, streams, activity, models, checks, comparison, trends, incidents)
OPERATIONS = tuple(
    operation
    for module in (overview, graph_breaks, recompiles, repros, *_RUN, *_FLEET)
    for operation in answers.OPERATIONS
    if operation.view.__module__ == module.__name__
)
