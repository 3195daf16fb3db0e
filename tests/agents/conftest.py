"""A post room with real coding agents in their sandboxes, and a fake model outside, behind the gateway."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.agents.programs import Agent, installed
from tests.e2e.conftest import PostRoom, until
from tests.fakes.model.server import FakeModel, Request
from tests.workspaces.bench import QUIET

SECRET = "sk-real-4b2f90"


T = TypeVar("T")

DIALECT = {"ann": "/messages", "cody": "/responses"}


def awaited(find: Callable[[], T | None]) -> T:
    """What is found in the end."""
    found = until(find)
    assert found is not None
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, with theirs."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]
    return children + [one for child in children for one in descendants(child)]


def is_agent(pid: int) -> bool:
    """Whether a process is an agent's program."""
    try:
        program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False
    return program.endswith((b"/claude", b"/bin/codex"))


class AgentsRoom(PostRoom):
    """A post room whose operator has opened the fake model.

    Attributes:
        model: asked by all agents of this room.
    """

    model: FakeModel

    def hire(self, template: str, agent: Agent, nick: str, *words: str) -> dict[str, Any]:
        """Spawn a coding agent of a template that Postroom brings."""
        program = installed(agent)
        place = ("scheme=http", f"host=127.0.0.1:{self.model.port}", f"program={program}")
        settings = [word for one in place for word in ("--set", one)]
        return self.json("spawn", template, "--name", nick, *settings, *words)

    def keep_keys(self) -> None:
        """Keep the keys of both agents' models, and let git look at nothing of this machine."""
        self.env |= QUIET
        at = ("--host", f"http://127.0.0.1:{self.model.port}", "--header")
        for name, header in (
            ("anthropic", "x-api-key: {secret}"),
            ("openai", "Authorization: Bearer {secret}"),
        ):
            self.run("credential", "add", name, *at, header, given=SECRET + "\n")

    def get(self, path: str, **query: Any) -> Any:
        """What the API answers."""
        with self.client() as client:
            return client.transport.call("GET", path, params=query)

    def control(self, nick: str, **body: Any) -> Any:
        """Answer an approval of a worker, or interrupt it."""
        with self.client() as client:
            return client.transport.call("POST", f"/v1/workers/{nick}/control", json=body)

    def await_approval(self, task: str) -> dict[str, Any]:
        """The approval that a task waits for."""

        def found() -> dict[str, Any] | None:
            pending = self.get("/v1/approvals", state="pending")["approvals"]
            return next((one for one in pending if one.get("task") == task), None)

        return awaited(found)

    def delegate(self, nick: str, text: str) -> str:
        """Hand a task over; its id."""
        return self.json("delegate", f"@{nick}", text)["id"]

    def await_task(self, task: str, *states: str) -> dict[str, Any]:
        """The task once it is in one of these states."""

        def found() -> dict[str, Any] | None:
            said = self.get(f"/v1/tasks/{task}")
            return said if said["state"] in states else None

        return awaited(found)

    def events(self, nick: str, *kinds: str) -> list[dict[str, Any]]:
        """What a worker's agent has done."""
        found = self.get(f"/v1/workers/{nick}/sdk-events", limit=500)
        return [event for event in found["events"] if not kinds or event["type"] in kinds]

    def events_of(self, task: str, *kinds: str) -> list[dict[str, Any]]:
        """What was done for a task so far."""
        nick = self.get(f"/v1/tasks/{task}")["worker"]["nick"]
        return [event for event in self.events(nick, *kinds) if event.get("task") == task]

    def events_at_end(self, task: str, *kinds: str) -> list[dict[str, Any]]:
        """What was done for a task, once its result is told. The task's end comes by another way: it may be first."""
        until(lambda: self.events_of(task, "result"))
        return self.events_of(task, *kinds)

    def asked(self, text: str, nick: str) -> list[Request]:
        """The model's requests of an agent whose last prompt has this text."""
        dialect = DIALECT[nick]
        return [
            request
            for request in self.model.asked()
            if dialect in request.path and text in request.conversation.user
        ]

    def decide(self, nick: str, approval: str, decision: str, **more: Any) -> Any:
        """Answer an approval."""
        return self.control(
            nick, type="control_response", id=approval, decision=decision, channel="api", **more
        )

    def allow(self, nick: str, task: str) -> None:
        """Allow what a task asks next."""
        self.decide(nick, self.await_approval(task)["id"], "allowed")

    def reply_to(self, message: str) -> dict[str, Any] | None:
        """The answer to a message, once it is there."""
        inbox = self.json("inbox")["messages"]
        return next((one for one in inbox if one.get("reply_to") == message), None)

    def program_of(self, nick: str) -> int:
        """The process of a worker's agent."""
        found = [pid for pid in descendants(self.worker(nick)["pid"]) if is_agent(pid)]
        assert len(found) == 1, found
        return found[0]

    def sidecar_of(self, nick: str) -> int:
        """The process of a worker's sidecar: the parent of its agent."""
        status = Path(f"/proc/{self.program_of(nick)}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))

    def await_event(self, nick: str, kind: str, **fields: Any) -> dict[str, Any]:
        """The first event of that kind with these fields."""

        def found() -> dict[str, Any] | None:
            said = self.events(nick, kind)
            return next((one for one in said if fields.items() <= one.items()), None)

        return awaited(found)


@contextmanager
def agents_room() -> Generator[AgentsRoom]:
    """A post room that is up, with the model's key in it."""
    with FakeModel() as model, tempfile.TemporaryDirectory(prefix="postroom-agents-") as scratch:
        room = AgentsRoom(Path(scratch) / "state", Path(scratch))
        room.model = model
        room.env["POSTROOM_EGRESS_ALLOW_PRIVATE"] = f"127.0.0.1:{model.port}"
        room.up()
        try:
            yield room
        finally:
            room.call("down")
