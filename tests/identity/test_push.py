"""What a push makes of the server's answers; against the real server it is in test_connecting."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from postroom.errors import ProtocolViolation, ServerFailed
from postroom.identity.account_publisher import push_accounts
from postroom.identity.trust import Trust
from postroom_a2a.nats.port import Arrived

pytestmark = pytest.mark.anyio


@dataclass
class Answer:
    data: bytes
    subject: str = "inbox"
    reply: str = ""
    headers: Mapping[str, str] | None = None


class Listening:
    async def unsubscribe(self) -> None:
        """Nothing more comes anyway."""

    async def drain(self) -> None:
        """As `unsubscribe`."""


@dataclass
class Servers:
    """Know `known`, count `size` of them, answer every update with each of `updates`."""

    updates: Sequence[bytes]
    known: bytes = b""
    size: int = 1
    asked: list[str] = field(default_factory=list)
    max_payload: int = 1024 * 1024
    is_closed: bool = False
    is_connected: bool = True

    async def flush(self, timeout: int = 10) -> None:
        """There is nothing to wait for."""

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(
        self, subject: str, queue: str = "", cb: Arrived | None = None
    ) -> Listening:
        assert cb is not None
        self._cb = cb
        return Listening()

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.asked.append(subject)
        if subject.endswith("LOOKUP"):
            await self._cb(Answer(self.known, reply))
            return
        if subject.endswith("JSZ"):
            for number in range(self.size):
                server = {"id": f"S{number}", "name": f"n{number}"}
                said = {"server": server, "data": {"meta_cluster": {"cluster_size": self.size}}}
                await self._cb(Answer(json.dumps(said).encode()))
        else:
            for update in self.updates:
                await self._cb(Answer(update))


@pytest.mark.parametrize(
    "update",
    [
        {"error": {"code": 500, "description": "no"}},
        {"data": {"code": 500, "account": "A"}},
        {"data": {"code": 200, "account": "another"}},
        {},
    ],
)
async def test_an_account_that_the_server_does_not_take_is_an_error(trust: Trust, update: object):
    with pytest.raises(ServerFailed):
        await push_accounts(Servers([json.dumps(update).encode()]), trust)


@pytest.mark.parametrize("update", [b"", b"{", b"[]", b"\xff"])
async def test_an_answer_that_cannot_be_read_is_an_error(trust: Trust, update: bytes):
    with pytest.raises(ProtocolViolation):
        await push_accounts(Servers([update]), trust)


@pytest.mark.parametrize("known", [b"", b"garbage", b"\xff\xff"])
async def test_what_the_server_has_but_is_not_ours_is_replaced(trust: Trust, known: bytes):
    server = Servers([b'{"data":{"code":500}}'], known)

    with pytest.raises(ServerFailed):
        await push_accounts(server, trust)
    assert server.asked[-1] == "$SYS.REQ.CLAIMS.UPDATE"


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_server_of_a_cluster_that_does_not_answer_is_named(trust: Trust):
    account = trust.edge_account
    taken = {"server": {"id": "S0"}, "data": {"code": 200, "account": account}}
    servers = Servers([json.dumps(taken).encode()], size=2)

    with pytest.raises(ServerFailed, match=r"1 of 2 servers .*: n1"):
        await push_accounts(servers, trust, changed=[account], timeout=0.05)
