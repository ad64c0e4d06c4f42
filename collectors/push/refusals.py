"""Explain why a server refused a request and what it affects."""

from __future__ import annotations

from typing import Any

from compileboard.collectors.push.client import ServerAnswer

OF_CONTENT = (400, 413)  # for what a request holds; others of the same kind may be taken
# Of one run: others may be taken. 500 may be for what a request holds, or not: nothing is given up
# for it.
OF_ONE_RUN = (400, 403, 404, 409, 410, 413, 426, 460, 500)


class Refused(Exception):
    """The server refused the request. `pause_s` is how long it asks to wait."""

    def __init__(self, words: str, status: int, pause_s: float = 0.0) -> None:
        super().__init__(words)
        self.pause_s = pause_s
        self.is_token = status in (401, 403)
        self.is_deleted = status == 410
        self.is_of_one = status in OF_ONE_RUN


def explain(answer: ServerAnswer) -> str:
    actions = {
        401: (
            "the token is missing, wrong, expired or revoked; make one on the server with "
            "`token create`"
        ),
        403: "the token lacks the scope `ingest`, or the run is another sender's",
        404: "there is no such address; is it a CompileBoard server of this version?",
        410: "the run was deleted or pruned on the server",
        426: "the server is older than this collector; upgrade the server",
        507: "the server's disk is full",
    }
    if 300 <= answer.status < 400:
        return (
            "the server redirects to "
            f"{answer.headers.get('location', 'another address')[:200]}; give that to --server"
        )
    action = actions.get(answer.status)
    return (
        f"{action} ({answer.describe()})" if action else f"the server answers {answer.describe()}"
    )


def refuse(answer: ServerAnswer) -> Refused:
    return Refused(explain(answer), answer.status, answer.pause_s)


def find_value(answer: ServerAnswer, name: str, kind: type) -> Any:
    data = answer.body.get("data")
    for body in (answer.body, data):
        if isinstance(body, dict) and isinstance(body.get(name), kind):
            return body[name]
    return None
