"""The calls of the HTTP API by subject: the shared part, then audit log, blobs, credentials, tasks (docs/api.md)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from postroom.client.rules import PERHAPS_DONE, Query
from postroom.client.transport import Transport
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.ids import check_name
from postroom.protocol.intervals import STREAM_SILENCE

if TYPE_CHECKING:
    from postroom.client.stream import Event, EventStream
    from postroom.protocol.shapes import (
        Blob,
        Credential,
        Push,
        Rest,
        Task,
        TaskEvent,
        TaskMessage,
        WebhookKeys,
    )

POLL = 25.0
"""Seconds that one waiting call may last; a longer wait is several calls, so that a lost server is noticed."""

TASK_REF = re.compile(r"[0-9a-f]{4,32}")
"""A task's id, or a beginning from which the server can find it."""


def new_key() -> str:
    """A new idempotency key: 32 hex digits."""
    return os.urandom(16).hex()


def name_of(ref: str) -> str:
    """A nick, uid or project as a path segment, without its `@` or `#`.

    Raises:
        InvalidName: it is malformed, so it must not stand in a path.
    """
    return check_name(ref.removeprefix("@").removeprefix("#"))


def task_ref(ref: str) -> str:
    """A task's id, or its beginning, as a path segment."""
    if TASK_REF.fullmatch(ref) is None:
        raise InvalidInput(
            f"{ref!r} is not the id of a task: 4 to 32 of the digits 0-9 and a-f",
            remedy="postroom task list",
        )
    return ref


def given(**values: str | float | None) -> dict[str, Any]:
    """Those of `values` that are set."""
    return {name: value for name, value in values.items() if value not in ("", None)}


Part = Mapping[str, Any]
"""A part of a message, as A2A 1.0 JSON."""


def said(text: str, parts: Sequence[Part], subject: str = "", thread: str = "") -> dict[str, Any]:
    """The fields of a body that say something."""
    body: dict[str, Any] = {"parts": [dict(part) for part in parts]} if parts else {}
    return body | given(text=text, subject=subject, thread=thread)


class Calls:
    """Makes calls over `transport`; `clock` gives monotonic seconds, for waits."""

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
        """The answer of `path` once it has reached `milestone`, or with `timed_out` after `timeout` seconds."""
        deadline = self._clock() + min(timeout, self.transport.left())
        while True:
            slice_ = max(0.0, min(POLL, deadline - self._clock()))
            query = {"wait": milestone, "timeout": round(slice_, 3)}
            found = self._get(path, query, extra_time=slice_)
            if not found.get("timed_out") or self._clock() >= deadline:
                return found


AUDIT_SILENCE = 300.0
"""Seconds to wait for the next stored record: a long log takes time to search."""


class AuditCalls(Calls):
    """The audit log, for its operator."""

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
            plumbing: include plumbing; else one record `{"omitted": N}` counts it, where there was some.
            limit: the last so many stored records, 0 for all.
            follow: go on with new records, until the post room ends.

        Raises:
            PostroomError: the post room refused, or could not be reached.
        """
        query = given(worker=worker.removeprefix("@"), task=task, since=since, limit=limit)
        query |= {name: "true" for name, on in (("denied", denied), ("follow", follow)) if on}
        if not plumbing:
            query["plumbing"] = "false"
        silence = STREAM_SILENCE if follow else AUDIT_SILENCE
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
BLOB_SILENCE = 60.0
"""Seconds for one piece to be taken or to come."""


class BlobCalls(Calls):
    """Content that is too large for messages, for its operator. It is never held in memory as a whole."""

    def put_blob(
        self,
        content: BinaryIO,
        media_type: str,
        *,
        moved: Callable[[int], None] = lambda _: None,
    ) -> str:
        """Store a content; returns its URL when it is on disk.

        Every agent that gets the URL may read it. `moved` is called with the bytes of each piece that goes.
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
            method, path, silence=BLOB_SILENCE, content=_pieces(content, moved), headers=headers
        ) as response:
            return str(self.transport.decoded(response)["url"])

    def get_blob(self, url: str) -> Iterator[bytes]:
        """The content behind a URL, as it comes.

        Raises:
            InvalidInput: it is not the URL of a blob.
            ProtocolViolation: at the end: the content has another hash.
        """
        from postroom.protocol.blobs import sha256_of

        wanted, found = sha256_of(url), hashlib.sha256()
        with self.transport.exchange(
            "GET", f"/v1/blobs/{wanted}", silence=BLOB_SILENCE
        ) as response:
            for data in response.iter_raw(CHUNK):
                found.update(data)
                yield data
        if found.hexdigest() != wanted:
            raise ProtocolViolation("the content does not have the hash in the URL")

    def blobs(self, limit: int = 100) -> list[Blob]:
        """Blobs, the largest first."""
        return self._get("/v1/blobs", {"limit": limit})["blobs"]

    def remove_blob(self, url: str) -> None:
        """Remove a content, even one that a message or a task names."""
        from postroom.protocol.blobs import sha256_of

        self.transport.call("DELETE", f"/v1/blobs/{sha256_of(url)}")


def _pieces(content: BinaryIO, moved: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    while data := content.read(CHUNK):
        yield data
        moved(len(data))


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
        """Keep a credential; it applies from the next request on.

        Args:
            name: by which templates name it.
            host: `host`, `host:port` or with a scheme before it.
            secret: only the control plane and that host ever get it.
            path: prefix of the paths that it is for.
            header: `Name: value` with `{secret}` in the value; `Authorization: Bearer {secret}` if not given.
            workers: nicks or uids of the only workers that may use it.
            replace: replace the credential of that name.
        """
        body: dict[str, Any] = {"name": name, "host": host, "secret": secret}
        body |= {"workers": list(workers), "replace": replace}
        return self._post("/v1/credentials", body | given(path=path, header=header))

    def credentials(self) -> list[Credential]:
        """All of them, without their secrets."""
        return self._get("/v1/credentials")["credentials"]

    def remove_credential(self, name: str) -> None:
        """Forget a credential; the next request goes without it."""
        self.transport.call("DELETE", f"/v1/credentials/{name_of(name)}")


CANCEL_TIMEOUT = 15.0
"""Seconds that a cancel waits; the agent's sidecar kills its program after 5."""


class TaskCalls(Calls):
    """Tasks of the agents, for their operator.

    A `ref` is a task's id or its beginning, of 4 hex digits or more.
    """

    def delegate(
        self,
        text: str = "",
        *,
        to: str = "",
        skill: str = "",
        key: str = "",
        parts: Sequence[Part] = (),
        subject: str = "",
        thread: str = "",
    ) -> Task:
        """Give an agent a task; it is on disk when this returns, even if the agent is offline.

        Args:
            to: `@nick` or uid; "" lets the post room choose an agent that has `skill`.
            skill: of the agent's card.
            key: idempotency key: one key and one agent give one task. Without one a new key is made, so that a
                repeated attempt requests nothing twice.
            parts: further parts (A2A 1.0), after the text.
            subject: one line.
            thread: id of the conversation that the task belongs to.
        """
        body = said(text, parts, subject, thread) | {"key": key or new_key()}
        body |= given(to=to, skill=skill)
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
        door: str = "",
    ) -> list[Task]:
        """Tasks, newest first, without their artifacts; `before` is a `requested` of an earlier answer."""
        query: dict[str, Any] = {"limit": limit} | ({"open": 1} if open_only else {})
        query |= given(
            state=state, worker=worker, requester=requester, before=before or None, door=door
        )
        return self._get("/v1/tasks", query)["tasks"]

    def task(self, ref: str) -> Task:
        """One task with its artifacts."""
        return self._get(f"/v1/tasks/{task_ref(ref)}")

    def await_task(self, ref: str, rest: Rest, timeout: float) -> Task:
        """The task once it is at rest; after `timeout` seconds as it is, with `timed_out` true."""
        return self._wait(f"/v1/tasks/{task_ref(ref)}", rest, timeout)

    def task_events(self, ref: str, *, after: int = 0, limit: int = 200) -> list[TaskEvent]:
        """Changes of a task after the stream sequence `after`, oldest first."""
        query = {"after": after, "limit": limit}
        return self._get(f"/v1/tasks/{task_ref(ref)}/events", query)["events"]

    def pushes(self, ref: str) -> list[Push]:
        """All pushes of a task that this caller may see, the oldest change first."""
        found: list[Push] = []
        after: int | None = 0
        while after is not None:
            page = self._get(f"/v1/tasks/{task_ref(ref)}/pushes", {"after": after, "limit": 200})
            found += page["pushes"]
            after = page["next"]
        return found

    def push_again(self, ref: str, push: str) -> Push:
        """Send the push of that id again at once."""
        path = f"/v1/tasks/{task_ref(ref)}/pushes/{name_of(push)}/again"
        return self._post(path, {}, repeatable=True)

    def webhook_keys(self) -> WebhookKeys:
        """What verifies that a push to a URL of this caller's is of this post room."""
        return self._get("/v1/webhooks/keys")

    def follow_task(
        self, ref: str, *, after: int = 0, away: Callable[[bool], None] = lambda _: None
    ) -> EventStream:
        """Changes of a task after the stream sequence `after`, up to the one that ends it.

        Each event is an `update`, its data a `TaskEvent`, or a `trouble` with `worker` and, in `text`, the reason why
        the task does not go on now. `away` is called when the post room has gone and when it is back.
        """
        from postroom.client.stream import EventStream

        path = f"/v1/tasks/{task_ref(ref)}/stream"
        return EventStream(
            self.transport, {}, after=str(after), path=path, is_last=_ends_task, away=away
        )

    def task_messages(self, ref: str) -> list[TaskMessage]:
        """The messages that belong to a task, oldest first."""
        return self._get(f"/v1/tasks/{task_ref(ref)}/messages")["messages"]

    def retry_task(self, ref: str, *, key: str = "", force: bool = False) -> Task:
        """Ask for a task again that failed, was canceled or rejected; with `force` also a completed one.

        Without a `key` a task has one retry, and asking again gives that one.

        Raises:
            Conflict: it has not ended, or is completed.
        """
        body = given(key=key) | ({"force": True} if force else {})
        return self._post(f"/v1/tasks/{task_ref(ref)}/retry", body, repeatable=True)

    def cancel_task(self, ref: str, *, reason: str = "", timeout: float = CANCEL_TIMEOUT) -> Task:
        """Have an agent stop working on a task; after `timeout` seconds the task is returned as it is."""
        body = {"timeout": timeout} | given(reason=reason)
        path = f"/v1/tasks/{task_ref(ref)}/cancel"
        return self._post(path, body, repeatable=True, extra_time=timeout)

    def answer_task(
        self, ref: str, text: str = "", *, parts: Sequence[Part] = (), subject: str = ""
    ) -> Task:
        """Answer the question of a task; `parts` and `subject` as in `delegate`.

        The call is never repeated by itself: the agent could take a second answer for its next question.

        Raises:
            Conflict: the task waits for no answer.
        """
        return self._post(f"/v1/tasks/{task_ref(ref)}/answer", said(text, parts, subject))


def _ends_task(event: Event) -> bool:
    return event.data.get("final") is True
