"""The same scenarios, with the same outcome, by the SDK's default request handler and by ours."""

from __future__ import annotations

import asyncio
import contextvars
import json
from typing import Any

import pytest
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import RequestContext, SimpleRequestContextBuilder
from a2a.server.events import EventQueue
from a2a.server.id_generator import IDGenerator
from a2a.server.tasks import InMemoryPushNotificationConfigStore, TaskUpdater
from a2a.types import (
    AgentCard,
    Artifact,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidAgentResponseError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from library.agents import Agent, answers, asks, chunks, raises, text, waits
from library.front import artifacts, message
from library.handling.handlers import (
    BY_SDK,
    BY_US,
    CARD,
    PLAIN,
    Desk,
    Made,
    kinds,
    shown,
)
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.operations import Requester, SdkOperations

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("core-sdk-client")]

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


@pytest.fixture(params=[BY_SDK, BY_US], ids=["sdk", "postroom"])
def made(request: pytest.FixtureRequest) -> Made:
    return request.param


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-sdk-client")
async def test_a_blocking_send_returns_the_finished_task(made: Made) -> None:
    async with made(chunks) as desk:
        task = await desk.send("write")

        assert task.status.state == COMPLETED
        assert task.status.message.parts[0].text == "done"
        assert artifacts(task) == {"a": "one two"}
        assert [said.parts[0].text for said in task.history] == ["write"]
        assert await desk.get(task.id) == task


@pytest.mark.requirement("core-sdk-client")
async def test_a_stream_shows_every_event_in_order_and_ends_when_the_agent_returns(
    made: Made,
) -> None:
    async with made(chunks) as desk:
        events = await desk.stream("write")

        assert kinds(events) == [
            "Task",
            "TaskStatusUpdateEvent",
            "TaskArtifactUpdateEvent",
            "TaskArtifactUpdateEvent",
            "TaskStatusUpdateEvent",
        ]
        assert shown(events) == ["submitted", "working", "completed"]


async def test_a_message_is_the_whole_answer(made: Made) -> None:
    async with made(answers, quiet=True) as desk:
        said = await desk.send("hello?")
        streamed = await desk.stream("hello?")

        assert isinstance(said, Message)
        assert said.parts[0].text == "hello"
        assert kinds(streamed) == ["Message"]
        assert not (await desk.handler.on_list_tasks(ListTasksRequest(), desk.context)).tasks


async def test_a_message_is_returned_only_when_the_agent_returns(made: Made) -> None:
    async def slow(agent: Agent, context: RequestContext, queue: EventQueue, _: Any) -> None:
        await queue.enqueue_event(new_text_message("hello", task_id=context.task_id))
        agent.begun.set()
        await agent.gate.wait()

    async with made(slow, quiet=True) as desk:
        waiting = asyncio.create_task(desk.send("hello?"))
        await desk.agent.begun.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        desk.agent.gate.set()

        assert isinstance(await waiting, Message)


async def test_a_send_that_does_not_block_returns_the_task_as_it_began(made: Made) -> None:
    async with made(waits) as desk:
        task = await desk.send("write", return_immediately=True)
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED
        desk.agent.gate.set()
        await desk.until(task.id, COMPLETED)


async def test_a_task_that_is_completed_at_once_is_the_answer(made: Made) -> None:
    async def at_once(_: Any, context: RequestContext, queue: EventQueue, __: Any) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        task.status.state = COMPLETED
        await queue.enqueue_event(task)

    async with made(at_once, quiet=True) as desk:
        task = await desk.send("write")
        (streamed,) = await desk.stream("write")

        assert task.status.state == streamed.status.state == COMPLETED
        assert (await desk.get(task.id)) == task


async def test_an_artifact_may_come_before_a_task(made: Made) -> None:
    async def early(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.add_artifact(text("one"), artifact_id="a")
        await updater.complete()

    async with made(early, quiet=True) as desk:
        events = await desk.stream("write")
        task = await desk.get(events[0].task_id)

        assert kinds(events) == ["TaskArtifactUpdateEvent", "TaskStatusUpdateEvent"]
        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "one"}
        assert [said.parts[0].text for said in task.history] == ["write"]


async def test_an_artifact_is_replaced_extended_or_added(made: Made) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.add_artifact(text("1"), artifact_id="a", metadata={"x": 1, "y": 1})
        await updater.add_artifact(text("2"), artifact_id="a", metadata={"x": 2}, append=True)
        await updater.add_artifact(text("old"), artifact_id="b")
        await updater.add_artifact(text("new"), artifact_id="b")
        await updater.complete()

    async with made(work) as desk:
        task = await desk.send("write")

        assert artifacts(task) == {"a": "12", "b": "new"}
        assert dict(task.artifacts[0].metadata.items()) == {"x": 2, "y": 1}


async def test_status_messages_go_into_the_history_and_metadata_is_merged(made: Made) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        said = updater.new_agent_message(text("half"))
        await updater.update_status(WORKING, said, metadata={"x": 1})
        await updater.update_status(WORKING, metadata={"y": 2})
        await updater.complete()

    async with made(work) as desk:
        task = await desk.send("write")

        assert [said.parts[0].text for said in task.history] == ["write", "half"]
        assert dict(task.metadata.items()) == {"x": 1, "y": 2}
        assert not task.status.HasField("message")


async def test_history_is_as_long_as_the_call_wants(made: Made) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        for each in "abc":
            await updater.update_status(WORKING, updater.new_agent_message(text(each)))
        await updater.complete()

    async with made(work) as desk:
        task = await desk.send("write", history_length=2)
        assert [said.parts[0].text for said in task.history] == ["b", "c"]
        assert not (await desk.send("write", history_length=0)).history
        assert not (await desk.stream("write", history_length=0))[0].history
        assert len((await desk.get(task.id)).history) == 4
        assert len((await desk.get(task.id, history_length=1)).history) == 1
        for call in (desk.send("write", history_length=-1), desk.get(task.id, history_length=-1)):
            with pytest.raises(InvalidParamsError):
                await call


# ── what agents do wrong ────────────────────────────────────────────────────────────────────────────


async def test_an_exception_fails_the_task_and_is_raised(made: Made) -> None:
    async with made(raises) as desk:
        seen: list[Any] = []
        with pytest.raises(ValueError, match="no such poem"):
            await desk.streamed_into(seen, "write")
        with pytest.raises(ValueError, match="no such poem"):
            await desk.send("write")

        assert shown(seen) == ["submitted", "working"]
        task = await desk.get(seen[0].id)
        assert task.status.state == FAILED
        assert task.status.HasField("timestamp")


async def test_an_exception_before_any_event_leaves_a_failed_task(made: Made) -> None:
    async with made(raises, quiet=True) as desk:
        with pytest.raises(ValueError, match="no such poem"):
            await desk.send("write")
        (task,) = (await desk.handler.on_list_tasks(ListTasksRequest(), desk.context)).tasks

        assert task.status.state == FAILED
        assert [said.parts[0].text for said in task.history] == ["write"]


async def test_an_exception_after_a_failure_is_raised_too(made: Made) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.failed()
        raise ValueError("no such poem")

    async with made(work) as desk:
        with pytest.raises(ValueError, match="no such poem"):
            await desk.send("write")


async def test_a_failure_without_an_exception_is_the_answer(made: Made) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.failed(updater.new_agent_message(text("no paper")))

    async with made(work) as desk:
        task = await desk.send("write")

        assert task.status.state == FAILED
        assert task.status.message.parts[0].text == "no paper"


def _bad(*events: str) -> Any:
    """An agent that sends these, whatever the rules are."""

    async def work(_: Any, context: RequestContext, queue: EventQueue, __: Any) -> None:
        assert context.message is not None
        ids: Any = {"task_id": context.task_id, "context_id": context.context_id}
        made: dict[str, Any] = {
            "message": new_text_message("hello"),
            "task": new_task_from_user_message(context.message),
            "status": TaskStatusUpdateEvent(status=TaskStatus(state=WORKING), **ids),
            "artifact": TaskArtifactUpdateEvent(artifact=Artifact(artifact_id="a"), **ids),
            "append": TaskArtifactUpdateEvent(
                artifact=Artifact(artifact_id="none", parts=[Part(text="x")]), append=True, **ids
            ),
            "other task": Task(id="other", context_id=ids["context_id"]),
            "other context": Task(id=ids["task_id"], context_id="other"),
            "other status": TaskStatusUpdateEvent(
                task_id="other", context_id="x", status=TaskStatus(state=WORKING)
            ),
        }
        for event in events:
            await queue.enqueue_event(made[event])

    return work


@pytest.mark.parametrize(
    "events, error",
    [
        (("message", "message"), InvalidAgentResponseError),
        (("message", "task"), InvalidAgentResponseError),
        (("message", "status"), InvalidAgentResponseError),
        (("task", "message"), InvalidAgentResponseError),
        (("status",), InvalidAgentResponseError),
        (("task", "append"), InvalidAgentResponseError),
        (("other task",), InvalidParamsError),
        (("other context",), InvalidParamsError),
        (("task", "other status"), InvalidParamsError),
    ],
)
async def test_an_answer_against_the_rules_is_an_error_and_fails_the_task(
    made: Made, events: tuple[str, ...], error: type[Exception]
) -> None:
    async with made(_bad(*events), quiet=True) as desk:
        with pytest.raises(error) as unary:
            await desk.send("write")
        with pytest.raises(error) as streamed:
            await desk.stream("write")

        assert type(unary.value) is type(streamed.value) is error
        tasks = (await desk.handler.on_list_tasks(ListTasksRequest(), desk.context)).tasks
        assert [task.status.state for task in tasks] == [FAILED] * len(tasks)
        assert len(tasks) == (2 if events[0] == "task" else 0)


async def test_a_second_task_event_replaces_nothing(made: Made) -> None:
    async def work(_: Any, context: RequestContext, queue: EventQueue, updater: Any) -> None:
        assert context.message is not None
        second = new_task_from_user_message(context.message)
        second.metadata.update({"second": True})
        await queue.enqueue_event(second)
        await updater.complete()

    async with made(work) as desk:
        task = await desk.send("write")

        assert task.status.state == COMPLETED
        assert not task.HasField("metadata")


# ── follow-ups ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-answer-resumes")
async def test_a_question_is_answered_by_a_follow_up(made: Made) -> None:
    async with made(asks) as desk:
        asked = await desk.send("write")
        assert asked.status.state == INPUT_REQUIRED
        reply = message("red", task_id=asked.id, context_id=asked.context_id)
        task = await desk.send(reply)

        assert task.id == asked.id
        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "red"}
        assert [each.parts[0].text for each in task.history] == ["write", "which one?", "red"]
        first, second = desk.agent.shown
        assert first is None
        assert second == asked


async def test_a_stream_ends_with_a_question_and_goes_on_with_the_answer(made: Made) -> None:
    async with made(asks) as desk:
        events = await desk.stream("write")
        assert shown(events) == ["submitted", "working", "input_required"]
        task = events[0]
        more = await desk.stream(message("red", task_id=task.id, context_id=task.context_id))

        assert kinds(more) == [
            "TaskStatusUpdateEvent",
            "TaskArtifactUpdateEvent",
            "TaskStatusUpdateEvent",
        ]
        assert shown(more) == ["working", "completed"]


async def test_a_follow_up_waits_for_the_request_before_it(made: Made) -> None:
    async def work(agent: Agent, context: RequestContext, _: Any, updater: TaskUpdater) -> None:
        if len(agent.asked) == 1:
            agent.begun.set()
            await agent.gate.wait()
            return
        assert context.current_task is not None
        await updater.complete()

    async with made(work) as desk:
        task = await desk.send("write", return_immediately=True)
        await desk.agent.begun.wait()
        more = message("more", task_id=task.id, context_id=task.context_id)
        waiting = asyncio.create_task(desk.send(more))
        for _ in range(20):
            await asyncio.sleep(0)
        assert desk.agent.asked == ["write"]
        desk.agent.gate.set()

        assert (await waiting).status.state == COMPLETED
        assert desk.agent.asked == ["write", "more"]


async def test_a_follow_up_to_a_task_that_ends_first_gets_its_end(made: Made) -> None:
    async with made(waits) as desk:
        task = await desk.send("write", return_immediately=True)
        await desk.agent.begun.wait()
        more = message("more", task_id=task.id, context_id=task.context_id)
        waiting = asyncio.create_task(desk.send(more))
        for _ in range(20):
            await asyncio.sleep(0)
        desk.agent.gate.set()

        assert (await waiting).status.state == COMPLETED
        assert desk.agent.asked == ["write"]


async def test_a_follow_up_that_cannot_be_is_refused(made: Made) -> None:
    async with made(chunks) as desk:
        task = await desk.send("write")
        for said, error in (
            (message("more", task_id=task.id, context_id="elsewhere"), InvalidParamsError),
            (message("more", task_id="none"), TaskNotFoundError),
            (
                message("more", task_id=task.id, context_id=task.context_id),
                UnsupportedOperationError,
            ),
        ):
            with pytest.raises(error):
                await desk.send(said)
            with pytest.raises(error):
                await desk.stream(said)
        assert desk.agent.asked == ["write"]


async def test_a_new_task_is_begun_in_the_context_that_is_named(made: Made) -> None:
    async with made(chunks) as desk:
        first = await desk.send(message("write", context_id="poems"))
        second = await desk.send(message("write", context_id="poems"))

        assert first.context_id == second.context_id == "poems"
        assert first.id != second.id


async def test_the_same_message_twice_is_two_tasks(made: Made) -> None:
    async with made(chunks) as desk:
        said = message("write")
        same = Message.FromString(said.SerializeToString())

        assert (await desk.send(said)).id != (await desk.send(same)).id


async def test_each_execution_has_the_context_variables_of_its_caller(made: Made) -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="")
    seen: list[str] = []

    async def work(agent: Agent, context: RequestContext, _: Any, updater: TaskUpdater) -> None:
        seen.append(who.get())
        await asks(agent, context, None, updater)

    async with made(work) as desk:
        who.set("one")
        task = await desk.send("write")
        who.set("two")
        await desk.send(message("red", task_id=task.id, context_id=task.context_id))

        assert seen == ["one", "two"]


# ── cancel and subscribe ────────────────────────────────────────────────────────────────────────────


async def _working(desk: Desk) -> str:
    task = await desk.send("write", return_immediately=True)
    await desk.agent.begun.wait()
    await desk.until(task.id, WORKING)
    return task.id


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_cancel_reaches_the_executor_and_ends_its_work(made: Made) -> None:
    async with made(waits) as desk:
        streamed = asyncio.create_task(desk.stream("write"))
        await desk.agent.begun.wait()
        task = str(desk.agent.contexts[0].task_id)
        await desk.until(task, WORKING)
        canceled = await desk.cancel(task)

        assert canceled.status.state == CANCELED
        assert shown(await streamed) == ["submitted", "working", "canceled"]
        assert desk.agent.canceled == desk.agent.stopped == [task]
        with pytest.raises(TaskNotCancelableError):
            await desk.cancel(task)


async def test_a_task_that_asks_can_be_cancelled(made: Made) -> None:
    async with made(asks) as desk:
        task = await desk.send("write")

        assert (await desk.cancel(task.id)).status.state == CANCELED
        assert desk.agent.canceled == [task.id]


async def test_a_task_that_nobody_runs_is_cancelled_in_the_store(made: Made) -> None:
    async with made(chunks) as desk:
        task = Task(id="t", context_id="c", status=TaskStatus(state=WORKING))
        store = getattr(desk.handler, "task_store", None) or desk.handler._store
        await store.save(task, desk.context)

        assert (await desk.cancel("t")).status.state == CANCELED
        assert (await desk.get("t")).status.state == CANCELED
        assert desk.agent.canceled == []


class Refusing(Agent):
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise UnsupportedOperationError("never")


class Broken(Agent):
    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise ValueError("cannot")


@pytest.mark.parametrize("agent, error", [(Refusing, TaskNotCancelableError), (Broken, ValueError)])
async def test_a_cancel_that_the_executor_fails_to_do_fails_the_task(
    made: Made, agent: type[Agent], error: type[Exception]
) -> None:
    async with made(agent(waits)) as desk:
        task = await _working(desk)
        with pytest.raises(error):
            await desk.cancel(task)
        await desk.until(task, FAILED)


@pytest.mark.requirement("a2a-http")
async def test_a_subscriber_sees_the_task_then_what_follows_to_its_end(made: Made) -> None:
    async with made(waits) as desk:
        task = await _working(desk)
        async with asyncio.timeout(20):
            events: list[Any] = []
            async for event in desk.subscribe(task):
                # A copy: the SDK goes on changing the Task that it shows.
                events.append(type(event).FromString(event.SerializeToString()))
                desk.agent.gate.set()

        assert kinds(events[:1]) == ["Task"]
        assert shown(events) == ["working", "completed"]


async def test_a_subscriber_of_a_question_sees_what_the_answer_brings(made: Made) -> None:
    async with made(asks) as desk:
        task = await desk.send("write")
        events: list[Any] = []
        async with asyncio.timeout(20):
            async for event in desk.subscribe(task.id):
                events.append(type(event).FromString(event.SerializeToString()))
                if len(events) == 1:
                    reply = message("red", task_id=task.id, context_id=task.context_id)
                    await desk.send(reply, return_immediately=True)

        assert shown(events) == ["input_required", "working", "completed"]


async def test_a_task_that_has_ended_has_no_subscribers(made: Made) -> None:
    async with made(chunks) as desk:
        task = await desk.send("write")
        with pytest.raises(UnsupportedOperationError):
            await desk.follow(task.id)
        with pytest.raises(TaskNotFoundError):
            await desk.follow("none")


async def test_a_stream_that_is_left_leaves_the_task_running(made: Made) -> None:
    async with made(waits) as desk:
        task = await _working(desk)
        events = desk.subscribe(task)
        await anext(events)
        await events.aclose()
        desk.agent.gate.set()

        await desk.until(task, COMPLETED)


# ── the rest ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("org-no-subject-crosses")
async def test_anothers_task_looks_as_if_it_did_not_exist(made: Made) -> None:
    async with made(asks) as desk:
        task = await desk.send("write")
        mallory = Desk(desk.agent, desk.handler)
        for call in (
            mallory.get(task.id),
            mallory.cancel(task.id),
            mallory.follow(task.id),
            mallory.send(message("mine", task_id=task.id)),
        ):
            with pytest.raises(TaskNotFoundError):
                await call
        assert not (await desk.handler.on_list_tasks(ListTasksRequest(), mallory.context)).tasks


@pytest.mark.requirement("a2a-http")
async def test_tasks_are_listed_newest_first_in_pages(made: Made) -> None:
    async with made(chunks) as desk:

        async def listed(**options: Any) -> Any:
            return await desk.handler.on_list_tasks(ListTasksRequest(**options), desk.context)

        sent = [await desk.send(message("write", context_id=f"c{n}")) for n in range(3)]
        newest = [task.id for task in reversed(sent)]
        page = await listed(page_size=2)
        assert [task.id for task in page.tasks] == newest[:2]
        assert (page.total_size, page.page_size) == (3, 2)
        assert not page.tasks[0].artifacts
        page = await listed(page_size=2, page_token=page.next_page_token)
        assert [task.id for task in page.tasks] == newest[2:]
        assert not page.next_page_token
        (found,) = (await listed(context_id="c1", include_artifacts=True)).tasks
        assert artifacts(found) == {"a": "one two"}
        assert not (await listed(history_length=0)).tasks[0].history
        assert not (await listed(status=FAILED)).tasks
        assert len((await listed(status_timestamp_after=sent[1].status.timestamp)).tasks) == 2
        for wrong in ({"page_size": 0}, {"page_size": 101}, {"page_token": "no page"}):
            with pytest.raises(InvalidParamsError):
                await listed(**wrong)


class Sender:
    """Keeps what would be pushed; fails now and then."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def send_notification(self, task_id: str, event: Any) -> None:
        self.sent.append((task_id, type(event).__name__))
        if len(self.sent) == 2:
            raise ValueError("no network")


async def test_each_change_is_pushed_and_a_failing_push_harms_nothing(made: Made) -> None:
    sender = Sender()
    async with made(chunks, push_sender=sender) as desk:
        task = await desk.send("write")
        await desk.until(task.id, COMPLETED)

        assert sender.sent == [
            (task.id, kind)
            for kind in (
                "Task",
                "TaskStatusUpdateEvent",
                "TaskArtifactUpdateEvent",
                "TaskArtifactUpdateEvent",
                "TaskStatusUpdateEvent",
            )
        ]


async def test_push_settings_are_kept_read_listed_and_deleted(made: Made) -> None:
    async def allowed(url: str) -> bool:
        return "evil" not in url

    store = InMemoryPushNotificationConfigStore()
    options = {"push_config_store": store, "push_url_validator": allowed}
    async with made(asks, **options) as desk:
        handler, context = desk.handler, desk.context
        config = TaskPushNotificationConfig(url="http://hook.test/")
        task = await desk.send("write", task_push_notification_config=config)
        evil = TaskPushNotificationConfig(url="http://evil.test/")
        with pytest.raises(InvalidParamsError):
            await desk.send("write", task_push_notification_config=evil)
        evil.task_id = task.id
        with pytest.raises(InvalidParamsError):
            await handler.on_create_task_push_notification_config(evil, context)
        second = TaskPushNotificationConfig(task_id=task.id, id="two", url="http://hook.test/2")
        stored = await handler.on_create_task_push_notification_config(second, context)
        assert stored == second
        asked = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await handler.on_list_task_push_notification_configs(asked, context)
        assert sorted(each.id for each in listed.configs) == sorted([task.id, "two"])
        wanted = GetTaskPushNotificationConfigRequest(task_id=task.id, id="two")
        assert await handler.on_get_task_push_notification_config(wanted, context) == second
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="two")
        await handler.on_delete_task_push_notification_config(gone, context)
        with pytest.raises(TaskNotFoundError):
            await handler.on_get_task_push_notification_config(wanted, context)
        wanted.task_id = "none"
        with pytest.raises(TaskNotFoundError):
            await handler.on_get_task_push_notification_config(wanted, context)


async def test_a_client_of_0_3_reads_a_push_setting_by_its_task_alone(made: Made) -> None:
    async with made(asks, push_config_store=InMemoryPushNotificationConfigStore()) as desk:
        operations = SdkOperations(desk.handler, user=lambda _: Requester(desk.user))
        task = await desk.send("write")
        read = Call("1", "tasks/pushNotificationConfig/get", {"id": task.id})
        with pytest.raises(RpcError) as none:
            await operations.answer(read)
        assert none.value.code == Code.TASK_NOT_FOUND
        for config_id in ("two", ""):  # the one without an id has that of the task
            config = TaskPushNotificationConfig(
                task_id=task.id, id=config_id, url="http://hook.test/"
            )
            await desk.handler.on_create_task_push_notification_config(config, desk.context)
            found = json.loads(await operations.answer(read))
            assert found["pushNotificationConfig"]["id"] == (config_id or task.id)


async def test_what_the_card_does_not_offer_is_refused(made: Made) -> None:
    config = TaskPushNotificationConfig(task_id="t", url="http://hook.test/")
    card = GetExtendedAgentCardRequest()
    async with made(chunks, agent_card=PLAIN) as desk:
        for call in (desk.stream("write"), desk.follow("t")):
            with pytest.raises(UnsupportedOperationError, match="Streaming"):
                await call
        with pytest.raises(PushNotificationNotSupportedError):
            await desk.handler.on_create_task_push_notification_config(config, desk.context)
        with pytest.raises(UnsupportedOperationError):
            await desk.handler.on_get_extended_agent_card(card, desk.context)
        assert desk.agent.asked == []
    async with made(chunks) as desk:
        with pytest.raises(PushNotificationNotSupportedError):
            await desk.handler.on_create_task_push_notification_config(config, desk.context)
        with pytest.raises(ExtendedAgentCardNotConfiguredError):
            await desk.handler.on_get_extended_agent_card(card, desk.context)


async def test_the_extended_card_is_made_for_its_caller(made: Made) -> None:
    async def named(card: AgentCard, context: Any) -> AgentCard:
        return AgentCard(name=f"{card.name} for {context.user.user_name}")

    asked = GetExtendedAgentCardRequest()
    async with made(chunks, extended_agent_card=CARD) as desk:
        assert await desk.handler.on_get_extended_agent_card(asked, desk.context) == CARD
    async with made(chunks, extended_agent_card=CARD, extended_card_modifier=named) as desk:
        card = await desk.handler.on_get_extended_agent_card(asked, desk.context)
        assert card.name == f"poet for {desk.user}"


async def test_media_types_that_the_card_does_not_name_are_refused_if_wanted(made: Made) -> None:
    async with made(chunks, validate_input_modes=True) as desk:
        said = message("write")
        said.parts[0].media_type = "image/png"
        with pytest.raises(ContentTypeNotSupportedError):
            await desk.send(said)
        said.parts[0].media_type = "text/plain"
        assert (await desk.send(said)).status.state == COMPLETED


class Numbers(IDGenerator):
    def __init__(self, word: str) -> None:
        self.word, self.last = word, 0

    def generate(self, context: Any) -> str:
        self.last += 1
        return f"{self.word}-{self.last}"


async def test_a_builder_of_request_contexts_gives_ids_and_related_tasks(made: Made) -> None:
    builder = SimpleRequestContextBuilder(
        task_id_generator=Numbers("task"), context_id_generator=Numbers("context")
    )
    async with made(asks, request_context_builder=builder) as desk:
        task = await desk.send("write")
        assert (task.id, task.context_id) == ("task-1", "context-1")
        reply = message("red", task_id=task.id, context_id=task.context_id)

        assert (await desk.send(reply)).status.state == COMPLETED


async def test_a_request_without_its_required_fields_is_refused(made: Made) -> None:
    async with made(chunks) as desk:
        for wrong in (message("write", message_id=""), Message(message_id="m"), Message()):
            with pytest.raises(InvalidParamsError) as error:
                await desk.send(wrong)
            assert error.value.data is not None
            assert error.value.data["errors"]
        with pytest.raises(InvalidParamsError):
            await desk.handler.on_get_task(GetTaskRequest(), desk.context)
        assert desk.agent.asked == []


async def test_a_closed_handler_takes_nothing_and_leaves_nothing_running(made: Made) -> None:
    before = asyncio.all_tasks()
    async with made(waits) as desk:
        task = await _working(desk)
        await desk.handler.aclose()

        assert desk.agent.stopped == [task]
        assert (await desk.get(task)).status.state == WORKING
        assert asyncio.all_tasks() == before
        with pytest.raises(Exception, match="clos"):
            await desk.send("write")
        await desk.handler.aclose()
