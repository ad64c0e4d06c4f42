"""Plan the runs of a replay: which project, when, where, how large, and how they end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DAY_US = 86_400_000_000
EPOCH_DAYS = 30
SUITES = {
    "nightly": ("bert", "gpt2", "llama", "t5", "resnet50", "unet"),
    "torchbench": ("hf_Bert", "hf_T5", "timm_resnet", "dlrm", "speech_transformer"),
    "release": ("serving_llm", "serving_vision", "trainer_ddp"),
    "scratch": ("train.py", "notebook", "repro.py"),
    None: ("adhoc.py",),
}
HOSTS = tuple(f"gpu-{number:02d}" for number in range(1, 9))
GPUS = (
    ("NVIDIA H200", 150_754_820_096, "9.0"),
    ("NVIDIA A100-SXM4-80GB", 85_899_345_920, "8.0"),
    ("NVIDIA L4", 24_152_899_584, "8.9"),
    None,
)
TORCHES = (("2.9.1+cu128", "12.8"), ("2.10.0+cu129", "12.9"), ("2.11.0+cu130", "13.0"), ("2.13.0+cu130", "13.0"))
BRANCHES = ("main", "main", "main", "release", "dynamic-shapes", "fix/breaks")
STATES = ("finished",) * 90 + ("failed",) * 6 + ("killed",) * 3 + ("interrupted",)
ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Project:
    """Hold what the runs of one suite and name have in common."""

    suite: str | None
    name: str
    folder: str
    script: str
    recordings: list[int]  # which recorded programs it consists of
    weight: float


@dataclass
class RunPlan:
    """Hold one run before its events are made."""

    number: int
    run_id: str
    recorder_id: str
    project: Project
    started_us: int
    epoch: int
    compilations: int
    processes: int
    state: str
    tags: dict[str, str]
    git: dict[str, Any]
    host: dict[str, Any]
    gpus: list[dict[str, Any]]
    versions: dict[str, str | None]
    rng: random.Random = field(repr=False)


def make_projects(rng: random.Random, recordings: int) -> list[Project]:
    """Make one project for each suite and name."""
    projects = []
    for suite, names in SUITES.items():
        for name in names:
            folder = f"{suite or 'adhoc'}_{name.removesuffix('.py')}".lower()
            parts = [rng.randrange(recordings) for _ in range(rng.randint(2, 4))]
            projects.append(Project(suite, name, folder, f"{folder}/train.py", parts, rng.uniform(0.5, 2.0)))
    return projects


def plan_runs(
    rng: random.Random, projects: list[Project], runs: int, compilations: int, first_us: int, last_us: int
) -> Iterator[RunPlan]:
    """Yield the runs in the order of their start; sizes differ tenfold, as real runs' do."""
    starts = sorted(rng.randint(first_us, last_us) for _ in range(runs))
    sizes = [rng.lognormvariate(0, 0.8) for _ in range(runs)]
    scale = compilations / sum(sizes)
    for number, (started_us, size) in enumerate(zip(starts, sizes)):
        project = rng.choices(projects, [p.weight for p in projects])[0]
        state = "running" if number == runs - 1 else rng.choice(STATES)
        yield _plan_run(rng, number, project, started_us, first_us, max(1, round(size * scale)), state)


def _plan_run(
    rng: random.Random, number: int, project: Project, started_us: int, first_us: int, size: int, state: str
) -> RunPlan:
    age = (started_us - first_us) // DAY_US
    torch_version, cuda = TORCHES[min(len(TORCHES) - 1, int(age / 46) if rng.random() < 0.9 else rng.randrange(4))]
    gpu = rng.choice(GPUS)
    processes = rng.choice((1, 1, 1, 1, 2, 4)) if size >= 40 else 1
    described = None if gpu is None else dict(zip(("name", "memory_bytes", "compute_capability"), gpu))
    commit = f"{random.Random(f'{project.folder}{age // 2}').getrandbits(160):040x}"
    return RunPlan(
        number=number,
        run_id=_ulid(started_us // 1000, rng),
        recorder_id=f"{rng.getrandbits(128):032x}",
        project=project,
        started_us=started_us,
        epoch=int(age // EPOCH_DAYS),
        compilations=size,
        processes=processes,
        state=state,
        tags={"config": rng.choice(("default", "max-autotune", "dynamic")), "owner": rng.choice(("ci", "ana", "lee"))},
        git={
            "commit": commit,
            "branch": rng.choice(BRANCHES),
            "subject": f"Change number {age // 2} of {project.name}",
            "dirty": rng.random() < 0.2,
        },
        host={"name": rng.choice(HOSTS), "os": "Linux", "cpu_count": 64},
        gpus=[described] * processes if described else [],
        versions={
            "torch_version": torch_version,
            "cuda_version": cuda,
            "python_version": "3.12.3",
            "triton_version": "3.6.0",
        },
        rng=random.Random(rng.getrandbits(64)),
    )


def _ulid(now_ms: int, rng: random.Random) -> str:
    value = now_ms << 80 | rng.getrandbits(80)
    return "".join(ULID[value >> shift & 31] for shift in range(125, -5, -5))
