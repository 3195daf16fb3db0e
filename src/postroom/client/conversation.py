"""What an `Agent` holds in its hand: a message, a task that it has given, a task that it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from postroom.client.said import Part, Sayable, said
from postroom.errors import Conflict, PostroomError
from postroom.observe import get_logger
from postroom_a2a.task_state import TaskState

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.client.stream import Event

T = TypeVar("T")

log = get_logger(__name__)

QUESTIONS = frozenset({TaskState.INPUT_REQUIRED.value, TaskState.AUTH_REQUIRED.value})


class Holder(Protocol):
    """The `Agent` that holds them: what they ask of it."""

    client: AsyncClient

    @property
    def send(self) -> Callable[..., Awaitable[Message]]:
        """Sends a message."""
        ...

    async def acknowledge(self, message_id: str, state: str) -> None:
        """Say how far a message to it has come."""

    async def surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call` returns, however long the post room is away."""
        ...


class Message:
    """A message to this agent, or from it.

    Attributes:
        json: as the API has it (docs/api.md, Objects).
        sender, recipient: nicks, as `@nick`.
        text: the text parts together.
        task: id of the task that it requests, "" for none.
        redelivered: it may have been given to this agent before; what it asks for may be done already.
    """

    def __init__(self, agent: Holder, json: dict[str, Any]) -> None:
        self._agent = agent
        self._replies = 0
        self.json = json
        self.id: str = json["id"]
        self.sender = f"@{json['from']['nick']}"
        self.recipient = f"@{json['to']['nick']}"
        self.text: str = json["text"]
        self.subject: str = json.get("subject") or ""
        self.thread: str = json.get("thread") or ""
        self.state: str = json["state"]
        self.reply_to: str = json.get("reply_to") or ""
        self.expects_reply: bool = json["expects_reply"]
        self.task: str = json.get("task") or ""
        self.redelivered: bool = bool(json.get("redelivered"))

    @property
    def parts(self) -> list[Part]:
        """Everything that was said."""
        return [Part(self._agent.client, part) for part in self.json.get("parts") or ()]

    async def reply(self, *what: Sayable, **more: Any) -> Message:
        """Answer; `more` as for `Agent.send`.

        The key of a reply follows from this message: after a crash, the same reply again is not sent twice.
        """
        self._replies += 1
        more.setdefault("key", f"reply:{self.id}:{self._replies}")
        more.setdefault("thread", self.thread)
        return await self._agent.send(self.json["from"]["uid"], *what, reply_to=self.id, **more)

    async def seen(self) -> None:
        """Confirm it now; the iteration does that when it is asked for the next message."""
        await self._agent.acknowledge(self.id, "seen")


class GivenTask:
    """A task that this agent has given to another. `await task` waits for its end.

    Attributes:
        json: as the API had it last.
    """

    def __init__(self, agent: Holder, json: dict[str, Any]) -> None:
        self._agent = agent
        self.json = json
        self.id: str = json["id"]

    def __await__(self) -> Generator[Any, None, GivenTask]:
        return self.end().__await__()

    @property
    def state(self) -> str:
        """Its state, as of the last call."""
        return self.json["state"]

    @property
    def completed(self) -> bool:
        """Whether it has ended well."""
        return self.state == TaskState.COMPLETED

    @property
    def text(self) -> str:
        """The texts of its results; without any, what was said with its state."""
        results = [found["text"] for found in self.json.get("artifacts", ()) if found["text"]]
        return "\n".join(results) or self.json["status_text"]

    @property
    def parts(self) -> list[Part]:
        """The parts of its results."""
        found = self.json.get("artifacts", ())
        return [
            Part(self._agent.client, part)
            for each in found
            for part in each.get("parts") or each.get("files") or ()
        ]

    async def end(self, *, or_question: bool = False) -> GivenTask:
        """Wait until it has ended, with `or_question` also until it waits for an answer; itself, as it is then.

        The log tells it, over as many connections as it takes.
        """

        def rests(event: Event) -> bool:
            state = event.data.get("state")
            return event.data.get("final") is True or (or_question and state in QUESTIONS)

        if not self.json["final"]:
            async with aclosing(self.events(rests)) as events:
                async for _ in events:
                    pass
        self.json = await self._agent.client.task(self.id)
        return self

    async def events(
        self, is_last: Callable[[Event], bool] | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """Its changes from the beginning, as they are stored (docs/api.md, TaskEvent)."""
        stream = self._agent.client.follow_task(self.id, for_ever=True, is_last=is_last)
        async with aclosing(aiter(stream)) as found:
            async for event in found:
                if event.kind == "update":
                    yield event.data

    async def answer(self, *what: Sayable) -> None:
        """Answer its question; raises Conflict if it waits for none."""
        parts = await said(self._agent.client, what)
        self.json = await self._agent.client.answer_task(self.id, parts=parts)

    async def cancel(self, reason: str = "") -> None:
        """Have it end."""
        self.json = await self._agent.client.cancel_task(self.id, reason=reason)


class OwnTask:
    """A task that this agent does. It ends with what the handler returns, or by one of the calls that say so.

    Its reports have the words of the lines and of `postroom-agent` (docs/agents.md, Tasks).

    Attributes:
        json: as the API had it last.
        requester: who gave it, as `@nick`.
        text: what is to be done; `parts` have everything that was said with it.
        resumed: an earlier run of this agent had begun it.
    """

    def __init__(
        self, agent: Holder, json: dict[str, Any], parts: Sequence[Mapping[str, Any]]
    ) -> None:
        self._agent = agent
        self.parts = [Part(agent.client, part) for part in parts]
        self._changed = asyncio.Condition()
        self._answers: list[str] = []
        self._heard = 0
        self.json = json
        self.id: str = json["id"]
        self.requester = f"@{json['requester']['nick']}"
        self.text: str = json["text"]
        self.thread: str = json["context"]
        self.resumed: bool = json["state"] != TaskState.SUBMITTED

    @property
    def state(self) -> str:
        """Its state, as of the last call."""
        return self.json["state"]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.json["final"]

    async def update(self, *what: Sayable) -> None:
        """Say how far it is."""
        await self._status(TaskState.WORKING, what)

    async def artifact(self, *what: Sayable, name: str = "result") -> None:
        """Give a result; a task may have several."""
        parts = await said(self._agent.client, what)
        report = self._agent.client.report_artifact
        await self._report(partial(report, self.id, name=name, parts=parts, last=True))

    async def complete(self, *what: Sayable) -> None:
        """End it well, with a last result if one is given."""
        if what:
            await self.artifact(*what)
        await self._status(TaskState.COMPLETED)

    async def fail(self, *why: Sayable) -> None:
        """End it: it cannot be done."""
        await self._status(TaskState.FAILED, why)

    async def reject(self, *why: Sayable) -> None:
        """End it: it is nothing for this agent."""
        await self._status(TaskState.REJECTED, why)

    async def ask(self, *question: Sayable) -> str:
        """Ask who gave it, and wait for the answer, however long that takes."""
        return await self._asked(TaskState.INPUT_REQUIRED, question)

    async def ask_auth(self, *what: Sayable) -> str:
        """Ask to be let in somewhere, by whoever can, and wait for the answer."""
        return await self._asked(TaskState.AUTH_REQUIRED, what)

    async def _asked(self, state: TaskState, what: tuple[Sayable, ...]) -> str:
        # Answers to earlier questions are not for this one.
        self._heard = len(self._answers)
        await self._status(state, what)
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._answers) > self._heard)
        answer = self._answers[self._heard]
        await self._refresh()
        return answer

    async def run(self, handler: Handler) -> None:
        """Have `handler` do it; what it returns is the result. A cancel interrupts it."""
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(self._do(handler))
            watching = group.create_task(self._watch(doing))
            await asyncio.wait({doing})
            watching.cancel()

    async def _do(self, handler: Handler) -> None:
        try:
            if self.state != TaskState.WORKING:
                await self._status(TaskState.WORKING)
            given = await handler(self)
            if not self.ended:
                results = given if isinstance(given, (tuple, list)) else [given]
                await self.complete(*(each for each in results if each is not None))
        except Exception as error:  # noqa: BLE001 (the handler is the user's: its fault ends its task alone)
            await self._failed(error)

    async def _failed(self, error: Exception) -> None:
        """End the task for a fault; one that is not ours may hold secrets, so only its kind is told."""
        if isinstance(error, PostroomError) and self._agent.client.transport.hopeless(error):
            raise error
        await self._refresh()
        if self.ended:
            return  # canceled meanwhile: that is why a report was refused
        log.error("task %s failed here", self.id, exc_info=error)
        ours = isinstance(error, PostroomError)
        why = error.message if ours else f"the agent's program failed: {type(error).__name__}"
        with suppress(Conflict):  # somebody has ended it in this moment
            await self.fail(why)

    async def _watch(self, doing: asyncio.Task[None]) -> None:
        """Bring answers to the handler; interrupt it when the task has ended without its doing."""
        after = self.json["seq"]
        stream = self._agent.client.follow_task(self.id, after=after, for_ever=True)
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                if event.kind != "update":
                    continue
                if answer := event.data.get("answer"):
                    async with self._changed:
                        self._answers.append(answer)
                        self._changed.notify_all()
                if event.data.get("state") == TaskState.CANCELED:
                    self.json |= {"state": TaskState.CANCELED.value, "final": True}
                    doing.cancel()

    async def _status(self, state: TaskState, what: tuple[Sayable, ...] = ()) -> None:
        parts = await said(self._agent.client, what) if what else ()
        await self._report(
            partial(self._agent.client.report_status, self.id, state.value, parts=parts)
        )

    async def _report(self, report: Callable[..., Awaitable[Any]]) -> None:
        """Store a change behind the last one that is known, so that a repeated call stores it once."""
        while True:
            seq = self.json["seq"]
            try:
                self.json = await self._agent.surely(partial(report, seq=seq))
                return
            except Conflict:
                # Somebody else's change came between, such as an answer.
                await self._refresh()
                if self.ended or self.json["seq"] == seq:
                    raise

    async def _refresh(self) -> None:
        self.json = await self._agent.surely(partial(self._agent.client.task, self.id))


Result = Sayable | tuple[Sayable, ...] | list[Sayable] | None
Handler = Callable[[OwnTask], Awaitable[Result]]
"""Does a task; returns its result, or None if it has given none or ended the task itself."""
