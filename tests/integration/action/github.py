"""A GitHub Actions runner of composite actions and its comment API, on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.tools.observed import ROOT

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class StepResult:
    """What one step came to: skipped where its condition did not hold."""

    outcome: str
    out: str = ""
    err: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """A job in a checkout that calls the action."""

    workspace: Path
    event: dict[str, Any]
    environment: dict[str, str]
    event_name: str = "pull_request"
    summary: str = ""
    steps: dict[str, StepResult] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return any(step.outcome == "failure" for step in self.steps.values())

    def use(self, *, only: str | None = None, **inputs: str) -> None:
        """Run the action's steps in their order, each by bash, as the runner does; or one again
        after the others.
        """
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        unknown = inputs.keys() - {name.replace("-", "_") for name in action["inputs"]}
        assert not unknown, unknown
        given = {
            name: inputs.get(name.replace("-", "_"), row["default"])
            for name, row in action["inputs"].items()
        }
        context = {
            "github.token": self.environment["GITHUB_TOKEN_OF_JOB"],
            "github.action_path": str(ROOT),
        }
        context |= {f"inputs.{name}": _expand(value, context) for name, value in given.items()}
        self.steps, self.summary = self.steps if only else {}, ""
        for step in action["runs"]["steps"]:
            assert "uses" not in step and step["shell"] == "bash" and "${{" not in step["run"]
            if only in (None, step["id"]):
                self.steps[step["id"]] = self._run(step, context)
            context[f"steps.{step['id']}.outcome"] = self.steps[step["id"]].outcome
            for name, value in self.steps[step["id"]].outputs.items():
                context[f"steps.{step['id']}.outputs.{name}"] = value

    def _run(self, step: dict[str, Any], context: dict[str, str]) -> StepResult:
        condition = step.get("if", "${{ success() }}")
        if not _holds(condition, context | {"success()": "" if self.failed else "true"}):
            return StepResult("skipped")
        files = {
            name: self.workspace.parent / f"{name}.txt"
            for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
        }
        event = self.workspace.parent / "event.json"
        event.write_text(json.dumps(self.event))
        for path in files.values():
            path.write_text("")
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("GITHUB_", "COMPILEBOARD"))
            },
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_EVENT_NAME": self.event_name,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": "ann/nets",
            "GITHUB_RUN_ID": "77",
            "GITHUB_SERVER_URL": "https://github.example.org",
            "GITHUB_WORKSPACE": str(self.workspace),
            **{name: str(path) for name, path in files.items()},
            **{
                name: value
                for name, value in self.environment.items()
                if name != "GITHUB_TOKEN_OF_JOB"
            },
            **{name: _expand(value, context) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace / _expand(step.get("working-directory", "."), context),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        lines = files["GITHUB_OUTPUT"].read_text().splitlines()
        outputs = dict(line.partition("=")[::2] for line in lines)
        return StepResult(
            "failure" if done.returncode else "success", done.stdout, done.stderr, outputs
        )


def _expand(text: str, context: dict[str, str]) -> str:
    def get(match: re.Match[str]) -> str:
        return next((value for name in match[1].split(" || ") if (value := context.get(name))), "")

    return _EXPRESSION.sub(get, text)


def _holds(condition: str, context: dict[str, str]) -> bool:
    inside = _EXPRESSION.fullmatch(condition)
    assert inside, condition
    return all(_holds_part(part.strip(), context) for part in inside[1].split("&&"))


def _holds_part(part: str, context: dict[str, str]) -> bool:
    if part == "!cancelled()":
        return True
    left, sign, right = part.partition(" == ") if " == " in part else part.partition(" != ")
    if not sign:
        return bool(context[part])
    return (context.get(left, "") == right.strip("'")) is (sign == " == ")


@dataclass
class CommentApi:
    """GitHub's API for the comments of one issue; `refusal` is a status that every change is
    answered with.
    """

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(
        default_factory=list
    )  # method, path, authorization
    refusal: int | None = None


@contextmanager
def serve_comments() -> Iterator[CommentApi]:
    """Run a server that keeps comments."""
    api = CommentApi()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _read(self) -> dict[str, Any]:
            api.requests.append((self.command, self.path, self.headers["Authorization"]))
            length = int(self.headers.get("Content-Length") or 0)
            document: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
            return document

        def do_GET(self) -> None:
            self._read()
            asked = parse_qs(urlsplit(self.path).query)
            size, page = int(asked["per_page"][0]), int(asked["page"][0])
            self._answer(200, api.comments[size * (page - 1) : size * page])

        def do_POST(self) -> None:
            body = self._read()["body"]
            if api.refusal:
                return self._answer(
                    api.refusal, {"message": "Resource not accessible by integration"}
                )
            number = len(api.comments) + 1
            comment = {
                "id": number,
                "body": body,
                "user": {"type": "Bot"},
                "html_url": f"https://x/{number}",
            }
            api.comments.append(comment)
            return self._answer(201, comment)

        def do_PATCH(self) -> None:
            body = self._read()["body"]
            if api.refusal:
                return self._answer(
                    api.refusal, {"message": "Resource not accessible by integration"}
                )
            [comment] = [
                row for row in api.comments if row["id"] == int(self.path.rpartition("/")[2])
            ]
            comment["body"] = body
            return self._answer(200, comment)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        api.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
