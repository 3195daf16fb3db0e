"""Credentials that were captured, changed, made up, or are of somebody else: at the own door, and at the server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.audit.server import Connections, Outsiders
from postroom.identity import jwt
from postroom.identity.jwt import Credential
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.trust import Trust
from postroom.protocol.audit import DENIED, SERVER, AuditRecord
from postroom.protocol.ids import CONTROL_PLANE
from tests.attack.site import Target
from tests.gateway.nats.rig import Raw
from tests.identity.stage import LOBBY

pytestmark = pytest.mark.anyio

REFUSED = (b"-ERR 'Authorization Violation'", b"-ERR 'Unknown Protocol Operation'")


@dataclass
class Forger:
    """What an attacker can make of what it has: its own credential, and what it has seen of others'."""

    target: Target
    stranger: Trust

    @property
    def trust(self) -> Trust:
        return self.target.room.rig.trust

    def signed(self, key: KeyPair, name: str = "", **claims: Any) -> Credential:
        """A credential that some key has signed."""
        user = KeyPair.generate(Kind.USER)
        body = jwt.scoped_user_body(self.trust.edge_account) | claims
        uid = name or self.target.me.uid
        token = jwt.encode(key, user.public, uid, body, now=time.time(), expires=time.time() + 60)
        return Credential(token, user.seed)

    def edited(self, **claims: Any) -> Credential:
        """The own credential with other claims under the old signature."""
        mine = self.target.me.credential
        head, body, signature = mine.jwt.split(".")
        said = json.loads(base64.urlsafe_b64decode(body + "=="))
        text = base64.urlsafe_b64encode(json.dumps(said | claims).encode()).decode().rstrip("=")
        return Credential(f"{head}.{text}.{signature}", mine.seed)

    def unsigned(self, algorithm: str) -> Credential:
        """The own credential that says it needs no signature."""
        mine = self.target.me.credential
        head = json.dumps({"typ": "JWT", "alg": algorithm}).encode()
        text = base64.urlsafe_b64encode(head).decode().rstrip("=")
        return Credential(f"{text}.{mine.jwt.split('.')[1]}.", mine.seed)

    def minted(self, trust: Trust, uid: str, now: float = 0.0, lifetime: float = 60) -> Credential:
        return trust.mint_agent(
            uid, (LOBBY,), lifetime=lifetime, now=now or time.time(), proxied=True
        )


CREDENTIALS: dict[str, Callable[[Forger], Credential]] = {
    "of the victim": lambda f: f.target.theirs.credential,
    "of the victim, under the own key": lambda f: Credential(
        f.target.theirs.credential.jwt, f.target.me.credential.seed
    ),
    "its own, under another key": lambda f: Credential(
        f.target.me.credential.jwt, KeyPair.generate(Kind.USER).seed
    ),
    "expired": lambda f: f.minted(f.trust, f.target.me.uid, time.time() - 600),
    "of another post room": lambda f: f.minted(f.stranger, f.target.me.uid),
    "of another organisation's worker": lambda f: f.minted(f.stranger.of("acme"), f.target.me.uid),
    "the control plane's, in core": lambda f: f.stranger.core_credential(),
    "the system's": lambda f: f.stranger.system_credential(),
    "the control plane's, among agents": lambda f: f.stranger.edge_credential(),
    "signed by itself": lambda f: f.signed(KeyPair.generate(Kind.ACCOUNT)),
    "signed by its own user key": lambda f: f.signed(KeyPair.generate(Kind.USER)),
    "signed by itself, with every right": lambda f: f.signed(
        KeyPair.generate(Kind.ACCOUNT), pub={"allow": [">"]}, sub={"allow": [">"]}
    ),
    "signed by itself, named *": lambda f: f.signed(KeyPair.generate(Kind.ACCOUNT), "*"),
    "named after the victim": lambda f: f.edited(name=f.target.victim.uid),
    "named *": lambda f: f.edited(name="*"),
    "that never expires": lambda f: f.edited(exp=0),
    "that expires later": lambda f: f.edited(exp=int(time.time()) + 10**6),
    "for every right": lambda f: f.edited(
        nats={"pub": {"allow": [">"]}, "version": 2, "type": "user"}
    ),
    "for another account": lambda f: f.edited(iss=f.trust.core_account),
    "for another user": lambda f: f.edited(sub=KeyPair.generate(Kind.USER).public),
    "without a name": lambda f: f.edited(name=""),
    "without a signature": lambda f: f.unsigned("none"),
    "with a signature of another kind": lambda f: f.unsigned("HS256"),
    "empty": lambda f: Credential("", f.target.me.credential.seed),
    "cut short": lambda f: Credential(
        f.target.me.credential.jwt[:-10], f.target.me.credential.seed
    ),
    "the account's own": lambda f: Credential(
        f.trust.account_jwts()[f.trust.edge_account], f.target.me.credential.seed
    ),
    "the operator's": lambda f: Credential(f.trust.operator_jwt, f.target.me.credential.seed),
}

LINES: dict[str, Callable[[Raw, bytes, str], bytes]] = {
    "captured": lambda raw, old, name: old,
    "captured, with the new nonce beside it": lambda raw, old, name: (
        old[:-3] + b',"nonce":"%b"}\r\n' % raw.info["nonce"].encode()
    ),
    "with a signature of another text": lambda raw, old, name: raw.connect_line(sig="AAAA"),
    "without a signature": lambda raw, old, name: raw.connect_line(sig=None),
    "with an old signature": lambda raw, old, name: raw.connect_line(
        sig=json.loads(old[8:])["sig"]
    ),
    "with a user and a password": lambda raw, old, name: raw.connect_line(
        jwt=None, sig=None, user=name, **{"pass": "x"}
    ),
    "with a token": lambda raw, old, name: raw.connect_line(jwt=None, sig=None, auth_token="x"),
    "with a key alone": lambda raw, old, name: raw.connect_line(jwt=None, nkey="U" * 56),
}

DIRECT: dict[str, Callable[[Raw], dict[str, Any]]] = {
    "as it is": lambda raw: {},
    "with an empty proof": lambda raw: {"proxy_sig": ""},
    "with its own key's proof": lambda raw: {
        "proxy_sig": base64.urlsafe_b64encode(raw.credential.sign(raw.info["nonce"].encode()))
        .rstrip(b"=")
        .decode()
    },
    "with a made up proof": lambda raw: {
        "proxy_sig": base64.urlsafe_b64encode(
            KeyPair.generate(Kind.USER).sign(raw.info["nonce"].encode())
        )
        .rstrip(b"=")
        .decode()
    },
    "with the proof beside another name": lambda raw: {"proxy_signature": "x", "proxy": True},
    "as an account that it names": lambda raw: {"account": "SYS", "new_account": True},
}


@pytest.fixture(scope="module")
def forger(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """With a post room of its own, whose keys this one does not know."""
    stranger = Trust.load_or_create(tmp_path_factory.mktemp("stranger") / "keys")
    stranger.add_org("acme")
    return Forger(target, stranger)


async def _refused(target: Target, raw: Raw, line: bytes) -> list[object]:
    """What is wrong with how `line` is refused: nothing."""
    target.audit.written = b""
    await raw.send(line + b"PING\r\n")
    answer = await raw.rest()
    await target.house.until(lambda: not target.house.gateway._doors[target.me.uid].tasks)
    reasons = [record.reason for record in target.audit.denied]
    return [] if answer.startswith(REFUSED) and reasons else [answer, reasons]


@pytest.mark.requirement("gateway-nats-proof")
async def test_no_other_credential_opens_the_bus_at_its_own_door(target: Target, forger: Forger):
    failed = {}
    for name, make in CREDENTIALS.items():
        raw = await target.house.knock(target.me, make(forger))
        if wrong := await _refused(target, raw, raw.connect_line()):
            failed[name] = wrong
    assert failed == {}


@pytest.mark.requirement("gateway-nats-proof")
async def test_no_captured_or_changed_connect_opens_the_bus_at_its_own_door(target: Target):
    first = await target.house.enter(target.me)
    captured = first.connect_line()
    first.close()
    failed = {}
    for name, make in LINES.items():
        raw = await target.house.knock(target.me)
        if wrong := await _refused(target, raw, make(raw, captured, target.me.uid)):
            failed[name] = wrong
    assert failed == {}


@pytest.mark.requirement("gateway-nats-proof")
@pytest.mark.slow
async def test_no_workers_credential_opens_the_server_itself(target: Target, forger: Forger):
    failed = {}
    system = await target.room.rig.connect(target.room.rig.trust.system_credential(), CONTROL_PLANE)
    watch = Connections(
        system,
        target.room.parts.installation.audit,
        forger.trust,
        Outsiders(target.room.parts.directory),
    )
    await watch.open()
    await system._link.settle(time.monotonic() + 10)
    makers = {"its own": lambda f: f.target.me.credential, **CREDENTIALS}
    for credential, make in makers.items():
        for proof, more in DIRECT.items():
            raw = await target.house.direct(make(forger))
            await raw.send(raw.connect_line(**more(raw)) + b"PING\r\n")
            if not (answer := await raw.rest()).startswith(REFUSED):
                failed[credential, proof] = answer
    assert failed == {}
    assert await target.heard() == []
    # What the server says of its own accord: whose credential it was that came without the gateway.
    log = target.room.parts.installation.audit.files.path
    expected = {(uid, "Proxy Required") for uid in (target.me.uid, target.victim.uid)}
    await target.house.until(lambda: expected <= _tried(log))
    await watch.close()


def _tried(log: Path) -> set[tuple[str, str]]:
    """Worker and reason of each refusal that the server has told of."""
    records = [AuditRecord.decode(line) for line in log.read_text().splitlines()]
    return {(r.worker, r.reason) for r in records if r.by == SERVER and r.verdict == DENIED}
