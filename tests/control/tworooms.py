"""Two organisations of one installation, each opened by its own root: the default one, and acme."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from postroom.control.org import Organisation
from postroom.control.parts import Parts
from postroom.control.statefile import Announcement
from postroom.identity.tokens import OperatorKey
from postroom.protocol.principal import USUAL_SCOPES, Scope
from postroom.store.agents import Agent
from postroom.store.grants import GrantRow
from tests.control.taskroom import KEY, SECONDS, TaskRoom, room_on
from tests.rig import running_server

HOME, ACME = "default", "acme"


@dataclass
class Caller:
    """An agent with a key, and HTTP with that key."""

    agent: Agent
    parts: Parts
    http: httpx2.AsyncClient
    key_id: str
    secret: str = field(repr=False)

    @property
    def uid(self) -> str:
        return self.agent.uid

    @property
    def address(self) -> str:
        return f"@{self.agent.nick}.{self.agent.org}"

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """A request to the API of its own organisation."""
        return await self.http.request(method, self.at(path), **more)

    def at(self, path: str) -> str:
        return path if self.agent.org == HOME else f"/orgs/{self.agent.org}{path}"

    async def door(self, ref: str, method: str, org: str = ACME, **params: Any) -> httpx2.Response:
        """A call of A2A at the address of an agent of `org`."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        before = "" if org == HOME else f"/orgs/{org}"
        headers = {"A2A-Version": "1.0"}
        return await self.http.post(f"{before}/a2a/{ref}/", json=body, headers=headers)


@dataclass
class TwoRooms:
    """The default organisation, and acme."""

    home: TaskRoom
    acme: Parts
    stack: AsyncExitStack

    def parts(self, org: str) -> Parts:
        return self.home.parts if org == HOME else self.acme

    async def caller(
        self,
        nick: str,
        org: str = HOME,
        kind: str = "external",
        scopes: Collection[Scope] = USUAL_SCOPES,
    ) -> Caller:
        """A new agent with a key."""
        parts = self.parts(org)
        name = f"{nick}-{secrets.token_hex(3)}"
        agent = await parts.directory.register(name, kind)
        me = await parts.iam.resolve(KEY)
        made = await parts.iam.create_key(me, agent.uid, scopes=scopes)
        http = await self.stack.enter_async_context(
            httpx2.AsyncClient(
                base_url=f"http://{self.home.site.host}",
                headers={"Authorization": f"Bearer {made.secret}"},
                timeout=SECONDS,
                verify=False,
            )
        )
        return Caller(agent, parts, http, made.key.id, made.secret)

    async def let_in(self, granter: Caller, grantee: Caller, *scopes: str, **more: Any) -> GrantRow:
        """A grant of `granter`."""
        row = GrantRow(
            uuid4().hex, granter.uid, grantee.uid, " ".join(scopes), granter.uid, 1.0, **more
        )
        await granter.parts.database.write(lambda store: store.grants.put(row))
        return row

    async def revoke(self, row: GrantRow, granter: Caller) -> None:
        """End it."""
        answer = await granter.ask("DELETE", f"/v1/grants/{row.id}")
        assert answer.is_success, answer.text


@asynccontextmanager
async def two_rooms(folder: Path, **chosen: Any) -> AsyncGenerator[TwoRooms]:
    """Both, open, with `chosen` settings."""
    announcement = Announcement(
        url="https://box.example:4281",
        pid=1,
        token="",
        nats_url="",
        nats_pid=1,
        started_at="",
        version="",
        state="",
    )
    async with (
        running_server(folder, memory=True) as rig,
        room_on(folder, rig, **chosen) as home,
        AsyncExitStack() as stack,
    ):
        rig.trust.add_org(ACME)
        installation = home.parts.installation
        settings = installation.settings.for_org(ACME)
        for made in (settings.home, settings.workers):
            made.mkdir(parents=True, exist_ok=True)
        acme = await Organisation.open(
            installation, settings, rig.trust.of(ACME), stack, key=OperatorKey(Path(), KEY)
        )
        await acme.go(lambda: announcement)
        yield TwoRooms(home, acme.parts, stack)
