"""Approvals, and what is said to a worker's agent while it works."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from postroom.control.acts import check_owner
from postroom.control.bodies import ControlBody, PinBody, PolicyBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import ANY_KEY, STORING, Operations
from postroom.control.parameters import (
    AfterId,
    AgentRef,
    ApprovalRef,
    Before,
    Limit,
    Ref,
    Wait,
    next_page,
)
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, pin_of
from postroom.control.principals import itself
from postroom.directory.grants import NOBODY
from postroom.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    NotFound,
)
from postroom.events.approvals import Answer, ApprovalView, record
from postroom.events.policies import allows
from postroom.protocol import answers, shapes
from postroom.protocol.approvals import Decision
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.events import EventKind
from postroom.protocol.patterns import added
from postroom.protocol.principal import Principal, Scope
from postroom.store.agents import Agent, Party
from postroom.store.sessions import SessionRow

States = Annotated[
    Literal["pending", "all"],
    Field(description="Those that wait for an answer, or also those that are settled."),
]


operations = Operations()


@operations.get("/v1/approvals", ANY_KEY, fails=(NotFound,))
async def list_(
    parts: Parts,
    me: Principal,
    state: States = "pending",
    worker: Ref = "",
    limit: Limit = 50,
    before: Before = 0,
) -> answers.Approvals:
    """List approvals, the newest first.

    Who does not operate is shown what they, and the agents that they own, have asked for.
    """
    found = await parts.approvals.listed(
        worker=await _worker(parts, me, worker),
        pending=state == "pending",
        limit=limit,
        before=before,
        only=me.only,
    )
    older = next_page(found, limit, lambda view: view.row.seq)
    return {"approvals": [view.as_json() for view in found], "next": older}


@operations.get("/v1/approvals/{approval}", ANY_KEY, fails=(NotFound, Conflict))
async def show(
    parts: Parts, approval: ApprovalRef, me: Principal, worker: Ref = ""
) -> shapes.Approval:
    """Show an approval."""
    of = await _worker(parts, me, worker)
    return (await parts.approvals.get(approval, of, me.only)).as_json()


async def _worker(parts: Parts, me: Principal, ref: str) -> str:
    """The uid of `ref`; whether there is such an agent nobody learns here who may not see its approvals."""
    try:
        return await parts.uid_of(ref)
    except NotFound:
        if me.only:
            return NOBODY
        raise


@operations.post(
    "/v1/workers/{ref}/control",
    ANY_KEY,
    fails=(NotFound, Conflict, MessageTooLarge, *PIN, *STORING),
)
async def control(
    parts: Parts, ref: AgentRef, body: ControlBody, me: Principal
) -> answers.Controlled:
    """Answer an approval of an agent, or interrupt a worker's agent.

    200 says that the answer is on disk and was the first. 409 if the approval is settled: it says by whom, when
    and how. `edited` has the input in place of the agent's. With a PIN set, an answer needs it. Who could not give
    a worker what it has of the machine can only deny. What a session asks is allowed by its owner alone, with a PIN;
    others, and an owner without one, can only deny. An act is allowed by who owns the agent that asks for it, or else
    by who administers. Who does not operate answers acts of their own agents alone.
    """
    act = await _act(parts, me, ref, body)
    if not me.allows(Scope.OPERATE):
        me.require(Scope.OPERATE if act is None else Scope.SEND)
    agent = await parts.directory.resolve(ref)
    by = Party(me.uid, me.nick, me.kind)
    session = parts.sessions.of(agent.uid)
    if act is None and (session is None or body.type == "interrupt"):
        agent, _ = await parts.workers.record(ref)
    if body.type == "interrupt":
        acted_on(worker=agent.uid)
        sent = await parts.approvals.interrupt(agent.party, by, body.channel, body.reason)
        return {"approval": None, "interrupt": sent}
    if not body.id or not body.decision:
        raise InvalidInput("an answer has the `id` of an approval and a `decision`")
    acted_on(worker=agent.uid, about=body.id)
    allows = body.decision != Decision.DENIED
    if act is not None:
        await check_owner(parts, me, act, allows=allows)
    elif session is not None:
        _check_person(me, agent, session, allows=allows)
    elif allows:
        await parts.workers.refuse_beyond(agent.uid, me.by)
    permit = pin_of(parts, me, body.pin, needed=allows and session is not None and act is None)
    answer = Answer(Decision(body.decision), by, body.channel, body.reason, body.input)
    view = await parts.approvals.answer(agent.uid, body.id, answer, permit)
    acted_on(about=view.row.id)
    return {"approval": view.as_json(), "interrupt": None}


async def _act(parts: Parts, me: Principal, ref: str, body: ControlBody) -> ApprovalView | None:
    """The act of an agent that is answered; None where it is something else, or not for `me`."""
    if body.type == "interrupt" or not body.id:
        return None
    try:
        agent = await parts.directory.resolve(ref)
        view = await parts.approvals.get(body.id, agent.uid, me.only)
    except NotFound:
        return None
    return view if view.row.is_act else None


def _check_person(me: Principal, agent: Agent, session: SessionRow, *, allows: bool) -> None:
    """Raise Forbidden unless `me` may answer what a session asks: it works on its owner's machine, as its owner."""
    if me.kind != "human":
        raise Forbidden("people alone answer what a session asks")
    if allows and me.uid != session.owner:
        raise Forbidden(f"only the owner of @{agent.nick} may allow this", remedy="deny it")


@operations.get("/v1/workers/{ref}/policy", Scope.OPERATE, fails=(NotFound,))
async def policy(parts: Parts, ref: AgentRef) -> shapes.Policy:
    """Show what a worker's agent may do without asking.

    By its template, and by what people have added, in the order in which it counts.
    """
    agent, _ = await parts.workers.record(ref)
    return await parts.policies.show(agent)


@operations.post(
    "/v1/workers/{ref}/policy", Scope.OPERATE, fails=(NotFound, Conflict, *PIN, *STORING)
)
async def allow(parts: Parts, ref: AgentRef, body: PolicyBody, me: Principal) -> shapes.Policy:
    """Have an agent ask no more for a pattern, or set how much it does unasked.

    It counts at once and over each restart, and answers what waits already (`answered`). What the template denies
    stays denied. `autonomy` is `ask`, `edits` (of files in its folder) or `all`, with `task` until that task
    ends. 400 for a pattern that would allow every tool or every command. 409 for a worker that asks nobody, or if
    too many are added. A second one like it changes nothing. With a PIN set, it is needed. 403 for a worker that
    has more of the machine than the caller could give it.
    """
    agent, _ = await parts.workers.record(ref)
    acted_on(worker=agent.uid, about=body.task)
    await parts.workers.refuse_beyond(agent.uid, me.by)
    if not await parts.workers.interactive(agent.uid):
        raise Conflict(f"@{agent.nick} asks nobody", remedy="give its template a [sidecar] table")
    if bool(body.pattern) == bool(body.autonomy) or (body.task and body.pattern):
        raise InvalidInput("a policy changes by a `pattern`, or by `autonomy`")
    pattern = added(body.pattern) if body.pattern else ""
    task = (await parts.tasks.find(body.task)).id if body.task else ""
    await pin_of(parts, me, body.pin)()
    by = Party(me.uid, me.nick, me.kind)
    if pattern:
        policy = await parts.policies.allow(agent, pattern, by)
    else:
        policy = await parts.policies.let(agent, Autonomy(body.autonomy), by, task)
    why = f"rule {pattern}" if pattern else f"autonomy {body.autonomy}"
    answer = Answer(Decision.ALLOWED, by, body.channel, why)
    settled = await parts.approvals.settle(agent.uid, lambda view: allows(policy, view), answer)
    if settled:
        policy["answered"] = settled
    return policy


@operations.delete("/v1/workers/{ref}/policy", Scope.OPERATE, fails=(NotFound, *PIN, *STORING))
async def forget(parts: Parts, ref: AgentRef, body: PolicyBody, me: Principal) -> shapes.Policy:
    """Have a worker's agent ask again for what an added pattern names.

    Those of its template stay. One that is not there changes nothing. With a PIN set, it is needed.
    """
    agent, _ = await parts.workers.record(ref)
    acted_on(worker=agent.uid)
    if not body.pattern:
        raise InvalidInput("it is a `pattern` that is removed")
    await pin_of(parts, me, body.pin)()
    return await parts.policies.forget(agent, body.pattern, Party(me.uid, me.nick, me.kind))


@operations.get("/v1/pin", Scope.OPERATE)
async def pin(parts: Parts, me: Principal) -> shapes.Pin:
    """Show whether the caller has a PIN."""
    return parts.pins.status(me.uid)


@operations.put("/v1/pin", Scope.OPERATE, fails=(*PIN,))
async def set_pin(parts: Parts, body: PinBody, me: Principal) -> shapes.Pin:
    """Set, replace or remove the caller's PIN.

    `old` is the one before; an empty `pin` removes it.
    """
    await parts.pins.change(me.uid, body.pin.get_secret_value(), body.old.get_secret_value())
    return parts.pins.status(me.uid)


@operations.get("/v1/workers/{uid}/control/pending", Scope.SEND, door=True)
async def pending(
    parts: Parts, uid: AgentRef, me: Principal, after_id: AfterId = 0, wait: Wait = 25.0
) -> answers.Control:
    """Read what is said to a worker's agent: answers to its approvals, interrupts.

    Changes of its policy are said, too. Only the worker itself may, through its own door. Without anything past
    `after_id` it waits for up to `wait` seconds.
    """
    itself(me, uid)
    found = await parts.approvals.said_to(uid, after_id, wait)
    # As it is now, and not as each of the records left it: two people may have changed it at once.
    # With the last one alone: all of them together may be many.
    last = max((row.id for row in found if row.kind == EventKind.POLICY), default=0)
    policy = await parts.policies.told(uid) if last else None
    return {
        "records": [record(row, policy if row.id == last else None) for row in found],
        "next": found[-1].id if found else after_id,
    }
