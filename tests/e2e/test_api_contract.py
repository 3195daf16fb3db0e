"""The HTTP API of a real post room does what its document says, whatever is asked, and tells nobody what is another's.

Schemathesis makes the requests from the document, and checks the answers; each request comes as one of several
principals. What is another's holds words that are nowhere else: no answer may have one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import pytest
import requests
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.generation.case import Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.control.conforming import Contract
from tests.e2e.conftest import PostRoom, running_room

pytestmark = pytest.mark.timeout(300)
CANARY = "canary-7f3a91"
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAM = "text/event-stream"

NOT_AS_OWNER = {
    # They end the server, or take seconds each; others are refused there like anywhere.
    "POST /v1/shutdown",
    "POST /v1/backup",
    "POST /v1/orgs",
    "DELETE /v1/orgs/{name}",
    "POST /v1/trust/rotate",
    "POST /v1/agents/remote",  # asks a server elsewhere for its card
}


@dataclass
class Site:
    """A post room with several principals, and what is none of their business."""

    room: PostRoom
    document: dict[str, Any]
    contract: Contract
    keys: dict[str, str]
    secret: dict[str, str] = field(default_factory=dict)
    """Ids of what is another's, by the name of the path's parameter."""
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def url(self) -> str:
        return self.room.server["url"]

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[who]}"}

    def call(self, who: str, method: str, path: str, **more: Any) -> requests.Response:
        return self.session.request(
            method, self.url + path, headers=self.headers(who), timeout=20, **more
        )

    def made(self, who: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.call(who, "POST", path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_room(POSTROOM_LIMIT_STRANGERS="100000") as room:
        yield opened(room)


def opened(room: PostRoom) -> Site:
    """Principals, and canaries in the mail, the tasks and the blobs of one who is none of them, and elsewhere."""
    document = requests.get(f"{room.server['url']}/v1/openapi.json", timeout=20).json()
    site = Site(room, document, Contract(document), {"owner": room.server["token"]})

    def person(nick: str, *scopes: str) -> None:
        made = site.made("owner", "/v1/people", {"nick": nick, "scopes": scopes})
        site.keys[nick] = made["key"]["key"]

    person("reader", "read")
    person("member", "read", "send", "task")
    person("victim", "read", "send", "task")
    for nick in ("outside", "robot"):
        card = {"name": nick, "description": "It tests."}
        agent = site.made("owner", "/v1/agents", {"nick": nick, "card": card})
        site.keys[nick] = agent["key"]["key"]

    def said(what: str) -> dict[str, Any]:
        return {"text": f"{CANARY} {what}", "subject": f"{CANARY} subject", "thread": "private"}

    mail = site.made("victim", "/v1/messages", {"to": "@robot", **said("mail")})
    task = site.made("victim", "/v1/tasks", {"to": "@robot", **said("task")})
    content = f"{CANARY} blob".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    stored = site.call("victim", "PUT", f"/v1/blobs/{sha256}", data=content)
    assert stored.status_code == 201
    site.secret |= {"message_id": mail["id"], "task": task["id"], "sha256": sha256}
    site.secret |= {"letter": mail["id"], "ref": "@victim"}
    site.made("owner", "/v1/orgs", {"name": "acme"})
    there = "/orgs/acme/v1/projects/main/posts"
    site.made("owner", there, {"text": f"{CANARY}-acme post"})
    return site


# ── what the document allows ─────────────────────────────────────────────────────────────────────


def asked(site: Site, who: str, case: Case) -> None:
    """Send a request as `who`, and hold the answer against the document."""
    operation = case.operation
    label = f"{operation.method.upper()} {operation.path}"
    if who == "owner" and label in NOT_AS_OWNER:
        return
    # A wait may be long; here nothing happens that is waited for.
    for name in {"wait", "timeout"} & set(case.query or {}):
        if name == "timeout" or operation.path.endswith("/inbox"):
            case.query[name] = 0.01
    if (case.query or {}).get("follow"):
        case.query["follow"] = False
    if isinstance(case.body, dict):
        for name in {"wait", "timeout"} & set(case.body):
            case.body[name] = 0.01
    sent = case.as_transport_kwargs(base_url=site.url, headers=site.headers(who))
    answer = site.session.request(**sent, timeout=20, stream=True)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    body = beginning(answer) if kind == STREAM else answer.content
    if kind == STREAM:
        answer._content = b""
    case.validate_response(answer, checks=CHECKS[:3] if kind == STREAM else CHECKS)
    path = urlsplit(answer.request.url or "").path
    site.contract.check(case.method, path, answer.status_code, kind, body)
    assert canary_of(who) not in body, f"{label} as {who}"


def canary_of(who: str) -> bytes:
    """What `who` must not see: the owner sees all of the default organisation."""
    return (f"{CANARY}-acme" if who == "owner" else CANARY).encode()


def beginning(answer: requests.Response) -> bytes:
    """The first piece of a stream, which has what there is already."""
    piece = next(answer.iter_content(65536), b"")
    answer.close()
    return piece


def everything(
    site: Site, mode: GenerationMode, examples: int, send: Callable[[str, Case], None]
) -> int:
    """Ask every route `examples` times, as any of the principals; returns how many requests were made."""
    count = 0
    schema = openapi.from_dict(site.document)
    found: list[Any] = list(schema.get_all_operations())
    for operation in (each.ok() for each in found):

        @hypothesis.seed(13)
        @hypothesis.settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(
            case=operation.as_strategy(generation_mode=mode),
            who=st.sampled_from(["owner", "reader", "member", "outside"]),
        )
        def ask(case: Case, who: str) -> None:
            nonlocal count
            count += 1
            send(who, case)

        with suppress(Unsatisfiable):  # nothing of it can be wrong
            ask()
    return count


@pytest.mark.requirement("api-as-described", "key-sees-own-alone")
def test_no_request_makes_an_answer_that_the_document_does_not_have(site: Site) -> None:
    asks = everything(site, GenerationMode.POSITIVE, 3, lambda who, case: asked(site, who, case))
    assert asks > 150


@pytest.mark.requirement("api-as-described")
def test_what_the_document_does_not_allow_is_refused_as_it_says(site: Site) -> None:
    asks = everything(site, GenerationMode.NEGATIVE, 1, lambda who, case: asked(site, who, case))
    assert asks > 40


@pytest.mark.slow
@pytest.mark.requirement("api-as-described", "key-sees-own-alone")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_at_all_makes_an_answer_that_the_document_does_not_have(
    site: Site, mode: GenerationMode
) -> None:
    everything(site, mode, 60, lambda who, case: asked(site, who, case))


# ── what is another's ────────────────────────────────────────────────────────────────────────────

BODIES = {
    # Of routes that would change what is another's, if they let one.
    "/v1/tasks/{task}/answer": {"text": "yes"},
    "/v1/tasks/{task}/status": {"state": "completed", "text": "done"},
    "/v1/tasks/{task}/artifacts": {"name": "x", "text": "x"},
    "/v1/inbox/ack": None,
}


@pytest.mark.requirement("key-sees-own-alone")
@pytest.mark.parametrize("who", ["reader", "member", "outside"])
def test_who_knows_the_ids_of_what_is_anothers_gets_none_of_it(site: Site, who: str) -> None:
    before = site.call("victim", "GET", f"/v1/tasks/{site.secret['task']}").json()
    seen = []
    for prefix in ("", "/orgs/acme"):
        for path, operations in site.document["paths"].items():
            for method, operation in operations.items():
                named = {
                    part["name"] for part in operation.get("parameters", ()) if part["in"] == "path"
                }
                if path.startswith("/v1/projects") and method == "post":
                    continue
                filled = prefix + path.format(
                    **{name: site.secret.get(name, "x") for name in named}
                )
                query = {
                    "chat": "@victim",
                    "worker": "@robot",
                    "requester": "@victim",
                    "text": CANARY,
                }
                for more in ({},) if prefix else ({}, query):
                    answer = site.call(
                        who, method.upper(), filled, json=BODIES.get(path), params=more, stream=True
                    )
                    kind = answer.headers.get("content-type", "").partition(";")[0]
                    body = beginning(answer) if kind == STREAM else answer.content
                    assert canary_of(who) not in body, f"{method} {filled} {more}"
                    if named & {"task", "message_id", "letter", "sha256"}:
                        seen.append((method, filled, answer.status_code))
                    if prefix and operation["security"]:
                        assert answer.status_code in (401, 403, 404, 405), f"{method} {filled}"
    assert {status for _, _, status in seen} <= {401, 403, 404, 405, 422}, seen
    assert site.call("victim", "GET", f"/v1/tasks/{site.secret['task']}").json() == before
