"""Sessions that people have open in their own terminals: register, show, note how they stand, end."""

from __future__ import annotations

from starlette.responses import StreamingResponse

from postroom.control.bodies import AskedBody, HeardBody, SessionBody, WithdrawBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.keys import told
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import After, AgentRef, ApprovalRef, Wait
from postroom.control.parts import Parts
from postroom.directory.sessions import Registration, commands
from postroom.errors import Conflict, Forbidden, MessageTooLarge, NotFound, Refused
from postroom.feed.events import streamed
from postroom.feed.sessions import SessionsFeed
from postroom.protocol import answers, shapes
from postroom.protocol.principal import KEY, Principal, Scope
from postroom.store.agents import Agent
from postroom.store.sessions import SessionRow

operations = Operations()


@operations.get("/v1/sessions", Scope.READ)
async def list_(parts: Parts, me: Principal) -> answers.Sessions:
    """List the caller's sessions; all of them for who operates."""
    return {"sessions": await parts.sessions.shown(parts.sessions.seen_by(me)), "next": None}


@operations.get(
    "/v1/sessions/stream",
    Scope.READ,
    events={"mail": shapes.Mail, "state": shapes.MailState, "session": shapes.SessionChange},
)
async def stream(parts: Parts, me: Principal, after: After = 0) -> StreamingResponse:
    """Follow the sessions of the caller.

    Their unread mail, what becomes of it, and what becomes of them. `id:` is the sequence to come back with. It is for
    people; a reader that is too slow is cut off.
    """
    if me.kind != "human":
        raise Forbidden("sessions are followed by the person in whose terminal they are")
    feed = SessionsFeed(parts.changes, parts.sessions, parts.inboxes, parts.callers, me.uid)
    return streamed(feed, after)


@operations.post("/v1/sessions", Scope.SEND, status=201, fails=(Conflict, Refused))
async def register(parts: Parts, body: SessionBody, me: Principal) -> shapes.NewSession:
    """Give a session in the caller's terminal an address and a key, or resume it.

    Only people register sessions. One that is known by that `key` is the same agent again, and its former keys are
    revoked. The new key reads, sends and takes tasks, as far as the caller's does, and never more.
    """
    parts.gate.limits.making(me)
    said = Registration(
        client=body.client,
        key=body.key,
        nick=body.nick.removeprefix("@"),
        folder=body.folder,
        project=body.project,
        version=body.version,
    )
    done = await parts.sessions.register(me, said)
    (shown,) = await parts.sessions.shown([done.session])
    key = await told(parts, done.key)
    acted_on(about=done.session.uid)
    return {**shown, "api_key": key, "resumed": done.resumed}


@operations.get("/v1/sessions/{ref}", Scope.READ, fails=(NotFound,))
async def show(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Session:
    """Show a session of the caller."""
    _, session = await _named(parts, ref, me)
    return (await parts.sessions.shown([session]))[0]


@operations.put("/v1/sessions/{ref}", Scope.SEND, fails=(NotFound, Conflict))
async def note(parts: Parts, ref: AgentRef, body: HeardBody, me: Principal) -> shapes.Session:
    """Say what is new of a session, or that it was heard.

    Its owner may, and the session itself. With another `key` the address goes on under what its client calls it now.
    """
    _, session = await _named(parts, ref, me, commanding=True)
    acted_on(about=session.uid)
    noted = await parts.sessions.note(session, state=body.state, key=body.key, folder=body.folder)
    return (await parts.sessions.shown([noted]))[0]


@operations.delete("/v1/sessions/{ref}", Scope.SEND, fails=(NotFound,))
async def end(parts: Parts, ref: AgentRef, me: Principal) -> shapes.Me:
    """End a session.

    Its keys are revoked, its tasks fail, and what waits for it becomes dead letters. Its owner may, and the session
    itself.
    """
    agent, session = await _named(parts, ref, me, commanding=True)
    acted_on(about=session.uid)
    await parts.sessions.end(session.uid)
    await parts.sweep()
    return {"uid": agent.uid, "nick": agent.nick}


@operations.post(
    "/v1/sessions/{ref}/approvals",
    Scope.SEND,
    status=201,
    fails=(NotFound, Refused, MessageTooLarge, *STORING),
)
async def ask(parts: Parts, ref: AgentRef, body: AskedBody, me: Principal) -> shapes.Approval:
    """Ask people whether a session may use a tool, as its client asks at the terminal.

    Only the session itself may. After `seconds` it expires, which is no answer. With the same `id` it is the same
    approval.
    """
    session = await _itself(parts, ref, me)
    acted_on(about=body.id)
    asked = parts.approvals.ask(session.uid, body.id, body.tool, body.input, body.seconds)
    return (await asked).as_json()


@operations.get("/v1/sessions/{ref}/approvals/{approval}", Scope.READ, fails=(NotFound, Conflict))
async def asked(
    parts: Parts, ref: AgentRef, approval: ApprovalRef, me: Principal, wait: Wait = 0.0
) -> shapes.Approval:
    """Show an approval of a session to that session.

    It answers as soon as the approval is settled, or when `wait` seconds have passed.
    """
    session = await _itself(parts, ref, me)
    return (await parts.approvals.settled(session.uid, approval, wait)).as_json()


@operations.delete(
    "/v1/sessions/{ref}/approvals/{approval}", Scope.SEND, fails=(NotFound, Conflict, *STORING)
)
async def withdraw(
    parts: Parts, ref: AgentRef, approval: ApprovalRef, body: WithdrawBody, me: Principal
) -> shapes.Approval:
    """Say that a session asks no longer.

    Somebody has answered at its terminal, or it has ended. Only the session itself may. What is settled stays so.
    """
    session = await _itself(parts, ref, me)
    acted_on(about=approval)
    return (await parts.approvals.withdraw(session.uid, approval, body.reason)).as_json()


async def _itself(parts: Parts, ref: str, me: Principal) -> SessionRow:
    """The session that `me` is; raises NotFound, Forbidden for its owner and all others."""
    agent, session = await _named(parts, ref, me)
    if me.method != KEY or me.uid != session.uid:
        raise Forbidden(f"only @{agent.nick} itself may do this")
    return session


async def _named(
    parts: Parts, ref: str, me: Principal, *, commanding: bool = False
) -> tuple[Agent, SessionRow]:
    """A session that `me` may see. Raises NotFound, and with `commanding` Forbidden."""
    agent = await parts.directory.resolve(ref)
    session = parts.sessions.get(me, agent.uid)
    if commanding and not commands(me, session):
        raise Forbidden(f"only the owner of @{agent.nick}, and that session itself, may do this")
    return agent, session
