"""The local API's routes for tasks, and the command over them; the tasks themselves are a stand-in's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from postroom.http.server import HttpServer
from postroom.protocol.tasks import EXIT_CODES
from postroom.protocol.verbs import (
    AnswerTask,
    Artifact,
    AskAuth,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    Progress,
    Reject,
)
from postroom.sidecar.api import LocalApi
from postroom_a2a.task_state import TaskState
from tests.sidecar.inside import Shell
from tests.sidecar.task_stub import OWN, TaskStub

pytestmark = pytest.mark.anyio

UNKNOWN = "0" * 32


@dataclass
class Inside(Shell):
    """A running local API, seen by a program inside the sandbox."""

    tasks: TaskStub
    http: httpx2.AsyncClient

    async def task(self) -> str:
        """A task that the worker works on."""
        return (await self.tasks.delegate(Delegate(OWN, "", "add"))).task


async def ended(process: asyncio.subprocess.Process, stdin: str = "") -> tuple[int, str, str]:
    async with asyncio.timeout(30):
        out, err = await process.communicate(stdin.encode())
    return process.returncode or 0, out.decode().removesuffix("\n"), err.decode()


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    tasks, server = TaskStub(), HttpServer()
    api = LocalApi(tasks, {}, server.port)
    url = f"http://127.0.0.1:{server.port}"
    async with server.answer_with(api.handle), httpx2.AsyncClient(base_url=url) as http:
        yield Inside(url, tasks, http)


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_for_a_task_is_answered_with_the_task_and_who_does_it(inside: Inside):
    body = {"to": "@carol", "text": "add", "key": "k", "stream": True, "context": "talk"}
    answer = (await inside.http.post("/v1/delegate", json=body)).json()

    assert inside.tasks.asked == [Delegate("@carol", "", "add", "k", True, "talk")]
    assert answer["to"] == {"uid": "c" * 32, "nick": "carol"}
    view = (await inside.http.get(f"/v1/tasks/{answer['task']}")).json()
    assert (view["id"], view["state"]) == (answer["task"], "submitted")
    listed = (await inside.http.get("/v1/tasks?role=requester&open=1")).json()["tasks"]
    assert [view["id"] for view in listed] == [answer["task"]]


@pytest.mark.parametrize(
    "word, body, action",
    [
        ("update", {"text": "x"}, Progress("", "x")),
        ("artifact", {"text": "x"}, Artifact("", "x")),
        (
            "artifact",
            {"text": "x", "name": "n", "id": "i", "append": True, "last": False},
            Artifact("", "x", "n", "i", True, False),
        ),
        ("complete", {}, Complete("")),
        ("fail", {"text": "x"}, Fail("", "x")),
        ("reject", {"text": "x"}, Reject("", "x")),
        ("ask", {"text": "x"}, AskInput("", "x")),
        ("ask_auth", {"text": "x"}, AskAuth("", "x")),
        ("canceled", {}, Canceled("")),
    ],
)
async def test_what_is_said_of_the_current_task_or_of_a_named_one_is_done(
    inside: Inside, word: str, body: dict[str, Any], action: Any
):
    task = await inside.task()
    for name in ("current", task):
        answer = await inside.http.post(f"/v1/tasks/{name}/{word}", json=body)
        assert answer.status_code == 200

    first, second = inside.tasks.said
    assert first == action
    assert (second.task, type(second)) == (task, type(action))


async def test_a_task_that_the_agent_asked_for_is_canceled_or_answered(inside: Inside):
    task = await inside.task()
    await inside.tasks.on_task(AskInput("", "which?"))
    answer = await inside.http.post(f"/v1/tasks/{task}/answer", json={"text": "red"})
    assert answer.json()["state"] == "working"
    answer = await inside.http.post(f"/v1/tasks/{task}/cancel", json={"reason": "enough"})
    assert answer.json()["state"] == "canceled"

    assert inside.tasks.answered == [AnswerTask(task, "red")]
    assert inside.tasks.canceled == [CancelTask(task, "enough")]


async def test_a_wait_ends_with_the_task_or_with_its_time(inside: Inside):
    task = await inside.task()
    path = f"/v1/tasks/{task}?wait=1"
    assert (await inside.http.get(f"{path}&timeout=0.05")).json()["state"] == "submitted"

    waiting = asyncio.create_task(inside.http.get(path))
    await inside.tasks.on_task(Complete(task, "done"))
    assert (await waiting).json()["state"] == "completed"


async def test_no_wait_is_longer_than_a_minute(inside: Inside, monkeypatch: pytest.MonkeyPatch):
    asked: list[float] = []

    async def task(_: str, /, *, wait: bool, timeout: float) -> dict[str, Any]:
        asked.append(timeout)
        return {}

    monkeypatch.setattr(inside.tasks, "task", task)
    for timeout in ("86400", "inf", "", "7"):
        await inside.http.get(f"/v1/tasks/{UNKNOWN}?wait=1&timeout={timeout}")
    assert asked == [60, 60, 60, 7]


async def test_a_wrong_request_is_a_problem_and_changes_nothing(inside: Inside):
    for method, path, body, status in (
        ("POST", "/v1/delegate", {"text": "x"}, 422),
        ("POST", "/v1/delegate", {"to": "@carol"}, 422),
        ("POST", "/v1/delegate", {"skill": "s" * 201, "text": "x"}, 422),
        ("GET", "/v1/delegate", None, 404),
        ("GET", "/v1/tasks?role=boss", None, 422),
        ("GET", f"/v1/tasks/{UNKNOWN}", None, 404),
        ("GET", f"/v1/tasks/{UNKNOWN}?wait=1&timeout=soon", None, 422),
        ("GET", f"/v1/tasks/{UNKNOWN}?wait=1&timeout=nan", None, 422),
        ("GET", f"/v1/tasks/{UNKNOWN}/events", None, 404),
        ("POST", f"/v1/tasks/{UNKNOWN}/update", {"text": "x"}, 404),
        ("POST", "/v1/tasks/current/update", {}, 422),
        ("POST", "/v1/tasks/x/update", {"text": "x"}, 422),
        ("POST", "/v1/tasks/current/dance", {}, 404),
        ("POST", "/v1/tasks/current/cancel", {}, 422),
        ("POST", f"/v1/tasks/{UNKNOWN}/cancel", {"reason": "x" * 501}, 422),
        ("POST", f"/v1/tasks/{UNKNOWN}/answer", {}, 422),
    ):
        answer = await inside.http.request(method, path, json=body)

        assert answer.status_code == status, (method, path, body)
        assert answer.headers["content-type"] == "application/problem+json"
        assert not inside.tasks.asked


# ── by the command ───────────────────────────────────────────────────────────────────────────────────


async def test_the_command_gives_a_task_and_prints_its_id(inside: Inside):
    code, out, _ = await inside.run("delegate", "@carol", "add", "--key", "k")
    assert (code, out) == (0, await inside.tasks.until(1))
    assert await inside.run("delegate", "@carol", "--key", "k", stdin="add\n") == (0, out, "")
    await inside.run("delegate", "--skill", "sums", "add")
    await inside.run("delegate", "--skill", "sums", "@carol", "add")

    assert inside.tasks.asked == [
        Delegate("@carol", "", "add", "k"),
        Delegate("@carol", "", "add", "k"),
        Delegate("", "sums", "add"),
        Delegate("@carol", "sums", "add"),
    ]


@pytest.mark.requirement("task-kill-requester-told")
async def test_who_waits_for_a_task_sees_its_updates_and_then_its_result_alone_on_standard_output(
    inside: Inside,
):
    process = await inside.start("delegate", "@carol", "add", "--wait")
    task = await inside.tasks.until(1)
    assert process.stderr is not None
    assert await process.stderr.readline() == f"task {task} for @carol\n".encode()
    await inside.tasks.on_task(Artifact(task, "4\x1b[2J2"))
    await inside.tasks.on_task(Complete(task, "done"))

    code, out, err = await ended(process)
    assert (code, out) == (0, "42")
    assert err.endswith("completed: done\n")


@pytest.mark.parametrize(
    "action, state",
    [
        (Complete("", "done"), TaskState.COMPLETED),
        (Fail("", "no"), TaskState.FAILED),
        (Reject("", "no"), TaskState.REJECTED),
        (Canceled(""), TaskState.CANCELED),
    ],
)
async def test_the_exit_code_says_how_the_task_ended(inside: Inside, action: Any, state: TaskState):
    task = await inside.task()
    await inside.tasks.on_task(action)
    code, out, err = await inside.run("task", task, "--wait")

    assert code == EXIT_CODES[state.value]
    assert err.startswith(state.value)
    assert out == ("done" if state == TaskState.COMPLETED else "")


async def test_a_wait_that_is_over_or_a_question_has_its_own_exit_code(inside: Inside):
    task = await inside.task()
    code, out, err = await inside.run("task", task, "--wait", "--timeout", "0.1")
    assert (code, out, err) == (9, "", "submitted\nthe task has not ended in time\n")

    await inside.tasks.on_task(AskInput("", "which?"))
    code, _, err = await inside.run("task", task, "--wait")
    assert (code, err) == (
        9,
        f"input-required: which?\nanswer it with: postroom-agent answer {task} TEXT\n",
    )
    code, out, _ = await inside.run("answer", task, "red")
    assert (code, out) == (0, f"{task} @reader working: add")


async def test_tasks_are_listed_with_who_does_them_and_how_they_stand(inside: Inside):
    own = await inside.task()
    given = await inside.tasks.delegate(Delegate("@carol", "", "x\x1b[2J"))
    await inside.tasks.on_task(Progress(own, "half"))

    assert await inside.run("tasks", "--open") == (
        0,
        f"{own} @reader working: half\n{given.task} @carol submitted: x",
        "",
    )
    _, out, _ = await inside.run("tasks", "--role", "worker", "--json")
    assert json.loads(out)["id"] == own
    assert (await inside.run("task", own))[1] == f"{own} @reader working: half"
    assert (await inside.run("cancel", given.task, "--reason", "enough"))[0] == 0
    assert inside.tasks.canceled == [CancelTask(given.task, "enough")]


async def test_the_command_says_how_far_the_current_task_is(inside: Inside):
    task = await inside.task()
    await inside.run("update", "half")
    await inside.run("artifact", "--name", "sum", "--more", stdin="42\n")
    await inside.run("ask", "which?", "--task", task)
    assert await inside.run("complete") == (0, "", "")

    assert inside.tasks.said == [
        Progress("", "half"),
        Artifact("", "42", "sum", "", False, False),
        AskInput(task, "which?"),
        Complete(""),
    ]


async def test_a_refusal_has_its_exit_code(inside: Inside):
    for words, code in (
        (("delegate",), 2),
        (("delegate", "@carol", "a", "b"), 2),
        (("task", UNKNOWN), 4),
        (("task", UNKNOWN, "--wait"), 4),
        (("task", "../inbox"), 4),
        (("update", "x", "--task", UNKNOWN), 4),
        (("cancel", UNKNOWN), 4),
        (("cancel", "x"), 2),
        (("answer", UNKNOWN, "x"), 4),
    ):
        found, out, err = await inside.run(*words)

        assert (found, out) == (code, ""), words
        assert "postroom-agent: " in err
