"""The SDK's own client sets, lists and deletes push notification configs, over each binding and version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from google.protobuf.json_format import ParseDict

from a2a import types
from tests.a2a_http.test_control_plane import CARD, sdk_client, text
from tests.control.taskroom import KEY, SECONDS, TaskRoom, emptied, task_room
from tests.push.receivers import receiver
from tests.push.test_room import done, open_for

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_official_client_configures_pushes_and_its_types_read_what_comes(
    shared: TaskRoom, binding: str, version: str
):
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        emptied(shared) as room,
        receiver() as sent_with,
        receiver() as added,
        receiver() as removed,
        httpx.AsyncClient(headers=headers, timeout=SECONDS) as http,
        asyncio.timeout(SECONDS),
    ):
        open_for(room, sent_with, added, removed)
        bob = await room.worker("bob")
        card = (await http.get(f"http://{room.site.host}/a2a/bob/{CARD}")).json()
        assert card["capabilities"]["pushNotifications"] is True
        client = sdk_client(card, binding, version, http)
        configuration = SendMessageConfiguration(
            return_immediately=True,
            task_push_notification_config=TaskPushNotificationConfig(
                url=sent_with.url, token="of the send"
            ),
        )
        said = text(f"push-{binding}-{version}", "do it")
        request = SendMessageRequest(message=said, configuration=configuration)
        (event,) = [event async for event in client.send_message(request)]
        task = event.task.id

        authentication = AuthenticationInfo(scheme="Bearer", credentials="secret")
        for name, hook in (("added", added), ("removed", removed)):
            made = await client.create_task_push_notification_config(
                TaskPushNotificationConfig(
                    task_id=task, id=name, url=hook.url, authentication=authentication
                )
            )
            assert (made.task_id, made.id, made.url) == (task, name, hook.url)
        got = await client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task, id="added")
        )
        assert (got.url, got.authentication.credentials) == (added.url, "")
        if (binding, version) == ("HTTP+JSON", "0.3"):  # where the client has no method for it
            path = f"http://{room.site.host}/a2a/bob/v1/tasks/{task}/pushNotificationConfigs"
            old = {"A2A-Version": "0.3"}
            assert (await http.delete(f"{path}/removed", headers=old)).is_success
            found = (await http.get(path, headers=old)).json()["configs"]
            urls = [each["pushNotificationConfig"]["url"] for each in found]
        else:
            await client.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(task_id=task, id="removed")
            )
            listed = await client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=task)
            )
            urls = [config.url for config in listed.configs]
        assert sorted(urls) == sorted((added.url, sent_with.url))

        await done(bob, task)
        first = await sent_with.until(3)
        second = await added.until(3)
        assert removed.got == []
        assert first[0].headers["x-a2a-notification-token"] == "of the send"
        assert second[0].headers["authorization"] == "Bearer secret"
        assert [each.body for each in first] == [each.body for each in second] or version == "0.3"
        last = first[-1].said
        if version == "1.0":
            read = ParseDict(last, types.StreamResponse())
            state = read.status_update.status.state
            assert state == types.TaskState.TASK_STATE_COMPLETED
        else:
            from a2a.compat.v0_3.types import Task

            assert Task.model_validate(last).status.state.value == "completed"
