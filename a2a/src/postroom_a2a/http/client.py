"""A client of any A2A server over HTTP, without the SDK: A2A 1.0 in and out, whatever version the server speaks."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

from postroom_a2a import strict_json
from postroom_a2a.bounds import MAX_LEVELS, MAX_VALUES
from postroom_a2a.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
    StreamBroken,
)
from postroom_a2a.http import client_wire as wire
from postroom_a2a.http.client_attempts import TIMEOUT, Attempts, Calling, whole_of
from postroom_a2a.http.client_cards import Card, Interface, choose, names, places
from postroom_a2a.http.client_port import HttpRequest
from postroom_a2a.http.client_wire import EventReader
from postroom_a2a.retry import (
    Backoff,
)
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task
from postroom_a2a.text import one_line

Params = dict[str, Any]

_GONE = (404, 405, 410)
"""Statuses of a path at which no card is."""


_HEADER = re.compile(r"[\x21-\x7e]{1,256}")
"""An id of an event that goes back in a header; with another one a stream begins with the task as it is."""


async def fetch_card(
    url: str,
    calling: Calling,
    *,
    timeout: float = TIMEOUT,
    verify: Callable[[Card], Card] | None = None,
) -> Card:
    """The card of the agent at `url`, or in the file at `url`, of either version.

    Args:
        verify: checks the signatures where the signer's keys are known, and returns the card; raises if none is by one
            of them.

    Raises:
        NotFound: there is no card, and none at the root of the server that names `url`.
        InvalidInput: `url` is not of http or https.
        Unauthorized, Forbidden: the server wants a credential.
        ProtocolViolation: what is there is no card.
        PostroomError: as `A2AClient.call`.
    """
    attempts = Attempts(calling, timeout)
    for place, own in places(url):
        request = HttpRequest(
            "GET",
            place,
            {"accept": "application/json", "a2a-version": "1.0", **calling.headers(place)},
        )
        body = await attempts.whole(request, calling.bounds.card, missing=_GONE)
        if body is None:
            continue
        card = _card(body, place)
        if own or names(card, url):
            return card if verify is None else verify(card)
    raise NotFound(
        f"there is no Agent Card at {one_line(url, 200)}",
        remedy="give the agent's address, or that of its card",
    )


def _card(body: bytes, place: str) -> Card:
    try:
        card = strict_json.bounded(body, MAX_LEVELS, MAX_VALUES)
    except ValueError as error:
        raise ProtocolViolation(f"what lies at {one_line(place, 200)} is not JSON") from error
    if not isinstance(card, dict) or not isinstance(card.get("name"), str):
        raise ProtocolViolation(f"what lies at {one_line(place, 200)} is no Agent Card")
    return card


class A2AClient:
    """Calls one agent. What goes in and comes out is A2A 1.0 in JSON, also where the agent speaks 0.3.

    A call is repeated, by the policy of `calling`, after an error of the network and an HTTP status of 500 or more; a
    message goes out again with the same `messageId`. A peer that closes without an answer is an error of the network.
    What would begin something twice, such as a push config without an id, is not repeated once it may have been done.

    Args:
        card: of the agent, None for an interface that is known without one.
    """

    def __init__(self, interface: Interface, calling: Calling, card: Card | None = None) -> None:
        self.interface = interface
        self.card: Card = card or {}
        self._calling = calling

    @classmethod
    async def open(
        cls,
        url: str,
        calling: Calling,
        *,
        timeout: float = TIMEOUT,
        verify: Callable[[Card], Card] | None = None,
    ) -> A2AClient:
        """A client of the agent at `url`, by its card. Raises as `fetch_card` and `choose`."""
        card = await fetch_card(url, calling, timeout=timeout, verify=verify)
        return cls(choose(card), calling, card)

    @property
    def streams(self) -> bool:
        """Whether the card says that the agent streams."""
        return self._can("streaming")

    @property
    def pushes(self) -> bool:
        """Whether the card says that the agent sends push notifications."""
        return self._can("pushNotifications")

    def _can(self, name: str) -> bool:
        capabilities = self.card.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        message: Message,
        *,
        wait: bool = True,
        configuration: Params | None = None,
        metadata: Params | None = None,
        timeout: float = TIMEOUT,
    ) -> Event:
        """Send a message: `{"task"}` or `{"message"}`.

        Args:
            message: gets a `messageId` if it has none; the same one again means the same request.
            wait: answer when the task has ended or asks something, not at once.

        Raises:
            PostroomError: as `call`.
        """
        params = _sending(message, wait, configuration, metadata)
        found = await self.call("SendMessage", params, timeout=timeout)
        if not any(isinstance(found.get(kind), dict) for kind in ("task", "message")):
            raise ProtocolViolation("the answer to a message is neither a task nor a message")
        return found

    async def get(self, task: str, *, history: int | None = None, timeout: float = TIMEOUT) -> Task:
        """A task as it is, with the last `history` messages (None: as the server likes). Raises as `call`."""
        params: Params = {"id": task} | ({} if history is None else {"historyLength": history})
        return await self.call("GetTask", params, timeout=timeout)

    async def list(self, *, timeout: float = TIMEOUT, **query: Any) -> Params:
        """A page of tasks: `{"tasks", "nextPageToken", …}`; `query` as in A2A 1.0 (`contextId`, `pageToken`, …)."""
        found = await self.call("ListTasks", query, timeout=timeout)
        tasks = found.get("tasks", [])
        if not isinstance(tasks, list) or not all(isinstance(each, dict) for each in tasks):
            raise ProtocolViolation("the answer is no page of tasks")
        return {**found, "tasks": tasks}

    async def cancel(self, task: str, *, timeout: float = TIMEOUT) -> Task:
        """Cancel a task. Raises `Conflict` if it has ended, else as `call`."""
        return await self.call("CancelTask", {"id": task}, timeout=timeout)

    async def set_push(self, task: str, config: Params, *, timeout: float = TIMEOUT) -> Params:
        """Have a task's changes sent to `config["url"]`; the same `id` again replaces it. Raises as `call`."""
        params = {"id": secrets.token_hex(8), **config, "taskId": task}
        return await self.call("CreateTaskPushNotificationConfig", params, timeout=timeout)

    async def push(self, task: str, config: str, *, timeout: float = TIMEOUT) -> Params:
        """One push notification config of a task."""
        params = {"taskId": task, "id": config}
        return await self.call("GetTaskPushNotificationConfig", params, timeout=timeout)

    async def pushes_of(self, task: str, *, timeout: float = TIMEOUT) -> Params:
        """A page of a task's push notification configs: `{"configs", …}`."""
        return await self.call("ListTaskPushNotificationConfigs", {"taskId": task}, timeout=timeout)

    async def unset_push(self, task: str, config: str, *, timeout: float = TIMEOUT) -> None:
        """Remove one; one that is not there is no error of most servers."""
        params = {"taskId": task, "id": config}
        await self.call("DeleteTaskPushNotificationConfig", params, timeout=timeout)

    async def extended_card(self, *, timeout: float = TIMEOUT) -> Card:
        """The card that the agent shows to who has a credential."""
        return await self.call("GetExtendedAgentCard", {}, timeout=timeout)

    async def call(self, method: str, params: Params, *, timeout: float = TIMEOUT) -> Params:
        """The result of any method of A2A 1.0 that answers once.

        Args:
            timeout: seconds for all attempts together.

        Raises:
            NoResponders: the server was not reached.
            RequestTimeout: no answer in time (`Uncertain`: and whether it was done is not known).
            PeerError: the connection broke, or the server failed.
            ProtocolViolation: the answer is not A2A.
            CallerError, Refused: the agent refuses; `client_wire.code_of` gives the code of A2A's error.
        """
        to = self.interface
        with _typed():
            headers = self._calling.headers(to.url)
            request = wire.request_of(to, method, params, headers, timeout)
        attempts = Attempts(self._calling, timeout)

        def read(body: bytes) -> Params:
            result = wire.result_of(to, method, body)
            if not isinstance(result, dict):
                return {}
            return result

        return await attempts.result(
            request,
            read,
            write=method in wire.WRITING,
            repeatable=wire.may_repeat(method, params),
        )

    # ── streams ──────────────────────────────────────────────────────────────────────────────────────────

    async def stream(
        self,
        message: Message,
        *,
        configuration: Params | None = None,
        metadata: Params | None = None,
        timeout: float = TIMEOUT,
    ) -> AsyncGenerator[Event, None]:
        """Send a message, and yield what happens (StreamResponses) until the task has ended or asks something.

        A broken connection is made again: a `{"task"}` then shows how far it has come.

        Args:
            timeout: seconds until the first event, and for each connection after that.

        Raises:
            StreamBroken: it could not be made again.
            PostroomError: as `call`.
        """
        params = _sending(message, True, configuration, metadata)
        async with aclosing(self._follow("SendStreamingMessage", params, timeout)) as events:
            async for event in events:
                yield event

    async def subscribe(
        self, task: str, *, after: str = "", timeout: float = TIMEOUT
    ) -> AsyncGenerator[Event, None]:
        """What happens to a task from now on, its present state first; then as `stream`.

        Args:
            after: id of the last event that the caller has, for servers that replay.
        """
        async with aclosing(
            self._follow("SubscribeToTask", {"id": task}, timeout, after)
        ) as events:
            async for event in events:
                yield event

    async def _follow(
        self, method: str, params: Params, timeout: float, last: str = ""
    ) -> AsyncGenerator[Event, None]:
        place = _Place(params["id"] if method == "SubscribeToTask" else "", last)
        backoff, fruitless = Backoff(self._calling.retry.base, self._calling.retry.cap), 0
        while True:
            if place.task:
                method, params = "SubscribeToTask", {"id": place.task}
            known = place.count
            why: PostroomError = PeerError("the server ended the stream")
            try:
                async with aclosing(self._connection(method, params, timeout, place)) as events:
                    async for event in events:
                        yield event
            except (PeerError, Conflict) as error:
                if not (place.begun and _may_go_on(error, place)):
                    raise
                why = error
            if place.over:
                return
            # Without a task the message goes out again, with the same id.
            if place.task and (shown := await self._settled(place, timeout)) is not None:
                yield shown
                return
            if isinstance(why, Conflict):
                raise why  # the task goes on, and cannot be subscribed to
            fruitless = 0 if place.count > known + 1 else fruitless + 1
            if not fruitless:
                backoff.reset()
            if fruitless >= self._calling.retry.attempts:
                raise StreamBroken(f"the stream breaks off again and again: {why.message}") from why
            await asyncio.sleep(backoff.next())

    async def _settled(self, place: _Place, timeout: float) -> Event | None:
        """The task after a stream that ended early, if it has ended or asks something."""
        task = await self.get(place.task, timeout=timeout)
        state = _state_of(task)
        settled = state is not None and (state.terminal or state.interrupted)
        return {"task": task} if settled else None

    async def _connection(
        self, method: str, params: Params, timeout: float, place: _Place
    ) -> AsyncGenerator[Event, None]:
        """The events of one connection; `place` keeps up with them."""
        to, bounds = self.interface, self._calling.bounds
        request = wire.request_of(
            to, method, params, self._calling.headers(to.url), self._calling.silence, place.last
        )
        async with AsyncExitStack() as stack:
            attempts = Attempts(self._calling, timeout)
            reply = await attempts.opened(
                request,
                stack,
                write=method in wire.WRITING,
                repeatable=wire.may_repeat(method, params),
            )
            place.begun = True
            if "event-stream" not in reply.headers.get("content-type", ""):
                # An error, or the only answer there is.
                with _typed():
                    result = wire.result_of(to, method, await whole_of(reply, bounds.answer))
                if isinstance(result, dict) and {"task", "message"} & result.keys():
                    place.note(result)
                    yield result
                return
            reader = EventReader(bounds.event)
            async with aclosing(reply.pieces()) as pieces:
                async for piece in pieces:
                    for found in reader.feed(piece):
                        with _typed():
                            event = wire.event_of(to, found.data)
                        if _HEADER.fullmatch(found.id):
                            place.last = found.id
                        place.note(event)
                        yield event
                        if place.over:
                            return


class _Place:
    """How far the events of a stream have come.

    Attributes:
        task: its id, "" before the first event.
        last: id of the last server-sent event.
        begun: a server has answered, so the connection may be made again.
        over: nothing follows.
        count: events so far.
    """

    def __init__(self, task: str, last: str) -> None:
        self.task = task
        self.last = last
        self.begun = bool(task)
        self.over = False
        self.count = 0

    def note(self, event: Event) -> None:
        """Take an event into account."""
        self.count += 1
        if "message" in event:
            self.over = True
            return
        held = event.get("task") or event.get("statusUpdate") or event.get("artifactUpdate") or {}
        task = held.get("id") if "task" in event else held.get("taskId")
        if isinstance(task, str) and task:
            self.task = self.task or task
        state = _state_of(held)
        if state is not None:
            # A stream of a task that asks may stay open: who answers begins another one.
            self.over = state.terminal or (state.interrupted and "statusUpdate" in event)


class _typed:  # noqa: N801 (reads as a function)
    """Turns errors that an agent answered into ours."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RpcError):
            raise wire.typed(error) from error


def _state_of(held: Mapping[str, Any]) -> TaskState | None:
    """The state in a task or a status update; None where there is none, or one that A2A does not have."""
    status = held.get("status")
    try:
        return TaskState.from_a2a(status.get("state") if isinstance(status, dict) else None)
    except ValueError:
        return None


def _may_go_on(error: PostroomError, place: _Place) -> bool:
    """Whether a stream that ended with `error` may be made again, or its task has ended."""
    if isinstance(error, Conflict):
        return bool(place.task) and wire.code_of(error) == Code.UNSUPPORTED_OPERATION
    return not isinstance(error, ProtocolViolation) and not wire.code_of(error)


def _sending(
    message: Message, wait: bool, configuration: Params | None, metadata: Params | None
) -> Params:
    if not message.get("parts"):
        raise InvalidInput("a message needs a part")
    whole = {"messageId": secrets.token_hex(16), "role": "ROLE_USER", **message}
    params: Params = {"message": whole}
    asked = {**(configuration or {}), **({} if wait else {"returnImmediately": True})}
    if asked:
        params["configuration"] = asked
    if metadata:
        params["metadata"] = metadata
    return params
