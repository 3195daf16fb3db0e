"""`from postroom import Agent`: any program with a key is an agent of a post room, over HTTP.

    agent.messages ── GET /v1/inbox/stream ──▶ delivered ──▶ your loop ──▶ seen, when it asks for the next one
    agent.serve    ── the same, for tasks ───▶ your handler, some at once ──▶ status, results

Two readers, each with a connection of its own, so that a loop that takes its time holds up no task, and the other way
round. Each goes on behind the last record that it has; what was not confirmed comes again to the next run.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from postroom.client import logins
from postroom.client.calls import POLL, new_key
from postroom.client.conversation import GivenTask, Handler, Message, OwnTask
from postroom.client.http import AsyncClient
from postroom.client.locate import ServerAddress
from postroom.client.pinning import as_pem, authority_with, given_fingerprint
from postroom.client.rules import PERHAPS_DONE
from postroom.client.said import Sayable, said
from postroom.client.stream import FOR_EVER, Losses
from postroom.client.transport import AsyncTransport
from postroom.errors import InvalidInput, NotFound, PostroomError, Refused, RequestTimeout
from postroom.protocol.ids import check_name
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.origins import origin_of
from postroom_a2a.retry import RetryPolicy

if TYPE_CHECKING:
    from postroom.protocol.shapes import Listed, Mail

PATIENT = RetryPolicy(attempts=24, base=0.2, cap=5.0)
"""About a minute: a call outlives a restart of the post room."""

AT_ONCE = 8
"""Tasks that an agent does at once by default: as many as Postroom gives a worker."""

REMEMBERED = 1024
"""Questions whose answers go to the caller of `ask` and not to the iteration."""

T = TypeVar("T")


class Agent:
    """An agent of a post room: `async with Agent(url, key) as me`.

    Args:
        url: of the post room, or the name of a login; "" for the default one of `postroom login`.
        key: API key of any principal; "" for the one that `postroom login` keeps for `url`.
        org: organisation of the key, "" for the default one or that of the login.
        ca: file with the authority to trust, where this system does not know it.
        fingerprint: or the SHA-256 of that authority.
        base: the httpx2 transport to use, for tests.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        org: str = "",
        ca: str | Path = "",
        fingerprint: str = "",
        base: Any = None,
    ) -> None:
        self._locate, self._org = _finder(url, key, org, str(ca))
        self._origin = url
        self._fingerprint = given_fingerprint(fingerprint) if fingerprint else ""
        self._base = base
        self._handler: Handler | None = None
        self._serving: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._mails: asyncio.Queue[dict[str, Any] | BaseException] = asyncio.Queue(1)
        self._handed = ""
        self._asked: OrderedDict[str, None] = OrderedDict()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self.client: AsyncClient
        self.uid = ""
        self.nick = ""

    async def __aenter__(self) -> Self:
        """Connect; raises Unauthorized if the post room does not take the key."""
        locate = self._locate
        if self._fingerprint:
            origin = origin_of(self._origin)
            authority = await asyncio.to_thread(authority_with, origin, self._fingerprint)
            pinned = replace(locate(), authority=as_pem(authority))
            locate = lambda: pinned  # noqa: E731
        made = AsyncTransport(locate, retry=PATIENT, org=self._org, base=self._base)
        self.client = AsyncClient(made)
        try:
            me = await self.client.me()
        except BaseException:
            await self.client.close()
            raise
        self.uid, self.nick = me["uid"], me["nick"]
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            await self.client.close()

    @property
    def transport(self) -> AsyncTransport:
        """The connections to the post room."""
        return self.client.transport

    # ── saying ───────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        to: str,
        *what: Sayable,
        subject: str = "",
        thread: str = "",
        expects_reply: bool = False,
        expires_in: float | None = None,
        reply_to: str = "",
        key: str = "",
    ) -> Message:
        """Send a message to `@nick` or a uid; it is on disk when this returns.

        Args:
            what: texts, files and data.
            expects_reply: it ends `answered` and not `seen`.
            key: idempotency key: one key is one message, however often it is sent. Without one each call is another.

        Raises:
            NotFound: nobody has that address.
            PostroomError: it was not accepted, or that is not known; the same `key` again never sends it twice.
        """
        send = partial(self.client.send, to, parts=await said(self.client, what), subject=subject)
        more = {"thread": thread, "reply_to": reply_to, "expires_in": expires_in}
        return Message(self, dict(await _keyed(send, key, expects_reply=expects_reply, **more)))

    async def ask(
        self, to: str, *what: Sayable, timeout: float | None = None, **more: Any
    ) -> Message:
        """Send a message and wait for its answer, for `timeout` seconds or as long as it takes.

        Raises:
            RequestTimeout: there is none yet; when it comes, the iteration has it.
            Refused: there will be none, because the message is dead.
        """
        sent = await self.send(to, *what, expects_reply=True, **more)
        self._asked[sent.id] = None
        while len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
        try:
            async with asyncio.timeout(timeout):
                found = await self._answered(sent.id)
        except TimeoutError as error:
            self._asked.pop(sent.id, None)
            raise RequestTimeout(f"{to} has not answered in {timeout:g} s") from error
        if found["answer"] is None:
            raise Refused(f"{to} will not answer: {found['reason'] or found['state']}")
        answer = Message(self, dict(found["answer"]))
        await answer.seen()
        return answer

    async def _answered(self, message_id: str) -> Mail:
        asked = partial(self.client.message, message_id, wait="answered", timeout=POLL)
        while (found := await self.surely(asked)).get("timed_out"):
            pass
        return found

    async def delegate(
        self, to: str, *what: Sayable, skill: str = "", thread: str = "", key: str = ""
    ) -> GivenTask:
        """Give an agent a task; it is on disk when this returns. `await` what is returned for its end.

        Args:
            to: `@nick` or uid; "" lets the post room choose somebody who has `skill`.
            key: as for `send`.
        """
        parts = await said(self.client, what)
        made = await _keyed(
            self.client.delegate, key, parts=parts, to=to, skill=skill, thread=thread
        )
        return GivenTask(self, dict(made))

    async def announce(self, *what: Sayable, key: str = "") -> None:
        """Say something to everybody who reads this agent's outbox."""
        await _keyed(self.client.announce, key, parts=await said(self.client, what))

    async def agents(self, *, skill: str = "") -> list[Listed]:
        """Who has an address here, with their Agent Cards; only those who have `skill`, if one is named."""
        return await self.client.agents(skill=skill)

    async def register(
        self, nick: str, *, card: Mapping[str, Any] | None = None, kind: str = "external"
    ) -> str:
        """Give another agent an address and an inbox here; returns its key, which nobody is shown again.

        Args:
            card: what its Agent Card says of it: description, skills.
            kind: `external`, or `service` for a program of this organisation.

        Raises:
            Forbidden: this agent's key does not have the scope `admin`.
        """
        made = await self.client.add_agent(nick, kind=kind, card=card)
        return str(made["key"]["key"])

    async def post(self, path: str, body: dict[str, Any], *, extra_time: float = 0.0) -> Any:
        """The answer to a call of the API that may be repeated."""
        return await self.transport.call(
            "POST", path, json=body, repeatable=True, extra_time=extra_time
        )

    async def get(self, path: str) -> Any:
        """The answer to a question to the API (docs/api.md)."""
        return await self.transport.call("GET", path, repeatable=True)

    # ── hearing ──────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Self:
        """The messages to this agent, as they come.

        A message is `delivered` when it is here, and `seen` when the loop asks for the next one: what a crash or a
        `break` leaves is given again to the next run, with `redelivered`. With a handler of tasks (`task`), tasks are
        served meanwhile; else they come as messages with a `task`.
        """
        return self

    async def __anext__(self) -> Message:
        handed, self._handed = self._handed, ""
        if handed:
            await self.surely(lambda: self.acknowledge(handed, "seen"))
        if self._reading is None or self._reading.done():
            self._reading = self._start(self._read_mails())
        if self._handler is not None and (self._serving is None or self._serving.done()):
            self._serving = self._start(self.serve(self._handler))
        found = await self._mails.get()
        if isinstance(found, BaseException):
            raise found
        self._handed = found["id"]
        return Message(self, found)

    async def acknowledge(self, message_id: str, state: str) -> None:
        """Confirm a message as `delivered` or `seen`."""
        await self.client.acknowledge([message_id], state)

    async def _read_mails(self) -> None:
        async with aclosing(self._unread()) as mails:
            async for mail in mails:
                if (mail["task"] and self._handler is not None) or mail["reply_to"] in self._asked:
                    continue
                await self._took(mail)
                await self._mails.put(mail)

    async def _unread(self) -> AsyncGenerator[dict[str, Any]]:
        """What this agent has not seen, and then what comes; who hands it on says so (`_took`)."""
        async with aclosing(aiter(self.client.follow_inbox())) as events:
            async for event in events:
                if event.kind == "mail":
                    yield event.data

    async def _took(self, mail: dict[str, Any]) -> None:
        """Confirm as delivered what some code is about to get, and nothing that a reader drops."""
        await self.surely(lambda: self.acknowledge(mail["id"], "delivered"))

    # ── doing ────────────────────────────────────────────────────────────────────────────────────

    def task(self, handler: Handler) -> Handler:
        """Have `handler` do the tasks that are given to this agent: a decorator. See `serve`."""
        self._handler = handler
        return handler

    async def serve(self, handler: Handler | None = None, *, at_once: int = AT_ONCE) -> None:
        """Do the tasks that are given to this agent, until it is cancelled.

        What the handler returns is the result. An error that it raises fails the task, a cancel interrupts it. A task
        that an earlier run had begun is done again, with `resumed`. Messages that are no tasks stay as they are, for
        an iteration of this agent: unread ones raise the alert about an agent that takes nothing.

        Raises:
            PostroomError: the key counts no more.
        """
        chosen = self._handler = handler or self._handler
        if chosen is None:
            raise InvalidInput("there is nothing that does tasks", remedy="serve(handler)")
        slots, running = asyncio.Semaphore(at_once), set[str]()

        async def run(task: OwnTask) -> None:
            try:
                await task.run(chosen)
            finally:
                running.discard(task.id)
                slots.release()

        try:
            async with asyncio.TaskGroup() as group, aclosing(self._own_tasks()) as found:
                async for task_id in found:
                    if task_id in running:
                        continue
                    await slots.acquire()
                    task = await self._begun(task_id)
                    if task is None:
                        slots.release()
                    else:
                        running.add(task_id)
                        group.create_task(run(task), name=f"task {task_id}")
        except BaseExceptionGroup as group_:
            raise _first(group_) from group_

    async def _own_tasks(self) -> AsyncGenerator[str]:
        """Ids of tasks of this agent that are open, then of those that come; one may come twice."""
        before = 0
        while True:
            page = await self.surely(
                partial(
                    self.client.tasks,
                    worker=self.uid,
                    open_only=True,
                    limit=MAX_PAGE,
                    before=before,
                )
            )
            for each in page:
                yield each["id"]
            if len(page) < MAX_PAGE:
                break
            before = page[-1]["requested"]
        async with aclosing(self._unread()) as mails:
            async for mail in mails:
                if mail["task"]:
                    await self._took(mail)
                    yield mail["task"]

    async def _begun(self, task_id: str) -> OwnTask | None:
        """The task, if it is still to be done by this agent."""
        try:
            found = await self.surely(partial(self.client.task, task_id))
            if found["final"] or found["worker"]["uid"] != self.uid:
                return None
            request = await self.surely(partial(self.client.message, found["request"]))
        except NotFound:
            return None
        return OwnTask(self, dict(found), request["parts"])

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _start(self, work: Any) -> asyncio.Task[None]:
        """Run something beside the iteration, which raises what it ends with."""

        async def reported() -> None:
            try:
                await work
            except PostroomError as error:
                await self._mails.put(error)

        task = self._group.create_task(reported())
        self._tasks.add(task)
        return task

    async def surely(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, which is repeated while the post room is away; what it refuses is raised."""
        losses = Losses(FOR_EVER)
        while True:
            try:
                return await call()
            except PostroomError as error:
                if self.transport.hopeless(error):
                    raise
                pause = losses.after(error)
            await asyncio.sleep(pause)
            with suppress(PostroomError):
                self.transport.look_up()


def _finder(url: str, key: str, org: str, ca: str) -> tuple[Callable[[], ServerAddress], str]:
    """What finds the post room, and the organisation there."""
    if key:
        if not url:
            raise InvalidInput("a key is for a post room", remedy="Agent(url, key)")
        trusted = ca or os.environ.get("POSTROOM_CA", "")
        address = ServerAddress(origin_of(url).url, 0, key.strip(), trusted)
        return lambda: address, check_name(org, "organisation") if org else ""

    def find() -> logins.Login:
        found = logins.read()
        if not url and not found.default:
            named = [f'Agent("{name}")' for name in found.entries]
            known = ", ".join([*named, "Agent(url, key)"])
            raise NotFound("there is no key", remedy=f"{known}, or: postroom login URL")
        return found.find(url or found.default)

    return lambda: find().address(), org or find().org


async def _keyed(call: Callable[..., Awaitable[T]], key: str, **fields: Any) -> T:
    key = key or new_key()
    try:
        return await call(key=key, **fields)
    except PERHAPS_DONE as error:
        error.remedy = f"the same again with key={key!r}, which never does it twice"
        raise


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
