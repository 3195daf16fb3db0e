"""Every route of the control plane as a method (docs/api.md)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from postroom.client.approvals import ApprovalCalls
from postroom.client.calls import (
    AuditCalls,
    BlobCalls,
    CredentialCalls,
    Part,
    TaskCalls,
    given,
    name_of,
    new_key,
    said,
)
from postroom.client.keys import KeyCalls
from postroom.client.locate import ServerAddress, locate
from postroom.client.rules import Locate, Query
from postroom.client.transport import Transport
from postroom.client.workspaces import WorkspaceCalls
from postroom.errors import PostroomError
from postroom.protocol.ids import check_message_id, check_name

if TYPE_CHECKING:
    from postroom.client.stream import EventStream
    from postroom.client.worker_events import WorkerEvents
    from postroom.protocol.answers import Leftovers, ProjectEvents
    from postroom.protocol.shapes import (
        Alert,
        Announcement,
        Dead,
        Excess,
        Leftover,
        Listed,
        Mail,
        Milestone,
        Opening,
        Org,
        Post,
        RemoteListed,
        Removed,
        Status,
        Worker,
        WorkerEvent,
    )

Away = Callable[[bool], None]
"""Called with True when the post room has gone, and with False when it is back."""


def _nobody(away: bool) -> None:
    del away


class Client(
    TaskCalls, BlobCalls, CredentialCalls, AuditCalls, KeyCalls, WorkspaceCalls, ApprovalCalls
):
    """A control plane, for its operator.

    Every method raises what `Transport.call` raises. All are synchronous and bounded.
    """

    @classmethod
    def at(cls, state: Path, org: str = "") -> Client:
        """The post room on the folder `state`, in the view of the organisation `org` ("" for the default one).

        Raises:
            InvalidName: no organisation can have that name.
        """
        return cls.on(lambda: locate(state), org)

    @classmethod
    def on(cls, find: Locate, org: str = "") -> Client:
        """The post room at the address that `find` returns; it is asked again when nobody answers there."""
        return cls(Transport(find, org=org))

    @property
    def server(self) -> ServerAddress:
        """The address of the post room."""
        return self.transport.server

    def close(self) -> None:
        """Close all connections."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ── the post room ────────────────────────────────────────────────────────────────────────────

    def ready(self) -> bool:
        """Whether it serves calls."""
        try:
            return bool(self._get("/readyz")["ready"])
        except PostroomError:
            return False

    def status(self) -> Status:
        """The status of the whole post room."""
        return self._get("/v1/status")

    def agents(self, *, skill: str = "", text: str = "", kind: str = "") -> list[Listed]:
        """Every agent, or those of that kind whose Agent Card has `skill` and `text`."""
        query = given(skill=skill, text=text, kind=kind)
        return self._get("/v1/agents", query or None)["agents"]

    def agent(self, ref: str) -> Listed:
        """The agent of that nick or uid."""
        return self._get(f"/v1/agents/{name_of(ref)}")

    def add_agent(
        self,
        nick: str,
        *,
        kind: str,
        card: Mapping[str, Any] | None,
        scopes: Sequence[str] = (),
        public: bool = False,
        pin: str = "",
    ) -> dict[str, Any]:
        """Give an agent that Postroom does not run an address and a key, which no answer shows again.

        `pin` as for `create_key`.
        """
        body = {"nick": nick, "kind": kind, "card": card, "scopes": list(scopes), "public": public}
        body |= given(pin=pin)
        return self.transport.call("POST", "/v1/agents", json=body)

    def add_remote(
        self, url: str, *, nick: str = "", credential: str = "", deadline: float = 0.0
    ) -> RemoteListed:
        """Give the agent of other people at `url` an address here; one that has one already stays as it is."""
        body = {"url": url, "nick": nick, "credential": credential, "deadline": deadline}
        return self.transport.call("POST", "/v1/agents/remote", json=body, repeatable=not nick)

    def remote(self, ref: str) -> RemoteListed:
        """An agent of other people, and where it is called."""
        return self._get(f"/v1/agents/{name_of(ref)}/remote")

    def remove_agent(self, ref: str) -> dict[str, Any]:
        """Take such an agent's address and keys away for ever."""
        return self.transport.call("DELETE", f"/v1/agents/{name_of(ref)}")

    def card(self, ref: str) -> dict[str, Any]:
        """The signed Agent Card of the agent of that nick or uid."""
        return self._get(f"/v1/agents/{name_of(ref)}/card")

    def card_keys(self) -> list[dict[str, str]]:
        """The public keys (JWK) that cards are signed with."""
        return self._get("/.well-known/jwks.json")["keys"]

    def orgs(self) -> list[Org]:
        """All organisations, the default one first."""
        return self._get("/v1/orgs")["orgs"]

    def create_org(self, name: str) -> Org:
        """Make an organisation; it is open when this returns, or its `detail` says why not yet."""
        return self.transport.call("POST", "/v1/orgs", json={"name": name}, extra_time=90.0)

    def remove_org(self, name: str) -> str:
        """End an organisation for ever; returns the path of its kept folder, "" if it had none."""
        path = f"/v1/orgs/{check_name(name, 'organisation')}"
        return self.transport.call("DELETE", path, extra_time=90.0)["folder"]

    def openings(self, org: str) -> list[Opening]:
        """What is open of the machine to the lesser keys of an organisation."""
        return self._get(f"/v1/orgs/{check_name(org, 'organisation')}/openings")["openings"]

    def open_to(
        self, org: str, folder: str = "", mode: str = "copy", wall: str = "", *, pin: str = ""
    ) -> list[Opening]:
        """Open a folder, or a weaker wall, to the lesser keys of an organisation."""
        body = {"folder": folder, "mode": mode, "wall": wall, "pin": pin}
        path = f"/v1/orgs/{check_name(org, 'organisation')}/openings"
        return self.transport.call("POST", path, json=body)["openings"]

    def close_to(self, org: str, folder: str = "", wall: str = "") -> list[Opening]:
        """Close it again; workers that have it are ended."""
        body = {"folder": folder, "wall": wall}
        path = f"/v1/orgs/{check_name(org, 'organisation')}/openings"
        return self.transport.call("DELETE", path, json=body, extra_time=60.0)["openings"]

    def shutdown(self) -> None:
        """Ask the post room to end; it answers before it ends."""
        self.transport.call("POST", "/v1/shutdown")

    # ── workers ──────────────────────────────────────────────────────────────────────────────────

    def workers(self) -> list[Worker]:
        """All workers, ended ones too."""
        return self._get("/v1/workers")["workers"]

    def worker(self, ref: str) -> Worker:
        """The worker of that nick or uid."""
        return self._get(f"/v1/workers/{name_of(ref)}")

    def spawn(
        self,
        template: str,
        *,
        files: Mapping[str, bytes] | None = None,
        name: str = "",
        project: str = "",
        overrides: Mapping[str, str] | None = None,
        sandbox: str = "",
        isolation: str = "",
        path: str = "",
        workspace: str = "",
        mode: str = "",
        branches: Sequence[str] = (),
        autonomous: bool = False,
        wait: float = 0.0,
        pin: str = "",
    ) -> Worker:
        """Start a worker from a template's text and its files.

        `isolation` is the weakest acceptable level of a wall: `enforced`, `partial` or `none`. `path` is the
        template's file; `workspace` a folder of the post room's machine that the worker works on, and `mode` how
        (`worktree`, `copy` or `direct`); `branches` are patterns of further branches that it sees there. With
        `autonomous` its agent asks for nothing. With `wait` seconds, `started` in the answer says whether the agent has
        started, or is None if that was not known in time. `pin` is the caller's, if they have set one.
        """
        body: dict[str, Any] = {
            "template": template,
            "files": _encoded(files),
            "set": dict(overrides or {}),
        }
        body |= given(name=name, project=project, sandbox=sandbox, isolation=isolation, path=path)
        body |= given(workspace=workspace, mode=mode, pin=pin)
        body |= {"wait": wait} if wait else {}
        body |= {"branches": list(branches)} if branches else {}
        body |= {"autonomous": True} if autonomous else {}
        return self.transport.call("POST", "/v1/workers", json=body, extra_time=60.0)

    def stop(self, ref: str) -> Worker:
        """Stop a worker; stopping a stopped one changes nothing."""
        return self._post(f"/v1/workers/{name_of(ref)}/stop", repeatable=True)

    def remove(self, ref: str, *, purge: bool = False) -> Removed:
        """End a worker and release its address for ever; with `purge` also delete its files."""
        path = f"/v1/workers/{name_of(ref)}"
        return self.transport.call("DELETE", path, params={"purge": "true"} if purge else None)

    def leftovers(self) -> list[Leftover]:
        """The files of removed workers."""
        return self._get("/v1/leftovers")["leftovers"]

    def left(self, repository: str = "") -> Leftovers:
        """What removed workers have left, also in the repository that this folder lies in."""
        params = {"repository": repository} if repository else None
        return self.transport.call("GET", "/v1/leftovers", params=params, extra_time=60.0)

    def tidy(self, repository: str, named: Sequence[str] = ()) -> Leftovers:
        """Delete what of it is merged and saved, and what is named; returns what was deleted."""
        params = {"repository": repository, "named": ",".join(named)}
        return self.transport.call("DELETE", "/v1/leftovers", params=params, extra_time=60.0)

    def prune(self) -> list[Leftover]:
        """Delete the files of removed workers; returns what was deleted."""
        return self.transport.call("DELETE", "/v1/leftovers", extra_time=60.0)["leftovers"]

    def excess(self) -> list[Excess]:
        """What the settings of retention do not keep."""
        return self.transport.call("GET", "/v1/retention", extra_time=600.0)["retention"]

    def give_up(self) -> list[Excess]:
        """Give that up now; returns what it was."""
        return self.transport.call("DELETE", "/v1/retention", extra_time=600.0)["retention"]

    def back_up(self, file: str, passphrase: str) -> dict[str, Any]:
        """Write a backup of the whole post room to `file`."""
        body = {"file": file, "passphrase": passphrase}
        return self.transport.call("POST", "/v1/backup", json=body, extra_time=6 * 3600.0)

    def restart(
        self,
        ref: str,
        template: str = "",
        *,
        files: Mapping[str, bytes] | None = None,
        wait: float = 0.0,
        pin: str = "",
    ) -> Worker:
        """Stop and start a worker, with a new template and its files if given.

        `changed` in the answer names what is new; `wait` as for `spawn`.
        """
        body: dict[str, Any] = {"wait": wait} if wait else {}
        body |= {"pin": pin} if pin else {}
        if template:
            body |= {"template": template, "files": _encoded(files)}
        path = f"/v1/workers/{name_of(ref)}/restart"
        return self.transport.call("POST", path, json=body or None, extra_time=60.0)

    def revoke(self, ref: str) -> Worker:
        """Void every credential of a worker, cut its connections and end it; `restart` gives it a new identity."""
        return self._post(f"/v1/workers/{name_of(ref)}/revoke", repeatable=True)

    def revoke_all(self) -> list[Worker]:
        """`revoke` for every worker."""
        return self._post("/v1/workers/revoke", repeatable=True)["workers"]

    def trusted_keys(self) -> list[dict[str, str]]:
        """The public keys of credentials: role, key, state."""
        return self._get("/v1/trust/keys")["keys"]

    def rotate(self, kind: str) -> dict[str, Any]:
        """Replace the keys of `kind` (`agents`, `account`, `operator`, `proxy`) while workers stay connected."""
        return self.transport.call("POST", "/v1/trust/rotate", json={"kind": kind}, extra_time=90.0)

    def served_card(self, ref: str) -> dict[str, Any]:
        """The Agent Card as the worker's own A2A server serves it.

        Raises:
            PostroomError: the worker does not run.
        """
        return self._get(f"/v1/workers/{name_of(ref)}/agent-card.json")

    def sdk_events(self, uid: str, events: list[dict[str, Any]]) -> None:
        """Report what a worker's agent did; only the worker itself may, through the gateway."""
        self._post(f"/v1/workers/{name_of(uid)}/sdk-events", {"events": events})

    def newest_events(self, ref: str, *, limit: int = 100, before_id: int = 0) -> list[WorkerEvent]:
        """The last that a worker's agent did, the oldest first; before the event `before_id` unless that is 0."""
        query: dict[str, Any] = {"newest": "true", "limit": limit}
        query |= given(before_id=before_id or None)
        return self._get(f"/v1/workers/{name_of(ref)}/sdk-events", query)["events"]

    def past_events(self, ref: str, *, after_id: int = 0, limit: int = 100) -> list[WorkerEvent]:
        """What a worker's agent did, past the event `after_id`, the oldest first."""
        query = {"after_id": after_id, "limit": limit}
        return self._get(f"/v1/workers/{name_of(ref)}/sdk-events", query)["events"]

    def events(
        self,
        ref: str,
        *,
        after_id: int = 0,
        for_ever: bool = False,
        away: Callable[[bool], None] = lambda _: None,
    ) -> WorkerEvents:
        """Follow what a worker's agent does, past the event `after_id`; -1 for what comes from now on.

        Args:
            for_ever: wait for a post room that has ended; else it is an error when it does not come back soon.
            away: called with True when the post room has gone, and with False when it is back.
        """
        from postroom.client.stream import FOR_EVER, RECONNECT
        from postroom.client.worker_events import WorkerEvents

        path = f"/v1/workers/{name_of(ref)}/sdk-events/stream"
        retry = FOR_EVER if for_ever else RECONNECT
        return WorkerEvents(self.transport, path, after=after_id, retry=retry, away=away)

    # ── messages ─────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        to: str,
        text: str = "",
        *,
        expects_reply: bool = True,
        expires_in: float | None = None,
        key: str = "",
        reply_to: str = "",
        parts: Sequence[Part] = (),
        subject: str = "",
        thread: str = "",
    ) -> Mail:
        """Send a message to an agent; it is on disk when this returns.

        Args:
            to: `@nick` or uid.
            expects_reply: it ends `answered` and not `seen`.
            expires_in: seconds after which an unseen message is dead.
            key: idempotency key: one key and one agent give one message. Without one a new key is made, so that
                a repeated attempt sends nothing twice.
            reply_to: id of the message that this one answers.
            parts: further parts (A2A 1.0), after the text.
            subject: one line.
            thread: id of the conversation that it belongs to; a reply stays in that of its message.
        """
        body: dict[str, Any] = {"to": to, "expects_reply": expects_reply}
        body |= said(text, parts, subject, thread) | {"key": key or new_key()}
        body |= given(reply_to=reply_to, expires_in=expires_in)
        return self._post_keyed("/v1/messages", body)

    def message(self, message_id: str) -> Mail:
        """One message with its receipt."""
        return self._get(f"/v1/messages/{check_message_id(message_id)}")

    def wait(self, message_id: str, milestone: Milestone, timeout: float) -> Mail:
        """The message once it has reached `milestone` or never can; after `timeout` seconds as it is, with
        `timed_out` true.
        """
        return self._wait(f"/v1/messages/{check_message_id(message_id)}", milestone, timeout)

    def search(
        self,
        text: str = "",
        *,
        thread: str = "",
        other: str = "",
        limit: int = 50,
        before: int | None = None,
    ) -> list[Mail]:
        """The newest messages that you may see, newest first.

        Args:
            text: words that each of them has in its text or subject.
            thread: id of their conversation.
            other: `@nick` or uid of who has sent or received them.
        """
        query = given(text=text, thread=thread, before=before)
        query |= {"with": other} if other else {}
        return self._get("/v1/messages", {"limit": limit} | query)["messages"]

    def mark_seen(self, message_id: str) -> Mail:
        """Confirm that the operator has read a message."""
        return self._post(f"/v1/messages/{check_message_id(message_id)}/seen", repeatable=True)

    def inbox(self, *, unread: bool = True, limit: int = 100) -> list[Mail]:
        """Messages to the operator, oldest first."""
        query: dict[str, int] = {"limit": limit} | ({"unread": 1} if unread else {})
        return self._get("/v1/inbox", query)["messages"]

    def chat(self, ref: str, *, limit: int = 50, before: int | None = None) -> list[Mail]:
        """Messages between the operator and an agent, oldest first."""
        query = {"limit": limit} | given(before=before)
        return self._get(f"/v1/chats/{name_of(ref)}/messages", query)["messages"]

    # ── projects ─────────────────────────────────────────────────────────────────────────────────

    def projects(self) -> list[str]:
        """The names of all projects."""
        return self._get("/v1/projects")["projects"]

    def posts(
        self, project: str, *, text: str = "", limit: int = 50, before: int | None = None
    ) -> list[Post]:
        """The newest entries of a project's feed, oldest first.

        Args:
            text: words that each of them has.
        """
        query = {"limit": limit} | given(text=text, before=before)
        return self._get(f"/v1/projects/{name_of(project)}/posts", query)["posts"]

    def post(
        self,
        project: str,
        text: str = "",
        *,
        key: str = "",
        parts: Sequence[Part] = (),
        subject: str = "",
        thread: str = "",
    ) -> Post:
        """Publish in a project's feed; all but the project as in `send`."""
        body = said(text, parts, subject, thread) | {"key": key or new_key()}
        return self._post_keyed(f"/v1/projects/{name_of(project)}/posts", body)

    def follow_project(
        self, project: str, *, after: int = 0, for_ever: bool = False, away: Away = _nobody
    ) -> EventStream:
        """New posts of a project's feed after the stream sequence `after`; the rest as in `events`."""
        return self._follow({"project": name_of(project)}, str(after), for_ever, away)

    def project_events(self, project: str, *, limit: int = 50, before: str = "") -> ProjectEvents:
        """The newest posts of a project and what happened beside them, oldest first, and where what comes begins.

        `before` is the `next` of another answer, "" for the newest.
        """
        query = {"limit": limit} | given(before=before)
        return self._get(f"/v1/projects/{name_of(project)}/events", query)

    def follow_project_events(
        self, project: str, *, after: str, for_ever: bool = False, away: Away = _nobody
    ) -> EventStream:
        """New posts of a project (`post`) and what happens beside them (`activity`), past the cursor `after`.

        The rest as in `events`.
        """
        path = f"/v1/projects/{name_of(project)}/events/stream"
        return self._follow({}, after, for_ever, away, path)

    def follow_chat(
        self, ref: str, *, after: int = 0, for_ever: bool = False, away: Away = _nobody
    ) -> EventStream:
        """New messages between the operator and an agent after the stream sequence `after`, and receipts.

        The rest as in `events`.
        """
        return self._follow({"chat": name_of(ref)}, str(after), for_ever, away)

    def _follow(
        self, topic: Query, after: str, for_ever: bool, away: Away, path: str = "/v1/stream"
    ) -> EventStream:
        from postroom.client.stream import FOR_EVER, RECONNECT, EventStream

        retry = FOR_EVER if for_ever else RECONNECT
        return EventStream(self.transport, topic, after=after, path=path, retry=retry, away=away)

    # ── announcements ────────────────────────────────────────────────────────────────────────────

    def announce(
        self,
        text: str = "",
        *,
        key: str = "",
        parts: Sequence[Part] = (),
        subject: str = "",
        thread: str = "",
    ) -> Announcement:
        """Say something to everybody of the organisation; `key`, `parts` and `subject` as in `send`."""
        body = said(text, parts, subject, thread) | {"key": key or new_key()}
        return self._post_keyed("/v1/announcements", body)

    def outbox(self, ref: str, *, limit: int = 50, before: int | None = None) -> list[Announcement]:
        """The newest announcements of an agent, oldest first."""
        query = {"limit": limit} | given(before=before)
        return self._get(f"/v1/agents/{name_of(ref)}/outbox", query)["announcements"]

    def follow_outbox(self, ref: str, *, after: int = 0) -> EventStream:
        """Announcements of an agent after the stream sequence `after`."""
        from postroom.client.stream import FOR_EVER, EventStream

        path = f"/v1/agents/{name_of(ref)}/outbox/stream"
        return EventStream(self.transport, {}, after=str(after), path=path, retry=FOR_EVER)

    def follow_everything(self, *, away: Callable[[bool], None] = lambda _: None) -> EventStream:
        """New events: `task`, `update`, `mail` (to the operator), `post`, `alert`, `approval`, `worker` and `room`.

        The stream waits for a post room that has ended; `away` is called when it has gone and when it is back.
        """
        from postroom.client.stream import FOR_EVER, EventStream

        return EventStream(
            self.transport, {}, after="", path="/v1/events", retry=FOR_EVER, away=away
        )

    def follow_inbox(
        self, *, after: int = 0, away: Callable[[bool], None] = lambda _: None
    ) -> EventStream:
        """New messages to the operator (`mail`) after the stream sequence `after`; else as `follow_everything`."""
        from postroom.client.stream import FOR_EVER, EventStream

        path = "/v1/inbox/stream"
        return EventStream(
            self.transport, {}, after=str(after), path=path, retry=FOR_EVER, away=away
        )

    # ── dead letters ─────────────────────────────────────────────────────────────────────────────

    def alerts(self, *, ended: bool = False) -> list[Alert]:
        """The alerts that stand, those about the post room and its workers first; with `ended` all that are kept."""
        return self._get("/v1/alerts", given(all="true" if ended else ""))["alerts"]

    def clear_alerts(self, alert: str = "") -> int:
        """End the alert with that id, or all ("") that stand; returns how many."""
        path = f"/v1/alerts/{check_message_id(alert)}" if alert else "/v1/alerts"
        return self.transport.call("DELETE", path, repeatable=not alert)["cleared"]

    def deadletters(self) -> list[Dead]:
        """Messages that could not be delivered."""
        return self._get("/v1/deadletters")["deadletters"]

    def deadletter(self, dead_id: str) -> Dead:
        """One dead letter."""
        return self._get(f"/v1/deadletters/{check_message_id(dead_id)}")

    def requeue(self, dead_id: str) -> str:
        """Send a dead letter again as a new message, whose id is returned; the old one stays dead."""
        return self._post(f"/v1/deadletters/{check_message_id(dead_id)}/requeue")["id"]

    def drop(self, dead_id: str) -> None:
        """Forget a dead letter."""
        self.transport.call("DELETE", f"/v1/deadletters/{check_message_id(dead_id)}")


def _encoded(files: Mapping[str, bytes] | None) -> dict[str, str]:
    return {key: base64.b64encode(data).decode() for key, data in (files or {}).items()}
