"""The calls of the HTTP API by subject: what all share, then audit log, blobs, credentials, tasks (docs/api.md)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from postroom.client.transport import PERHAPS_DONE, Query, Transport
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.ids import check_name
from postroom.protocol.intervals import STREAM_SILENCE

if TYPE_CHECKING:
    from postroom.client.records import Blob, Credential, Rest, Task, TaskEvent
    from postroom.client.stream import Event, EventStream

POLL = 25.0
"""Seconds that one waiting call may last; longer waits are several calls, so that a lost server shows."""

TASK_REF = re.compile(r"[0-9a-f]{4,32}")
"""A task's id, or so much of its beginning that the server can find the one that is meant."""


def new_key() -> str:
    """A fresh idempotency key: 32 hex digits."""
    return os.urandom(16).hex()


def name_of(ref: str) -> str:
    """A nick, uid or project as a path segment: its `@` or `#` is taken off.

    Raises:
        InvalidName: it is malformed, so that nothing else can ever stand in a path.
    """
    return check_name(ref.removeprefix("@").removeprefix("#"))


def task_ref(ref: str) -> str:
    """A task's id, or its beginning, as a path segment."""
    if TASK_REF.fullmatch(ref) is None:
        raise InvalidInput(
            f"{ref!r} is no id of a task: 4 to 32 of the digits 0-9 and a-f",
            remedy="postroom task list",
        )
    return ref


def given(**values: str | float | None) -> dict[str, Any]:
    """Those of `values` that say something."""
    return {name: value for name, value in values.items() if value not in ("", None)}


class Calls:
    """Makes calls over `transport`; `clock` tells monotonic seconds, for waits."""

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self._clock = clock

    def _get(self, path: str, query: Query | None = None, *, extra_time: float = 0.0) -> Any:
        return self.transport.call(
            "GET", path, params=query, repeatable=True, extra_time=extra_time
        )

    def _post(
        self, path: str, body: object = None, *, repeatable: bool = False, extra_time: float = 0.0
    ) -> Any:
        return self.transport.call(
            "POST", path, json=body, repeatable=repeatable, extra_time=extra_time
        )

    def _post_keyed(self, path: str, body: dict[str, Any]) -> Any:
        """`_post` of a body with an idempotency key, which an error names if the request may be stored.

        Raises:
            RequestTimeout, BusDisconnected: perhaps it is stored (`PERHAPS_DONE`).
        """
        try:
            return self._post(path, body, repeatable=True)
        except PERHAPS_DONE as error:
            error.remedy = f"the same again with --key {body['key']}, which never does it twice"
            raise

    def _wait(self, path: str, milestone: str, timeout: float) -> Any:
        """What `path` answers when it has come to `milestone`, or with `timed_out` after `timeout` seconds."""
        deadline = self._clock() + min(timeout, self.transport.left())
        while True:
            slice_ = max(0.0, min(POLL, deadline - self._clock()))
            query = {"wait": milestone, "timeout": round(slice_, 3)}
            found = self._get(path, query, extra_time=slice_)
            if not found.get("timed_out") or self._clock() >= deadline:
                return found


SILENCE = 300.0
"""Seconds to wait for the next record of what is there: a long log takes time to search."""


class AuditCalls(Calls):
    """The audit log, as its operator."""

    def audit(
        self,
        *,
        worker: str = "",
        task: str = "",
        since: str = "",
        denied: bool = False,
        plumbing: bool = True,
        limit: int = 0,
        follow: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Records of the audit log as they come, oldest first (fields: `postroom.protocol.audit.AuditRecord`).

        Args:
            task: id, or 6 or more digits of it.
            since: RFC 3339, or `10m`, `2h`, `3d`.
            plumbing: also what carries the messages and tells of none; else one of the records is
                `{"omitted": N}`, where there was some.
            limit: the last so many of what is there, 0 for all.
            follow: go on with what comes, until the post room ends.

        Raises:
            PostroomError: the post room refused, or could not be reached.
        """
        query = given(worker=worker.removeprefix("@"), task=task, since=since, limit=limit)
        query |= {name: "true" for name, on in (("denied", denied), ("follow", follow)) if on}
        if not plumbing:
            query["plumbing"] = "false"
        silence = STREAM_SILENCE if follow else SILENCE
        with self.transport.exchange("GET", "/v1/audit", silence=silence, params=query) as answer:
            for line in answer.iter_lines():
                if line.strip():
                    yield _record(line)


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ProtocolViolation("a line of the audit log is not JSON") from error
    if not isinstance(record, dict):
        raise ProtocolViolation("a line of the audit log is no JSON object")
    return record


CHUNK = 64 * 1024
SILENCE = 60.0
"""Seconds for one piece to be taken or to come."""


class BlobCalls(Calls):
    """Content that is too large for messages, as their operator. Nothing of it is held in memory."""

    def put_blob(self, content: BinaryIO, media_type: str) -> str:
        """Store a content; its URL, when it is on disk.

        Every agent that is told the URL may read it.
        """
        path, method = "/v1/blobs", "POST"
        if content.seekable():
            start = content.tell()
            named = hashlib.sha256()
            for data in _pieces(content):
                named.update(data)
            path, method = f"{path}/{named.hexdigest()}", "PUT"
            content.seek(start)
        headers = {"Content-Type": media_type}
        with self.transport.exchange(
            method, path, silence=SILENCE, content=_pieces(content), headers=headers
        ) as response:
            return str(self.transport.decoded(response)["url"])

    def get_blob(self, url: str) -> Iterator[bytes]:
        """The content that a URL names, as it comes.

        Raises:
            InvalidInput: it is no URL of a blob.
            ProtocolViolation: at the end: what came is something else.
        """
        from postroom.protocol.blobs import sha256_of

        wanted, found = sha256_of(url), hashlib.sha256()
        with self.transport.exchange("GET", f"/v1/blobs/{wanted}", silence=SILENCE) as response:
            for data in response.iter_raw(CHUNK):
                found.update(data)
                yield data
        if found.hexdigest() != wanted:
            raise ProtocolViolation("what came is not what the URL names")

    def blobs(self, limit: int = 100) -> list[Blob]:
        """Blobs, the largest first."""
        return self._get("/v1/blobs", {"limit": limit})["blobs"]

    def remove_blob(self, url: str) -> None:
        """Remove a content, whoever names it."""
        from postroom.protocol.blobs import sha256_of

        self.transport.call("DELETE", f"/v1/blobs/{sha256_of(url)}")


def _pieces(content: BinaryIO) -> Iterator[bytes]:
    while data := content.read(CHUNK):
        yield data


class CredentialCalls(Calls):
    """Credentials that the gateway adds to workers' requests."""

    def add_credential(
        self,
        name: str,
        host: str,
        secret: str,
        *,
        path: str = "",
        header: str = "",
        workers: Sequence[str] = (),
        replace: bool = False,
    ) -> Credential:
        """Keep a credential; it counts from the next request on.

        Args:
            name: by which templates name it.
            host: `host`, `host:port` or with a scheme before it.
            secret: goes to the control plane, which gives it to nobody but that host.
            path: prefix of the paths that it is for.
            header: `Name: value` with `{secret}` in the value; `Authorization: Bearer {secret}` if not given.
            workers: nicks or uids that alone may use it.
            replace: take the place of one of that name.
        """
        body: dict[str, Any] = {"name": name, "host": host, "secret": secret}
        body |= {"workers": list(workers), "replace": replace}
        return self._post("/v1/credentials", body | given(path=path, header=header))

    def credentials(self) -> list[Credential]:
        """All of them, without their secrets."""
        return self._get("/v1/credentials")["credentials"]

    def remove_credential(self, name: str) -> None:
        """Forget one; the next request goes without it."""
        self.transport.call("DELETE", f"/v1/credentials/{name_of(name)}")


CANCEL_TIMEOUT = 15.0
"""Seconds that an agent gets to stop working on a task; its sidecar kills it after 5."""


class TaskCalls(Calls):
    """Tasks of the agents, as their operator.

    A `ref` is a task's id or its beginning, of 4 hex digits or more.
    """

    def delegate(
        self, text: str, *, to: str = "", skill: str = "", key: str = "", context: str = ""
    ) -> Task:
        """Give an agent a task; it is on disk when this returns, also if the agent is offline.

        Args:
            to: `@nick` or uid; "" lets the post room choose an agent that has `skill`.
            skill: that the agent's card must have.
            key: idempotency key; the same key toward the same agent is the same task. Without one a fresh
                one is made, so that an attempt that is repeated asks for nothing twice.
            context: id of the conversation that the task belongs to.
        """
        body = {"text": text, "key": key or new_key()}
        body |= given(to=to, skill=skill, context=context)
        return self._post_keyed("/v1/tasks", body)

    def tasks(
        self,
        *,
        open_only: bool = False,
        state: str = "",
        worker: str = "",
        requester: str = "",
        limit: int = 100,
        before: int = 0,
    ) -> list[Task]:
        """Tasks, newest first, without their artifacts; `before` is a `requested` of an earlier answer."""
        query: dict[str, Any] = {"limit": limit} | ({"open": 1} if open_only else {})
        query |= given(state=state, worker=worker, requester=requester, before=before or None)
        return self._get("/v1/tasks", query)["tasks"]

    def task(self, ref: str) -> Task:
        """One task with its artifacts."""
        return self._get(f"/v1/tasks/{task_ref(ref)}")

    def await_task(self, ref: str, rest: Rest, timeout: float) -> Task:
        """The task when it has come to rest.

        After `timeout` seconds it is returned as it stands, with `timed_out` true.
        """
        return self._wait(f"/v1/tasks/{task_ref(ref)}", rest, timeout)

    def task_events(self, ref: str, *, after: int = 0, limit: int = 200) -> list[TaskEvent]:
        """Changes of a task after the stream sequence `after`, oldest first."""
        query = {"after": after, "limit": limit}
        return self._get(f"/v1/tasks/{task_ref(ref)}/events", query)["events"]

    def follow_task(
        self, ref: str, *, after: int = 0, away: Callable[[bool], None] = lambda _: None
    ) -> EventStream:
        """Changes of a task after the stream sequence `after`, up to the one that ends it.

        Each event is an `update`, its data a `TaskEvent`, or a `trouble`: `text` says what keeps the task now, `worker`
        who does. `away` is told when the post room has gone and when it is back.
        """
        from postroom.client.stream import EventStream

        path = f"/v1/tasks/{task_ref(ref)}/stream"
        return EventStream(
            self.transport, {}, after=str(after), path=path, is_last=_ends_task, away=away
        )

    def cancel_task(self, ref: str, *, reason: str = "", timeout: float = CANCEL_TIMEOUT) -> Task:
        """Have an agent stop working on a task; after `timeout` seconds it is returned as it stands."""
        body = {"timeout": timeout} | given(reason=reason)
        path = f"/v1/tasks/{task_ref(ref)}/cancel"
        return self._post(path, body, repeatable=True, extra_time=timeout)

    def answer_task(self, ref: str, text: str) -> Task:
        """Answer the question that a task waits with.

        It is never repeated by itself: the agent could take the second one for the answer to its next question.

        Raises:
            Conflict: it asks nothing.
        """
        return self._post(f"/v1/tasks/{task_ref(ref)}/answer", {"text": text})


def _ends_task(event: Event) -> bool:
    return event.data.get("final") is True
