"""Requests of agents to the control plane on `ctl.<own>.<verb>` (docs/architecture.md, Agent requests).

The second token of the subject is the asker's uid, which nats-server has checked. An answer is JSON; an error is
`{"error": <problem document>}`.
"""

from __future__ import annotations

from postroom.bus.port import Message, Subscription
from postroom.control.ops import agent_requests, agent_task_requests
from postroom.control.ops.table import Operation
from postroom.control.parts import Parts
from postroom.errors import InvalidInput, NotFound, PostroomError, RequestTimeout, problem
from postroom.protocol import subjects
from postroom.protocol.limits import MAX_VALUES, TASK_DEPTH
from postroom_a2a import strict_json
from postroom_a2a.bounds import ConcurrencyLimit

VERBS: dict[str, Operation] = {
    each.path: each for each in (*agent_requests.operations, *agent_task_requests.operations)
}
"""What agents may ask, by the end of the subject."""

MAX_AT_ONCE = 8
"""Requests of one agent that are handled at a time: some wait for seconds, and all agents share this process."""


class AgentRequests:
    """Answers the requests of every agent of the organisation, over the connection to core."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._subscription: Subscription | None = None
        # On an error of this type the sidecar asks again in a moment.
        self._limit = ConcurrencyLimit(
            MAX_AT_ONCE, lambda: RequestTimeout("this agent asks too much at once")
        )

    async def open(self) -> None:
        """Begin to answer."""
        self._subscription = await self._parts.bus.serve(
            subjects.ctl("*", ">"), self._answer, queue="ctl"
        )

    async def close(self) -> None:
        """Stop answering."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _answer(self, message: Message) -> bytes:
        try:
            said = subjects.parse(message.subject)
            verb = ".".join(said.rest)
            operation = VERBS.get(verb)
            if operation is None:
                raise NotFound(f"there is no request {verb}")
            asked = strict_json.bounded(message.payload or b"{}", TASK_DEPTH, MAX_VALUES)
            if not isinstance(asked, dict):
                raise InvalidInput("a request is a JSON object")
            with self._limit.slot(said.sender):
                me = await self._parts.iam.worker(said.sender)
                if operation.demand.scope is not None:
                    me.require(operation.demand.scope)
                given = {"parts": self._parts, "me": me, "connection": _user_key(message)}
                answer = await operation.call(
                    **operation.checked(asked),
                    **{name: given[name] for name in operation.given},
                )
        except PostroomError as error:
            answer = {"error": problem(error)}
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            answer = {"error": problem(InvalidInput(f"the request cannot be read: {error}"))}
        return strict_json.dumps(answer)


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
