"""What a push makes of the server's answers; against the real server it is in test_connecting."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from postroom.errors import ProtocolViolation, ServerFailed
from postroom.identity.push import push_accounts
from postroom.identity.trust import Trust

pytestmark = pytest.mark.anyio


@dataclass
class Answer:
    data: bytes


@dataclass
class Server:
    """Knows `known` and answers every update with `update`."""

    update: bytes
    known: bytes = b""
    asked: list[str] = field(default_factory=list)

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 1.0) -> Answer:
        self.asked.append(subject)
        return Answer(self.known if subject.endswith("LOOKUP") else self.update)


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
        await push_accounts(Server(json.dumps(update).encode()), trust)


@pytest.mark.parametrize("update", [b"", b"{", b"[]", b"\xff"])
async def test_an_answer_that_cannot_be_read_is_an_error(trust: Trust, update: bytes):
    with pytest.raises(ProtocolViolation):
        await push_accounts(Server(update), trust)


@pytest.mark.parametrize("known", [b"", b"garbage", b"\xff\xff"])
async def test_what_the_server_has_but_is_not_ours_is_replaced(trust: Trust, known: bytes):
    server = Server(b'{"data":{"code":500}}', known)

    with pytest.raises(ServerFailed):
        await push_accounts(server, trust)
    assert server.asked[-1] == "$SYS.REQ.CLAIMS.UPDATE"
