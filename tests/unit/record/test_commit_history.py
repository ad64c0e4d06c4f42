"""Which commits came before a run's own: asked of real repositories, whatever state they are in."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import dump_event
from compileboard.collectors.record import recorder
from compileboard.collectors.record.facts import git_facts
from compileboard.collectors.record.git import (
    EVENT_BYTES,
    build_history_event,
    pack_commits,
    read_commits,
)
from compileboard.collectors.record.sidecar import run_sidecar
from compileboard.collectors.record.spool import Manifest
from compileboard.collectors.store.ingest.commit_history import StoredCommit
from tests.tools.observed import Workplace
from tests.tools.repository import commit, git, make_repository


def read_all(folder: Path) -> list[StoredCommit]:
    return read_commits(str(folder), "HEAD", limit=99, timeout_s=60)


def test_history_is_that_of_first_parents_without_addresses(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", "one", "two")
    git(folder, "switch", "-q", "-c", "side", "HEAD~1")
    commit(folder, "beside")
    git(folder, "switch", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge", "side")
    merge, two, first = read_all(folder)
    assert [merge.subject, two.subject, first.subject] == ["merge", "two", "one"]
    assert (merge.parent_hash, two.parent_hash, first.parent_hash) == (two.hash, first.hash, None)
    assert merge.author == "Ann"
    assert 1_600_000_000_000_000 < merge.time_us < 5_000_000_000_000_000


def test_odd_texts_stay_one_commit_each_and_secrets_do_not_come_along(tmp_path: Path) -> None:
    folder = make_repository(
        tmp_path / "r", "bytes \udcff\udcfe", "a\u2028b\x1b[31m\tc", "x" * 500, "token=hunter2 away"
    )
    secret, long, odd, bytes_ = [read_commit.subject or "" for read_commit in read_all(folder)]
    assert "hunter2" not in secret and secret.endswith("away")
    assert len(long) == 120 and long.endswith("…")
    assert odd == "a b\x1b[31m c" and bytes_.startswith("bytes ")


def test_what_a_person_set_for_their_own_log_does_not_matter(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "r", "größer")
    settings = {
        "log.showSignature": "true",
        "i18n.logOutputEncoding": "latin1",
        "color.ui": "always",
    }
    for name, value in settings.items():
        git(folder, "config", name, value)
    assert [read_commit.subject for read_commit in read_all(folder)] == ["größer"]


def test_a_shallow_clone_ends_and_a_detached_head_does_not_matter(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "r", "one", "two", "three")
    git(tmp_path, "clone", "-q", "--depth", "2", origin.as_uri(), "shallow")
    git(tmp_path / "shallow", "switch", "-q", "--detach", "HEAD")
    facts = git_facts(str(tmp_path / "shallow"))
    event = build_history_event(facts, "p", timeout_s=60)
    assert event is not None and event.parent_hash is None
    assert [row[3] for row in event.commits] == ["three", "two"]


def test_where_git_can_tell_nothing_there_is_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = make_repository(tmp_path / "empty")
    assert build_history_event(git_facts(str(empty)), "p", timeout_s=60) is None
    assert build_history_event({}, "p", timeout_s=60) is None
    assert (
        build_history_event({"root": str(tmp_path / "gone"), "commit": "a" * 40}, "p", timeout_s=60)
        is None
    )
    folder = make_repository(tmp_path / "r", "one")
    facts = git_facts(str(folder))
    assert build_history_event(facts | {"commit": "--output=x"}, "p", timeout_s=60) is None
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert build_history_event(facts, "p", timeout_s=60) is None
    monkeypatch.setenv("PATH", "")
    assert build_history_event(facts, "p", timeout_s=60) is None


def test_the_event_is_small_and_says_where_it_was_cut() -> None:
    chain = [StoredCommit(f"{n:040x}", f"{n + 1:040x}", n, "Jane", "ü" * 120) for n in range(300)]
    event = pack_commits(chain, "p")
    assert len(dump_event(event)) < EVENT_BYTES + 1_000
    assert 40 < len(event.commits) < 300
    assert event.parent_hash == f"{len(event.commits):040x}"


def test_a_run_keeps_its_history_once_and_of_its_own_commit(workplace: Workplace) -> None:
    folder = make_repository(workplace.folder / "repo", "one", "two")
    (folder / "train.py").write_text("import os; os.system('git commit -q --allow-empty -m later')")
    names = {
        f"GIT_{author}_{what}": "Ann"
        for author in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    for _ in range(2):
        assert workplace.run(folder / "train.py", cwd=folder, env=names).returncode == 0
    rows = workplace.rows(
        "select subject, author, parent_hash is null as first from commits order by time_us, "
        "subject"
    )
    assert {(row["subject"], row["author"]) for row in rows} == {
        ("one", "Ann"),
        ("two", "Ann"),
        ("later", "Ann"),
    }
    assert [row["subject"] for row in rows if row["first"]] == ["one"]
    assert workplace.events("commits_seen") == [], "the commits have a table of their own"


def test_the_recorder_beside_an_installed_program_keeps_history_too(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(workplace.folder / "repo", "one", "two")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook of another repository
    facts = {
        "root": str(folder),
        "commit": git(folder, "-C", str(folder), "--git-dir=.git", "rev-parse", "HEAD"),
    }
    spool = workplace.home / "spool" / "R"
    spool.mkdir(parents=True)
    described = {
        "run_id": "R",
        "database": str(workplace.database),
        "recorder_process_id": "r",
        "git": facts,
    }
    Manifest(**described, name="installed", started_us=5).write(spool)
    assert run_sidecar(spool) == 0
    assert [
        row["subject"] for row in workplace.rows("select subject from commits order by subject")
    ] == ["one", "two"]


def test_a_git_that_does_not_answer_costs_the_run_its_history_alone(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = git_facts(str(make_repository(workplace.folder / "repo", "one")))
    slow = workplace.write("#!/bin/sh\nexec sleep 600\n", "bin/git")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("HISTORY_S", "HISTORY_MOST_S"):
        monkeypatch.setattr(recorder, name, 0.05)
    manifest = Manifest(
        run_id="R",
        database=str(workplace.database),
        name="slow",
        started_us=5,
        recorder_process_id="r",
        git=facts,
    )
    with closing(recorder.Recorder(workplace.home, manifest)) as recording:
        recording.start()
        recording.step()
        recording.manifest = manifest.end("finished", 9)
        recording.end()
    assert workplace.only_run()["state"] == "finished"
    assert workplace.value("select count(*) from commits") == 0
