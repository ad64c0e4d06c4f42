"""The CUDA graphs page of a run, and its API."""

from __future__ import annotations

from flask import Blueprint

from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.page import Page
from compileboard.app.cuda_graphs.model import build_cuda_graphs
from compileboard.app.cuda_graphs.run_queries import CudaGraph, list_graphs
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run

blueprint = Blueprint("cuda_graphs", __name__)


@blueprint.get("/runs/<run_id>/cudagraphs")
def show(run_id: str) -> str:
    detail = find_run(run_id)
    screen = build_cuda_graphs(get_run_reader(run_id), detail.run)
    return render_run(detail, "cuda_graphs/index.html", tab="cudagraphs", screen=screen)


@operation("/runs/<run_id>/cudagraphs")
def list_cudagraphs(detail: RunDetail, page: PageQuery) -> Page[CudaGraph]:
    """List a run's CUDA graphs in order of recording, with the reasons for re-recording, and the
    warm-up runs before them.
    """
    return list_graphs(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
