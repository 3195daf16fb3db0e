"""A2A's operations on push notification configs, over any implementation of their port."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom_a2a.errors import NotFound
from postroom_a2a.json_operations import JsonOperations
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import PushConfig, PushConfigPage, Submitted, TaskVersion
from postroom_a2a.tasks import Message, new_task

pytestmark = pytest.mark.anyio

URL = "https://hooks.example/a"
SAID: Message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "do it"}]}


class Tasks:
    """One task `t1`, which is asked for by every send."""

    def __init__(self) -> None:
        self.asked = 0

    async def submit(self, _message: Message, _requester: str, *, follow: bool) -> Submitted:
        self.asked += 1
        return Submitted("t1")

    async def get(self, _task: str, _requester: str) -> TaskVersion:
        return TaskVersion(new_task("t1", "talk", SAID, 0.0), 7)

    async def answer(self, *_: Any) -> bool:
        return False


class Configs:
    """Configs of the task `t1` in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], PushConfig] = {}
        self.after: list[int | None] = []

    async def check(self, _config: PushConfig, _requester: str) -> None:
        pass

    async def create(
        self, config: PushConfig, requester: str, *, after: int | None = None
    ) -> PushConfig:
        if config.task != "t1":
            raise NotFound("no such task")
        self.after.append(after)
        self.kept[requester, config.id] = config
        return config

    async def get(self, _task: str, config: str, requester: str) -> PushConfig | None:
        return self.kept.get((requester, config))

    async def list(self, _task: str, requester: str, *, limit: int, page: str) -> PushConfigPage:
        own = [each for (of, _), each in self.kept.items() if of == requester]
        start = int(page or 0)
        more = str(start + limit) if len(own) > start + limit else ""
        return PushConfigPage(own[start : start + limit], more)

    async def delete(self, _task: str, config: str, requester: str) -> None:
        self.kept.pop((requester, config), None)


class Server:
    """The operations, as a caller sees them."""

    def __init__(self, *, push: bool = True) -> None:
        self.tasks, self.configs = Tasks(), Configs()
        configs = self.configs if push else None
        self.operations = JsonOperations(self.tasks, push=configs)  # ty: ignore[invalid-argument-type]

    async def call(self, method: str, params: Any, caller: str = "anna", **more: Any) -> Any:
        call = Call(1, method, params, caller=caller, **more)
        return json.loads(await self.operations.answer(call))

    async def error(self, method: str, params: Any) -> RpcError:
        with pytest.raises(RpcError) as refused:
            await self.call(method, params)
        return refused.value


def sending(**configuration: Any) -> dict[str, Any]:
    return {"message": SAID, "configuration": {"returnImmediately": True, **configuration}}


async def test_a_config_is_made_read_listed_in_pages_and_deleted_as_often_as_one_likes():
    server = Server()
    for number in range(3):
        given = {"taskId": "t1", "id": f"c{number}", "url": URL}
        assert await server.call("CreateTaskPushNotificationConfig", given) == given
    one = {"taskId": "t1", "id": "c1"}
    assert (await server.call("GetTaskPushNotificationConfig", one))["url"] == URL

    page = await server.call("ListTaskPushNotificationConfigs", {"taskId": "t1", "pageSize": 2})
    assert [each["id"] for each in page["configs"]] == ["c0", "c1"]
    rest = {"taskId": "t1", "pageSize": 2, "pageToken": page["nextPageToken"]}
    page = await server.call("ListTaskPushNotificationConfigs", rest)
    assert ([each["id"] for each in page["configs"]], page["nextPageToken"]) == (["c2"], "")

    for _ in range(2):
        assert await server.call("DeleteTaskPushNotificationConfig", one) == {}
    assert (await server.error("GetTaskPushNotificationConfig", one)).code == Code.TASK_NOT_FOUND


async def test_a_secret_is_kept_and_never_comes_back():
    server = Server()
    given = {
        "task_id": "t1",
        "id": "c",
        "url": URL,
        "token": "said-once",
        "authentication": {"scheme": "Bearer", "credentials": "so-secret"},
    }
    made = await server.call("CreateTaskPushNotificationConfig", given)
    named = await server.call("GetTaskPushNotificationConfig", {"taskId": "t1", "id": "c"})
    listed = await server.call("ListTaskPushNotificationConfigs", {"taskId": "t1"})
    assert made == named == listed["configs"][0]
    assert made["authentication"] == {"scheme": "Bearer"}
    kept = server.configs.kept["anna", "c"]
    assert (kept.token, kept.credentials) == ("said-once", "so-secret")
    for text in (json.dumps([made, listed]), repr(kept)):
        assert "said-once" not in text
        assert "so-secret" not in text


async def test_a_config_in_a_send_is_about_every_change_of_that_task_in_the_callers_version():
    server = Server()
    params = sending(taskPushNotificationConfig={"url": URL})
    await server.call("SendMessage", params, version="0.3")
    async for _ in server.operations.stream(Call(2, "SendStreamingMessage", params, caller="anna")):
        break
    answering = {**params, "message": {**SAID, "taskId": "t1"}}
    await server.call("SendMessage", answering)
    # An answer is pushed from the question on.
    assert server.configs.after == [0, 0, 7]
    assert server.configs.kept["anna", ""].version == "1.0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": ""},
        {"url": 7},
        {"url": "ftp://hooks.example/"},
        {"url": "/a"},
        {"url": "https://"},
        {"url": "https://hooks.example:port/"},
        {"url": "https://me:secret@hooks.example/"},
        {"url": "https://hooks.example/a b"},
        {"url": "https://hooks.example/\r\nx: y"},
        {"url": "https://hooks.example/" + 2048 * "a"},
        {"url": URL, "token": "two\r\nlines"},
        {"url": URL, "token": 4097 * "a"},
        {"url": URL, "authentication": "Bearer"},
        {"url": URL, "authentication": {"scheme": "Bearer x"}},
        {"url": URL, "authentication": {"scheme": "Bearer", "credentials": "\n"}},
        {"url": URL, "id": 1000 * "a"},
        {"url": URL, "taskId": "another"},
    ],
)
async def test_what_no_push_can_go_to_is_refused_before_there_is_a_task(wrong: dict[str, Any]):
    server = Server()
    refused = await server.error("SendMessage", sending(taskPushNotificationConfig=wrong))
    assert refused.code == Code.INVALID_PARAMS
    assert server.tasks.asked == 0


async def test_without_push_notifications_each_of_their_methods_says_so():
    server = Server(push=False)
    for method in ("Create", "Get", "Delete"):
        refused = await server.error(f"{method}TaskPushNotificationConfig", {"taskId": "t1"})
        assert refused.code == Code.PUSH_NOTIFICATION_NOT_SUPPORTED
    refused = await server.error("ListTaskPushNotificationConfigs", {"taskId": "t1"})
    assert refused.code == Code.PUSH_NOTIFICATION_NOT_SUPPORTED
    refused = await server.error("SendMessage", sending(taskPushNotificationConfig={"url": URL}))
    assert refused.code == Code.PUSH_NOTIFICATION_NOT_SUPPORTED
    assert server.tasks.asked == 0


async def test_another_agents_task_looks_absent():
    given = {"taskId": "another", "id": "c", "url": URL}
    refused = await Server().error("CreateTaskPushNotificationConfig", given)
    assert (refused.code, refused.about["taskId"]) == (Code.TASK_NOT_FOUND, "another")
