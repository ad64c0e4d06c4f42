"""Every address of the API, subject by subject: what the views of these modules declare."""

from __future__ import annotations

from compileboard.app.activity import api as activity
from compileboard.app.aot import pages as aot
from compileboard.app.artifacts import pages as artifacts
from compileboard.app.benchmarks import api as benchmarks
from compileboard.app.benchmarks import trend_pages as trends
from compileboard.app.caches import pages as caches
from compileboard.app.comparison import api as comparison
from compileboard.app.compiles import pages as compiles
from compileboard.app.core import api
from compileboard.app.guards import pages as guards
from compileboard.app.imports import pages as imports
from compileboard.app.incidents import pages as incidents
from compileboard.app.push import api as push
from compileboard.app.ranks import pages as ranks
from compileboard.app.reasons import api as reasons
from compileboard.app.repros import pages as repros
from compileboard.app.runs import api as runs
from compileboard.app.runs import overview_pages as overview
from compileboard.app.search import pages as search
from compileboard.app.shapes import pages as shapes
from compileboard.app.stacks import pages as stacks
from compileboard.app.timeline import pages as timeline

_ROOMS = (
    overview,
    reasons,
    repros,
    runs,
    compiles,
    artifacts,
    guards,
    caches,
    aot,
    ranks,
    stacks,
    shapes,
    timeline,
    search,
    imports,
    push,
    activity,
    benchmarks,
    comparison,
    trends,
    incidents,
)
OPERATIONS = tuple(
    operation
    for room in _ROOMS
    for operation in api.OPERATIONS
    if operation.view.__module__ == room.__name__
)
