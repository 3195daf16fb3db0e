"""The clients of the control plane: every operation of its API as a method (docs/api.md).

`AsyncClient` is for tasks; `Client` does the same for threads, and each of its methods returns when it is done. Both
have the methods that are made from the table (`client.methods`), and those below, which need more than one call.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    ParamSpec,
    Self,
    TypeVar,
)

from postroom.client.calls import POLL, given, json_object, name_of, task_ref
from postroom.client.locate import ServerAddress, locate
from postroom.client.methods import AsyncMethods, Methods
from postroom.client.rules import Locate
from postroom.client.transport import AsyncTransport, Transport
from postroom.client.wire import blocking, iterated
from postroom.client.words import SLOW
from postroom.errors import CallerError, NotFound, PostroomError, ProtocolViolation
from postroom.protocol.ids import check_message_id
from postroom.protocol.intervals import STREAM_SILENCE

if TYPE_CHECKING:
    from postroom.client.stream import (
        AsyncWorkerEvents,
        WorkerEvents,
    )
    from postroom.protocol.answers import Leftovers
    from postroom.protocol.shapes import (
        Applied,
        Mail,
        Milestone,
        Push,
        Rest,
        Task,
    )

P = ParamSpec("P")
T = TypeVar("T")

Away = Callable[[bool], None]
"""Called with True when the post room has gone, and with False when it is back."""

AUDIT_SILENCE = 300.0
"""Seconds to wait for the next stored record: a long log takes time to search."""

BLOB_SILENCE = 60.0
"""Seconds for one piece to be taken or to come."""

CHUNK = 64 * 1024


class AsyncClient(AsyncMethods):
    """A control plane, for tasks of one event loop.

    Each method raises what `AsyncTransport.call` raises. A `ref` is a nick or uid, that of a task its id or 4 or more
    of its first digits, `after` what a stream goes on behind, `pin` the caller's if they have set one; `for_ever` and
    `away` are as in `events`. Whoever leaves an iteration early closes it (`contextlib.aclosing`).

    Args:
        clock: monotonic seconds, for waits.
    """

    def __init__(
        self, transport: AsyncTransport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self._clock = clock

    @classmethod
    def at(cls, state: Path, org: str = "") -> Self:
        """As `Client.at`."""
        return cls.on(lambda: locate(state), org)

    @classmethod
    def on(cls, find: Locate, org: str = "") -> Self:
        """As `Client.on`."""
        return cls(AsyncTransport(find, org=org))

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── the post room ──

    async def ready(self) -> bool:
        """Whether it serves calls."""
        try:
            return bool((await self.transport.call("GET", "/readyz", repeatable=True))["ready"])
        except PostroomError:
            return False

    async def clear_alerts(self, alert: str = "") -> int:
        """End the alert with that id, or all ("") that stand; returns how many."""
        path = f"/v1/alerts/{check_message_id(alert)}" if alert else "/v1/alerts"
        return (await self.transport.call("DELETE", path, repeatable=not alert))["cleared"]

    async def tidy(self, repository: str, named: Sequence[str] = ()) -> Leftovers:
        """Delete what of it is merged and saved, and what is named; returns what was deleted."""
        query = {"repository": repository, "named": ",".join(named)}
        return await self.transport.call("DELETE", "/v1/leftovers", params=query, extra_time=60.0)

    async def audit(
        self,
        *,
        worker: str = "",
        task: str = "",
        since: str = "",
        denied: bool = False,
        plumbing: bool = True,
        limit: int = 0,
        follow: bool = False,
    ) -> AsyncGenerator[dict[str, Any]]:
        """Records of the audit log as they come, oldest first (fields: `postroom.protocol.audit.AuditRecord`).

        Args:
            task: id, or 6 or more digits of it.
            since: RFC 3339, or `10m`, `2h`, `3d`.
            plumbing: include plumbing; else one record `{"omitted": N}` counts it, where there was some.
            limit: the last so many stored records, 0 for all.
            follow: go on with new records, until the post room ends.
        """
        query = given(worker=worker.removeprefix("@"), task=task, since=since, limit=limit)
        query |= {name: "true" for name, on in (("denied", denied), ("follow", follow)) if on}
        if not plumbing:
            query["plumbing"] = "false"
        silence = STREAM_SILENCE if follow else AUDIT_SILENCE
        async with self.transport.exchange(
            "GET", "/v1/audit", silence=silence, params=query
        ) as answer:
            async for line in answer.aiter_lines():
                if line.strip():
                    yield json_object(line, "a line of the audit log")

    # ── waiting ──

    async def wait(self, message_id: str, milestone: Milestone, timeout: float) -> Mail:
        """The message once it has reached `milestone` or never can; after `timeout` seconds as it is, with
        `timed_out` true.
        """
        return await self._wait(f"/v1/messages/{check_message_id(message_id)}", milestone, timeout)

    async def await_task(self, ref: str, rest: Rest, timeout: float) -> Task:
        """The task once it is at rest; after `timeout` seconds as it is, with `timed_out` true."""
        return await self._wait(f"/v1/tasks/{task_ref(ref)}", rest, timeout)

    async def _wait(self, path: str, milestone: str, timeout: float) -> Any:
        deadline = self._clock() + min(timeout, self.transport.left())
        while True:
            slice_ = max(0.0, min(POLL, deadline - self._clock()))
            query = {"wait": milestone, "timeout": round(slice_, 3)}
            found = await self.transport.call(
                "GET", path, params=query, repeatable=True, extra_time=slice_
            )
            if not found.get("timed_out") or self._clock() >= deadline:
                return found

    # ── workers ──

    async def apply(
        self, ref: str, *, merge: bool = False, undo: bool = False, tree: str = ""
    ) -> Applied:
        """Bring the branch of a worker up to date, and say how it can be merged; or merge it, or undo the last merge.

        Args:
            ref: `@NICK` or `@UID` of a worker, else the id of a task of it.
            tree: what is to be merged, as a diff or a call without `merge` has shown it; "" for what there is by now.

        Raises:
            Conflict: a person has to do something first, or look again.
        """
        body = {"merge": merge, "undo": undo} | given(tree=tree)
        whose = f"workers/{name_of(ref)}" if ref.startswith("@") else f"tasks/{task_ref(ref)}"
        return await self.transport.call("POST", f"/v1/{whose}/apply", json=body, extra_time=SLOW)

    async def pushes(self, ref: str) -> list[Push]:
        """All pushes of a task that this caller may see, the oldest change first."""
        path = f"/v1/tasks/{task_ref(ref)}/pushes"
        found: list[Push] = []
        after: int | None = 0
        while after is not None:
            query = {"after": after, "limit": 200}
            page = await self.transport.call("GET", path, params=query, repeatable=True)
            found += page["pushes"]
            after = page["next"]
        return found

    async def terminal(self, ref: str, cols: int, rows: int) -> Any:
        """A terminal in the sandbox of a worker: a `StreamSocket` (docs/api.md)."""
        from postroom.client.async_websocket import AsyncWebSocket

        server, url, headers = self.transport.place(f"/v1/workers/{name_of(ref)}/terminal")
        return await AsyncWebSocket.to(server, url, {"cols": cols, "rows": rows}, headers)

    async def terminal_input(self, uid: str, terminal: str) -> AsyncGenerator[bytes]:
        """What a person types in a terminal of a worker, as it comes."""
        path = f"{_terminal(uid, terminal)}/input"
        async with self.transport.exchange("GET", path, silence=STREAM_SILENCE) as answer:
            async for data in answer.aiter_raw():
                yield data

    async def terminal_output(self, uid: str, terminal: str, content: AsyncIterable[bytes]) -> None:
        """Send what a terminal of a worker prints, as it comes."""
        async with self.transport.exchange(
            "POST", f"{_terminal(uid, terminal)}/output", silence=STREAM_SILENCE, content=content
        ):
            pass

    # ── content that is too large for messages: never in memory as a whole ──

    async def put_blob(
        self, content: BinaryIO, media_type: str, *, moved: Callable[[int], None] = lambda _: None
    ) -> str:
        """Store a content; returns its URL when it is on disk.

        Every agent that gets the URL may read it. `moved` is called with the bytes of each piece that goes.
        """
        path, method = "/v1/blobs", "POST"
        if content.seekable():
            start = content.tell()
            named = await self.transport.wire.work(hashlib.file_digest, content, "sha256")
            path, method = f"{path}/{named.hexdigest()}", "PUT"
            content.seek(start)
        async with self.transport.exchange(
            method,
            path,
            silence=BLOB_SILENCE,
            content=self._pieces(content, moved),
            headers={"Content-Type": media_type},
        ) as response:
            return str(json_object(await response.aread(), "the answer")["url"])

    async def _pieces(
        self, content: BinaryIO, moved: Callable[[int], None]
    ) -> AsyncGenerator[bytes]:
        while data := await self.transport.wire.work(content.read, CHUNK):
            yield data
            moved(len(data))

    async def get_blob(self, url: str) -> AsyncGenerator[bytes]:
        """The content behind a URL, as it comes.

        Raises:
            InvalidInput: it is not the URL of a blob.
            ProtocolViolation: at the end: the content has another hash.
        """
        from postroom.protocol.blobs import sha256_of

        wanted, found = sha256_of(url), hashlib.sha256()
        path = f"/v1/blobs/{wanted}"
        async with self.transport.exchange("GET", path, silence=BLOB_SILENCE) as response:
            async for data in response.aiter_raw(CHUNK):
                found.update(data)
                yield data
        if found.hexdigest() != wanted:
            raise ProtocolViolation("the content does not have the hash in the URL")

    async def has_blob(self, url: str) -> bool:
        """Whether the content behind a URL is there."""
        from postroom.protocol.blobs import sha256_of

        path = f"/v1/blobs/{sha256_of(url)}"
        try:
            await self.transport.call("HEAD", path, repeatable=True)
        except CallerError:  # an answer to HEAD says no reason
            try:
                async with self.transport.exchange("GET", path, silence=BLOB_SILENCE):
                    pass
            except NotFound:
                return False
        return True

    def events(
        self, ref: str, *, after_id: int = 0, for_ever: bool = False, away: Away = lambda _: None
    ) -> AsyncWorkerEvents:
        """Follow what a worker's agent does, past the event `after_id`; -1 for what comes from now on.

        Args:
            for_ever: wait for a post room that has ended; else it is an error when it does not come back soon.
            away: called with True when the post room has gone, and with False when it is back.
        """
        from postroom.client.stream import FOR_EVER, RECONNECT, AsyncWorkerEvents

        path = f"/v1/workers/{name_of(ref)}/sdk-events/stream"
        retry = FOR_EVER if for_ever else RECONNECT
        return AsyncWorkerEvents(self.transport, path, after=after_id, retry=retry, away=away)


class Client(Methods):
    """`AsyncClient`, method for method, for threads that wait."""

    inner: AsyncClient

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self.inner = AsyncClient(transport.inner, clock=clock)

    @classmethod
    def at(cls, state: Path, org: str = "") -> Self:
        """The post room on the folder `state`, in the view of the organisation `org` ("" for the default one).

        Raises:
            InvalidName: no organisation can have that name.
        """
        return cls.on(lambda: locate(state), org)

    @classmethod
    def on(cls, find: Locate, org: str = "") -> Self:
        """The post room at the address that `find` returns; it is asked again when nobody answers there."""
        return cls(Transport(find, org=org))

    @property
    def server(self) -> ServerAddress:
        """The address of the post room."""
        return self.transport.server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = blocking(AsyncClient.close)
    ready = blocking(AsyncClient.ready)
    clear_alerts = blocking(AsyncClient.clear_alerts)
    tidy = blocking(AsyncClient.tidy)
    audit = iterated(AsyncClient.audit)
    wait = blocking(AsyncClient.wait)
    await_task = blocking(AsyncClient.await_task)
    apply = blocking(AsyncClient.apply)
    pushes = blocking(AsyncClient.pushes)
    put_blob = blocking(AsyncClient.put_blob)
    get_blob = iterated(AsyncClient.get_blob)
    has_blob = blocking(AsyncClient.has_blob)
    terminal_input = iterated(AsyncClient.terminal_input)

    def events(
        self, ref: str, *, after_id: int = 0, for_ever: bool = False, away: Away = lambda _: None
    ) -> WorkerEvents:
        """As `AsyncClient.events`."""
        from postroom.client.stream import WorkerEvents

        followed = self.inner.events(ref, after_id=after_id, for_ever=for_ever, away=away)
        return WorkerEvents.over(followed)


def _terminal(uid: str, terminal: str) -> str:
    return f"/v1/workers/{name_of(uid)}/terminals/{check_message_id(terminal)}"
