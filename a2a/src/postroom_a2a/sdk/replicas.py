"""Several processes that serve one SDK agent: a task belongs to one of them, and its calls run there.

Without this, two replicas over one store may run one task at the same time, and a cancel reaches only the replica that
it came in at. The owner of a task is a record of a KV bucket, made only if none exists; calls for another replica's
task go to it over core NATS. An owner that nobody can reach is gone: the next call about its task takes the task over.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

from a2a import types
from postroom_a2a.binding.frames import Flow, Request
from postroom_a2a.binding.subjects import NAMESPACE, token
from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import (
    BusDisconnected,
    LostUpdate,
    NoResponders,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.live.calling import CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket, BucketSettings
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Connection, Frame
from postroom_a2a.operations import Call, Operations
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.handling.changes import SETTLED
from postroom_a2a.sdk.operations import SdkOperations
from postroom_a2a.sdk.translation import METHODS

BUCKET = "A2A_OWNERS"

KEEP = 30 * 86_400.0
"""Seconds that the owner of a task is known, longer than an ended task is kept."""

GRACE = 4.0
"""Seconds that an unreachable owner gets to return to a restarted NATS server."""

CONCURRENCY = 4096
"""Calls of other replicas at a time."""

WAIT = 3600.0
"""Seconds that a call without a deadline waits for another replica."""

ANSWERS = 1024
"""Remembered answers that are a message and no task."""

_FLOW = Flow(window=32, beat=1.0)
_PING = "replica/ping"
_ROUTED = frozenset({"SendMessage", "SendStreamingMessage", "CancelTask", "SubscribeToTask"})
_WORKING = frozenset(
    {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_UNSPECIFIED", "submitted", "working"}
)


class _Gone(Exception):
    """The owner of a task cannot be reached any more."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who has a task, and the revision of the record that says so."""

    replica: str
    revision: int


class ReplicaOperations(Operations):
    """The operations of one replica of an agent.

    `async with ReplicaOperations(connection, "poet", SdkOperations(handler)) as operations`: serve these in place of
    the handler's own. All replicas need the same store, such as `KvTaskStore`.

    A request with a `messageId` that the same caller has used before is the same request, at whichever replica. Callers
    without proof are one caller. Replicas believe each other about callers: only they may publish to
    `a2a.replica.<agent>.>`.

    Args:
        connection: an open one, ours or of nats-py.
        agent: its name, the same at all replicas; one token of a subject.
        operations: of an `AgentRequestHandler`.
        grace: seconds that an unreachable owner gets to return to a restarted NATS server.
    """

    def __init__(
        self,
        connection: Connection,
        agent: str,
        operations: SdkOperations,
        *,
        bucket: str = BUCKET,
        grace: float = GRACE,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._agent = token(agent)
        self._connection = connection
        self._operations = operations
        self._name = bucket
        self._grace = grace
        self._mailbox = Mailbox(connection)
        self._said: OrderedDict[str, bytes] = OrderedDict()

    async def __aenter__(self) -> Self:
        """Begin to take the calls of other replicas.

        Raises:
            BusDisconnected: the NATS server cannot be reached.
            EnvironmentFault: JetStream is off.
        """
        settings = BucketSettings(key_ttl=True)
        self._bucket = await Bucket.open(JetStream(self._mailbox), self._name, settings)
        self._server = CoreServer(
            self._connection,
            f"{self._subject(self.id)}.*",
            _Local(self),
            queue="",
            concurrency=CONCURRENCY,
            share=CONCURRENCY,
            admit=_caller_of,
        )
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no more calls of other replicas."""
        await self._server.drain()
        await self._mailbox.close()

    # ── operations ──────────────────────────────────────────────────────────────────────────────────

    def streams(self, method: str) -> bool:
        return self._operations.streams(method)

    def begins(self, method: str) -> bool:
        return self._operations.begins(method)

    async def answer(self, call: Call) -> bytes:
        if call.method in {"GetTask", "tasks/get"}:
            return await self._get(call)
        async with aclosing(self._results(call)) as results:
            async for result in results:
                return result
        raise RpcError(Code.INTERNAL_ERROR, "the replica that has the task did not answer")

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._results(call)) as results:
            async for result in results:
                yield result

    async def _get(self, call: Call) -> bytes:
        """The task; one that its owner left behind at work has failed first."""
        found = await self._operations.answer(call)
        if not _works(call, found):
            return found
        task = _ids(call)[0]
        owner = await self._owner(task)
        if owner is None or owner.replica == self.id or await self._lives(owner):
            return found
        await self._take_over(task, owner, call)
        return await self._operations.answer(call)

    async def _results(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The results of a call, at the replica that has its task."""
        task = await self._task_of(call)
        while True:
            owner = await self._claim(task) if task else None
            if owner is None or owner.replica == self.id:
                async with aclosing(self.perform(call, task)) as results:
                    async for result in results:
                        yield result
                return
            begun = False
            try:
                async with aclosing(self._ask(owner, call)) as results:
                    async for result in results:
                        begun = True
                        yield result
                return
            except (NoResponders, StreamBroken, RequestTimeout, BusDisconnected) as error:
                if begun:
                    text = "the replica that has the task is gone: ask for the task again"
                    raise RpcError(Code.INTERNAL_ERROR, text) from error
                if not await self._lives(owner):
                    await self._take_over(task, owner, call)

    async def perform(self, call: Call, task: str) -> AsyncGenerator[bytes, None]:
        """The results of a call here, where its task is."""
        if self._operations.streams(call.method):
            async with aclosing(self._operations.stream(call)) as results:
                async for result in results:
                    yield result
            return
        said = self._said.get(task) if call.task_id else None
        if said is None:
            said = await self._operations.answer(call)
            if call.task_id and not call.binary and said.startswith(b'{"message":'):
                # No store keeps it: without a memory the same request would run again.
                self._said[task] = said
                if len(self._said) > ANSWERS:
                    self._said.popitem(last=False)
        yield said

    # ── owners ──────────────────────────────────────────────────────────────────────────────────────

    async def _task_of(self, call: Call) -> str:
        """The id of the task whose owner performs the call; "" if any replica does."""
        if not _routed(call.method):
            return ""
        task, message = _ids(call)
        if not task and message and self._operations.begins(call.method):
            call.task_id = self._named(call.caller, message)
            return call.task_id
        if not task or not await self._stored(task, call.caller):
            return ""  # the handler says what is wrong with it
        return task

    def _named(self, caller: str, message: str) -> str:
        """The id of the task that a message begins: the same for the same message of the same caller."""
        said = json.dumps([self._agent, caller, message]).encode("utf-8", "surrogatepass")
        return hashlib.sha256(said).hexdigest()[:32]

    async def _stored(self, task: str, caller: str) -> bool:
        """Whether the store has a task of the caller's."""
        try:
            await self._operations.answer(
                Call(None, "GetTask", {"id": task, "historyLength": 0}, caller=caller)
            )
        except RpcError as error:
            if error.code == Code.TASK_NOT_FOUND:
                return False
            raise
        return True

    async def _claim(self, task: str) -> _Owner:
        """The owner of a task: this replica, if it has none yet."""
        key = _key(task)
        while True:
            owner = await self._owner(task)
            if owner is not None:
                return owner
            try:
                return _Owner(self.id, await self._bucket.create(key, self.id.encode(), ttl=KEEP))
            except LostUpdate:
                continue  # another replica was faster

    async def _owner(self, task: str) -> _Owner | None:
        entry = await self._bucket.get(_key(task), fresh=True)
        return None if entry is None else _Owner(entry.value.decode(), entry.revision)

    async def _lives(self, owner: _Owner) -> bool:
        """Whether an owner can be reached; one that is connected and silent counts as alive."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._grace
        while True:
            try:
                caller = self._caller(owner, "")
                async with aclosing(caller.stream(Request(new_id(), _PING), timeout=2.0)) as pongs:
                    async for _ in pongs:
                        return True
                return True
            except (RequestTimeout, StreamBroken):
                return True
            except NoResponders:
                if loop.time() >= give_up:
                    return False
            except BusDisconnected:
                give_up = loop.time() + self._grace
            await asyncio.sleep(min(0.5, self._grace / 4))

    async def _take_over(self, task: str, owner: _Owner, call: Call) -> None:
        """Own the task of a replica that is gone; a task that it worked on has failed."""
        try:
            await self._bucket.update(_key(task), self.id.encode(), owner.revision, ttl=KEEP)
        except LostUpdate:
            return  # another replica was faster
        lost = Call(None, "CancelTask", {"id": task}, caller=call.caller, task_id=task)
        await self._operations.lost(lost)

    # ── other replicas ──────────────────────────────────────────────────────────────────────────────

    def _subject(self, replica: str) -> str:
        return f"{NAMESPACE}.replica.{self._agent}.{replica}"

    def _caller(self, owner: _Owner, caller: str) -> CoreCaller:
        return CoreCaller(
            self._connection,
            f"{self._subject(owner.replica)}.u{caller.encode('utf-8', 'surrogatepass').hex()}",
            mailbox=self._mailbox,
            flow=_FLOW,
        )

    async def _ask(self, owner: _Owner, call: Call) -> AsyncGenerator[bytes, None]:
        """The results of a call at another replica.

        Also a call that answers once goes as a stream: its heartbeats show that the owner lives, and closing it tells
        the owner that nobody waits any more.
        """
        request = Request(
            new_id(), call.method, call.params, call.binary, call.parameters, deadline=call.deadline
        )
        wait = call.deadline - time.time() if call.deadline else WAIT
        responses = self._caller(owner, call.caller).stream(request, timeout=min(wait, 10.0))
        async with aclosing(responses) as found:
            async for response in found:
                if response.error is not None:
                    raise response.error
                result = response.result
                yield result if isinstance(result, bytes) else dumps(result)


class _Local:
    """What another replica asks this one for; every call is answered as a stream."""

    def __init__(self, replica: ReplicaOperations) -> None:
        self._replica = replica

    def streams(self, method: str) -> bool:  # noqa: ARG002
        return True

    def begins(self, method: str) -> bool:  # noqa: ARG002
        return False

    async def answer(self, call: Call) -> bytes:
        raise RpcError(Code.METHOD_NOT_FOUND, f"Method not found: {call.method}")

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        if call.method == _PING:
            yield b"null"
            return
        task = await self._replica._task_of(call)  # noqa: SLF001 (one thing in two classes)
        async with aclosing(self._replica.perform(call, task)) as results:
            async for result in results:
                yield result


def _routed(method: str) -> bool:
    found = METHODS.get(method)
    return found is not None and found[0].name in _ROUTED


def _ids(call: Call) -> tuple[str, str]:
    """The ids of the task and of the message that a call names, "" for none."""
    operation, _ = METHODS[call.method]
    if call.binary:
        try:
            asked: Any = operation.request.FromString(call.params or b"")
        except Exception:  # noqa: BLE001 (the handler says what is wrong with it)
            return "", ""
        return (
            (asked.message.task_id, asked.message.message_id)
            if operation.begins
            else (asked.id, "")
        )
    params = call.params if isinstance(call.params, dict) else {}
    if not operation.begins:
        return _text(params, "id"), ""
    message = params.get("message")
    if not isinstance(message, dict):
        return "", ""
    return (
        _text(message, "taskId") or _text(message, "task_id"),
        _text(message, "messageId") or _text(message, "message_id"),
    )


def _text(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    return value if isinstance(value, str) else ""


def _works(call: Call, found: bytes) -> bool:
    """Whether a task, as the answer to `GetTask`, is still worked on."""
    if call.binary:
        return types.Task.FromString(found).status.state not in SETTLED
    return json.loads(found)["status"]["state"] in _WORKING


def _key(task: str) -> str:
    return hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _caller_of(frame: Frame) -> str | None:
    """The caller that another replica names in the subject."""
    word = frame.subject.rpartition(".")[2]
    try:
        return bytes.fromhex(word[1:]).decode("utf-8", "surrogatepass") if word[:1] == "u" else None
    except ValueError:
        return None
