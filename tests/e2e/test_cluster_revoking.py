"""`postroom revoke` where the bus is three nats-servers of somebody else."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import time
from pathlib import Path

import pytest

from postroom.identity import jwt
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom_a2a.nats import WireConnection
from tests.cluster import Cluster, Node, survey
from tests.e2e.conftest import EXAMPLES, PostRoom
from tests.e2e.test_cluster import aside, on_a_cluster
from tests.gateway.nats.rig import Raw

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

ECHO = str(EXAMPLES / "echo.toml")


async def knock(node: Node, trust: Trust, credential: Credential) -> tuple[Raw, str]:
    """A greeted connection to one server, and the gateway's signature, without which a worker is not let in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    raw = await Raw(reader, writer, credential).greeted()
    proof = trust.sign_as_proxy(raw.info["nonce"].encode())
    return raw, base64.urlsafe_b64encode(proof).rstrip(b"=").decode()


async def refused(node: Node, trust: Trust, credential: Credential) -> bytes:
    raw, proof = await knock(node, trust, credential)
    await raw.send(raw.connect_line(proxy_sig=proof) + b"PING\r\n")
    said = await raw.rest()
    raw.close()
    return said


async def keys_of(system: WireConnection, cluster: Cluster, uid: str) -> list[tuple[str, str]]:
    """Server and user key of each connection that an agent has."""
    found = []
    request = json.dumps({"auth": True, "limit": 1000}).encode()
    answers = await survey(system, "CONNZ", len(cluster.nodes), request)
    assert len(answers) == len(cluster.nodes)
    for answer in answers:
        for connection in answer["data"].get("connections") or ():
            claims = jwt.decode(connection["jwt"]) if connection.get("jwt") else {}
            if claims.get("name") == uid:
                found.append((answer["server"]["name"], str(claims["sub"])))
    return found


def issued(room: PostRoom, trust: Trust, uid: str) -> Credential:
    """One more credential of a worker, whose secret the test knows; the post room takes it for its own."""
    credential = trust.mint_agent(uid, ("main",), lifetime=600.0, now=time.time(), proxied=True)
    with sqlite3.connect(room.state / "accounts.db", timeout=10) as database:
        database.execute(
            "insert into credentials (user_key, uid, expires_at, org) values (?, ?, ?, 'default')",
            (credential.public, uid, time.time() + 600),
        )
    database.close()
    return credential


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.slow
async def test_a_worker_behind_its_door_is_cut_and_let_in_by_none_of_three_servers_once_revoked(
    room: PostRoom, tmp_path: Path
):
    async with on_a_cluster(room, tmp_path) as cluster, asyncio.timeout(150):
        await aside(room.up)
        await aside(room.run, "spawn", ECHO)
        await aside(room.await_state, "echo", "idle")
        uid = (await aside(room.worker, "echo"))["uid"]
        trust = Trust.load_or_create(room.state / "keys")
        credential = await aside(issued, room, trust, uid)
        inside = []
        for node in cluster.nodes:
            raw, proof = await knock(node, trust, credential)
            inside.append(await raw.connect(proxy_sig=proof))
        async with cluster.system() as system:
            held = await keys_of(system, cluster, uid)
            [(_, own)] = [entry for entry in held if entry[1] != credential.public]
            assert len(held) == 1 + len(cluster.nodes)

            await aside(room.run, "revoke", "@echo")
            returned = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(returned + 2):
                cut = await asyncio.gather(*(raw.rest() for raw in inside))
                answers = await asyncio.gather(
                    *(refused(node, trust, credential) for node in cluster.nodes)
                )
                while await keys_of(system, cluster, uid):
                    pass

        assert all(b"Authentication Revoked" in said for said in cut)
        assert all(b"Authorization Violation" in said for said in answers)
        for raw in inside:
            raw.close()
        revocations = json.loads((room.state / "keys" / "trust.json").read_text())["orgs"]
        assert {own, credential.public} <= set(revocations["default"]["revocations"])
