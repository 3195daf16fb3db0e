"""Requests of agents to the control plane on `ctl.<own>.<verb>` (docs/architecture.md, Agent requests).

The second token of the subject is the asker's uid, which nats-server has checked. An answer is JSON; an error is
`{"error": <problem document>}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from postroom.bus.port import Message, Subscription
from postroom.control.agent_task_requests import AgentTaskRequests, TaskVerb
from postroom.control.parts import Parts
from postroom.directory.search import bounded
from postroom.errors import (
    Forbidden,
    InvalidInput,
    NotFound,
    PostroomError,
    RequestTimeout,
    problem,
)
from postroom.identity import jwt
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.limits import MAX_AGENT_ANSWER, MAX_LIST, MAX_VALUES, TASK_DEPTH
from postroom.protocol.principal import Principal, Scope
from postroom_a2a import strict_json
from postroom_a2a.limits import ConcurrencyLimit
from postroom_a2a.messages import context_fault

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asker:
    """The agent that asks, as nats-server reports it.

    Attributes:
        me: the principal.
        key: public user key of the connection, "" if the server sent none.
    """

    me: Principal
    key: str


Verb = Callable[[Asker, dict[str, Any]], Awaitable[dict[str, Any]]]

NEEDS = {("tasks", verb): Scope.TASK for verb in ("open", "choose", "cancel", "answer")}
"""The scopes of requests that need another than `read`."""

MAX_AT_ONCE = 8
"""Requests of one agent that are handled at a time: some wait for seconds, and all agents share this process."""


class AgentRequests:
    """Answers the requests of every agent of the organisation, over the connection to core."""

    def __init__(self, parts: Parts, tasks: AgentTaskRequests) -> None:
        self._bus = parts.bus
        self._directory = parts.directory
        self._iam = parts.iam
        self._office = parts.office
        self._issuer = parts.issuer
        self._search = parts.search
        self._subscription: Subscription | None = None
        # On an error of this type the sidecar asks again in a moment.
        self._limit = ConcurrencyLimit(
            MAX_AT_ONCE, lambda: RequestTimeout("this agent asks too much at once")
        )
        self._verbs: dict[tuple[str, ...], Verb] = {
            ("agents", "resolve"): self._resolve,
            ("agents", "list"): self._list,
            ("cards", "find"): self._find,
            ("cards", "get"): self._card,
            ("feed", "history"): self._history,
            ("messages", "thread"): self._thread,
            ("credential", "renew"): self._renew,
            **{("tasks", name): _of_uid(verb) for name, verb in tasks.verbs.items()},
        }

    async def open(self) -> None:
        """Begin to answer."""
        self._subscription = await self._bus.serve(
            subjects.ctl("*", ">"), self._answer, queue="ctl"
        )

    async def close(self) -> None:
        """Stop answering."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _answer(self, message: Message) -> bytes:
        try:
            said = subjects.parse(message.subject)
            verb = self._verbs.get(said.rest)
            if verb is None:
                raise NotFound(f"there is no request {'.'.join(said.rest)}")
            asked = strict_json.bounded(message.payload or b"{}", TASK_DEPTH, MAX_VALUES)
            if not isinstance(asked, dict):
                raise InvalidInput("a request is a JSON object")
            with self._limit.slot(said.sender):
                me = await self._iam.worker(said.sender)
                me.require(NEEDS.get(said.rest, Scope.READ))
                answer = await verb(Asker(me, _user_key(message)), asked)
        except PostroomError as error:
            answer = {"error": problem(error)}
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            answer = {"error": problem(InvalidInput(f"the request cannot be read: {error}"))}
        return strict_json.dumps(answer)

    async def _resolve(self, _asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        agent = await self._directory.resolve(str(asked.get("ref", "")))
        return {"uid": agent.uid, "nick": agent.nick, "kind": agent.kind, "org": agent.org}

    async def _list(self, _asker: Asker, _asked: dict[str, Any]) -> dict[str, Any]:
        agents = await self._directory.all()
        return {
            "agents": [{"uid": a.uid, "nick": a.nick, "kind": a.kind, "org": a.org} for a in agents]
        }

    async def _find(self, _asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        skill, text = str(asked.get("skill") or ""), str(asked.get("text") or "")
        # A worker looks for an agent with a card.
        found = await self._search.find(skill, text)
        return bounded([entry for entry in found if entry["card"] is not None])

    async def _card(self, _asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        return {**await self._search.get(str(asked.get("ref", "")))}

    async def _history(self, asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        project = str(asked.get("project", ""))
        if project not in await self._directory.projects(asker.me.uid):
            raise Forbidden(f"the agent is not in project {project!r}")
        limit = min(max(int(asked.get("limit", 50)), 1), MAX_LIST)
        posts = await self._office.posts(project, limit=limit)
        return {"posts": [post.as_json() for post in posts]}

    async def _thread(self, asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        thread = asked.get("thread")
        if not isinstance(thread, str) or not thread or context_fault(thread):
            raise InvalidInput("'thread' has to be the id of a conversation")
        found = await self._office.search(thread=thread, seer=asker.me.uid, limit=MAX_LIST)
        return {"messages": _newest([mail.as_json() for mail in found])}

    async def _renew(self, asker: Asker, _asked: dict[str, Any]) -> dict[str, Any]:
        projects = tuple(await self._directory.projects(asker.me.uid))
        token = await self._issuer.renew(asker.key, asker.me.uid, projects)
        return {"jwt": token, "expires_at": jwt.decode(token)["exp"]}


def _newest(found: list[Any]) -> list[Any]:
    """Those that fit an answer, oldest first; `found` begins with the newest."""
    kept, size = [], 0
    for record in found:
        size += len(strict_json.dumps(record)) + 1
        if size > MAX_AGENT_ANSWER:
            break
        kept.append(record)
    return kept[::-1]


def _of_uid(verb: TaskVerb) -> Verb:
    async def answer(asker: Asker, asked: dict[str, Any]) -> dict[str, Any]:
        return await verb(asker.me, asked)

    return answer


def _user_key(message: Message) -> str:
    """The connection's user key: nats-server puts it on requests that cross a shared import."""
    try:
        return str(
            strict_json.loads(message.metadata.get("Nats-Request-Info", "{}").encode()).get(
                "user", ""
            )
        )
    except (ValueError, AttributeError):
        return ""
