"""Tasks over the border of an organisation: their requester is a guest where their agent is (docs/a2a.md).

A task lives in the organisation of its agent alone. Who asks for it from another one does so through its own API, which
acts there for it, or at the A2A address of the agent. Whoever has a task there reads and cancels it for good; what is
sent for it, and what follows it, stands on the grant.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from postroom.control.in_flight import stands_on
from postroom.control.parts import Parts
from postroom.directory.grants import GrantScope, reach
from postroom.errors import EnvironmentFault
from postroom.protocol.blobs import named_in
from postroom.protocol.content import Content
from postroom.protocol.principal import Principal
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.ports import TaskRow

UNKNOWN = {"uid": "", "nick": "", "kind": "unknown"}
"""Stands for whoever else had to do with a task of a guest."""


CONTENT = frozenset({"parts", "status_parts", "answer_parts", "artifact", "artifacts"})
"""Fields with what agents have said."""


@dataclass(frozen=True, slots=True)
class Giving:
    """A task is given to `agent`, None for one that is still to be chosen, by `me`, in the organisation of `parts`."""

    parts: Parts
    me: Principal
    agent: Agent | None

    def shown(self, answer: Any) -> Any:
        """What is told of it, as `me` at home may see it."""
        return as_guest(answer, self.me, self.parts.owner.org) if self.me.guest else answer


@asynccontextmanager
async def giving(
    parts: Parts, me: Principal, ref: str, said: Content, *, here: bool = False
) -> AsyncGenerator[Giving]:
    """While a task for the agent that `ref` names is stored; revoking waits for it.

    Args:
        here: `me` calls where the agent is, and names no files of its home.

    Raises:
        UnknownRecipient, NotLetIn: as `directory.grants.reach`.
        EnvironmentFault: its organisation is not open.
    """
    if not ref:
        with parts.installation.decisions.taking():
            yield Giving(parts, me, None)
        return
    files = named_in({"parts": list(said.parts)})
    if files and not here:
        agent = await _reached(parts, me, ref)
        there = _place(parts, agent.org)
        if there is not parts:
            await parts.blobs.give(files, me.uid, there.blobs)
    with parts.installation.decisions.taking():
        agent = await _reached(parts, me, ref)
        there = _place(parts, agent.org)
        yield Giving(there, me if there is parts or me.guest else me.visiting(), agent)


@asynccontextmanager
async def sending(parts: Parts, me: Principal, row: TaskRow, said: Content) -> AsyncGenerator[None]:
    """While more is sent for a task that `me`, perhaps a guest, has asked for; raises as `giving`.

    Who operates is not asked whether the agent lets in.
    """
    if not me.only or me.uid == row.worker:
        yield
        return
    home = parts.installation.opened.get(me.org) if me.guest else None
    if home is not None and (files := named_in({"parts": list(said.parts)})):
        await _reached(parts, me, row.worker)
        await home.blobs.give(files, me.uid, parts.blobs)
    with parts.installation.decisions.taking():
        await _reached(parts, me, row.worker)
        yield


async def following(parts: Parts, me: Principal, worker: str) -> None:
    """Say that the running request follows a task of `worker`: for a guest it ends with the grant. Raises NotLetIn."""
    if me.guest:
        stands_on(worker, await parts.database.point(lambda store: _let_in(store, me, worker)))


def _let_in(store: Store, me: Principal, worker: str) -> Collection[str]:
    reach(store, me.org, me.uid, worker, GrantScope.TASK, time.time())
    return sides(store, me)


def sides(store: Store, me: Principal) -> Collection[str]:
    """The uids whose grants count for `me`."""
    found = store.grants.reached(me.uid)
    return found.sides if found is not None else {me.uid}


async def hosts(parts: Parts, me: Principal) -> list[tuple[Parts, Principal]]:
    """The other open organisations where `me` may have tasks, and `me` there."""
    names = await parts.database.point(lambda store: store.grants.hosts(sides(store, me)))
    opened = parts.installation.opened
    found = (opened[name] for name in sorted(names - {me.org}) if name in opened)
    return [(there, me.visiting()) for there in found]


def as_guest(answer: Any, me: Principal, org: str) -> Any:
    """An answer of the organisation `org` as its guest `me` sees it at home: its agents by their addresses.

    Of others that had to do with a task nothing is told.
    """
    if isinstance(answer, dict):
        if answer.keys() == UNKNOWN.keys():
            return _party(answer, me, org)
        return {
            name: each if name in CONTENT else as_guest(each, me, org)
            for name, each in answer.items()
        }
    if isinstance(answer, list):
        return [as_guest(each, me, org) for each in answer]
    return answer


def _party(party: dict[str, str], me: Principal, org: str) -> dict[str, str]:
    if party["uid"] == me.uid:
        return party | {"nick": me.nick.partition(".")[0]}
    if party["kind"] not in ("unknown", "human") and "." not in party["nick"]:
        return party | {"nick": f"{party['nick']}.{org}"}
    return dict(UNKNOWN)


async def _reached(parts: Parts, me: Principal, ref: str) -> Agent:
    now = time.time()
    found = await parts.database.point(
        lambda store: reach(store, me.org, me.uid, ref, GrantScope.TASK, now)
    )
    return found.agent


def _place(parts: Parts, org: str) -> Parts:
    there = parts.installation.opened.get(org)
    if there is None:
        raise EnvironmentFault(
            f"the organisation {org!r} is not open", remedy="try again in a moment"
        )
    return there
