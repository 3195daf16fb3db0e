"""Who is let in, for how long, and how they are put out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.aio.client import Client

from postroom.identity.account_publisher import push_accounts
from postroom.identity.jwt import Credential
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from tests.identity.stage import (
    ALICE,
    BOB,
    LOBBY,
    PATIENCE,
    Peer,
    Stage,
    connect_or_clean_up,
    make_streams,
    mint,
    staged,
    stored,
    until_closed,
)

pytestmark = pytest.mark.anyio

REFUSED = "(?i)authorization|authentication"


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.parametrize("shown", [{}, {"user": "a", "password": "b"}, {"token": "c"}])
async def test_nobody_connects_without_a_credential(stage: Stage, shown: dict[str, str]):
    async def ignore(_: Exception) -> None:
        """`connect` raises the refusal too."""

    with pytest.raises(Exception, match=REFUSED):
        await connect_or_clean_up(Client(), stage.server.url, error_cb=ignore, **shown)


def _garbage(good: Credential) -> Credential:
    return Credential("not.a.jwt", good.seed)


def _tampered(good: Credential) -> Credential:
    head, claims, signature = good.jwt.split(".")
    return Credential(f"{head}.{claims}.{signature[::-1]}", good.seed)


def _of_another_key(good: Credential) -> Credential:
    return Credential(good.jwt, KeyPair.generate(Kind.USER).seed)


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.parametrize("spoil", [_garbage, _tampered, _of_another_key])
async def test_a_spoiled_credential_does_not_connect(
    stage: Stage, spoil: Callable[[Credential], Credential]
):
    with pytest.raises(Exception, match=REFUSED):
        await stage.connect(spoil(mint(stage.trust, ALICE)), ALICE)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_credential_of_another_post_room_does_not_connect(stage: Stage, tmp_path: Path):
    stranger = Trust.load_or_create(tmp_path / "elsewhere")
    with pytest.raises(Exception, match=REFUSED):
        await stage.connect(mint(stranger, ALICE), ALICE)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_an_expired_credential_does_not_connect(stage: Stage):
    past = stage.trust.mint_agent(ALICE, [], lifetime=60.0, now=time.time() - 120.0)
    with pytest.raises(Exception, match=REFUSED):
        await stage.connect(past, ALICE)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_live_connection_is_closed_when_its_credential_expires(stage: Stage):
    peer = await stage.connect(mint(stage.trust, ALICE, lifetime=2.0), ALICE)

    await until_closed(peer)

    assert "expired" in str(peer.client.last_error)


async def test_a_renewed_jwt_of_the_same_key_connects_beside_the_old_one(stage: Stage):
    old = await stage.agent(ALICE, LOBBY)
    token = stage.trust.renew(
        old.credential.public, ALICE, [LOBBY], lifetime=600.0, now=time.time()
    )

    new = await stage.connect(Credential(token, old.credential.seed), ALICE)

    assert new.client.is_connected
    assert old.client.is_connected


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_revoked_credential_is_cut_and_not_let_in_again_and_others_stay(stage: Stage):
    alice, bob = await stage.agent(ALICE), await stage.agent(BOB)
    system = await stage.system()

    stage.trust.revoke({alice.credential.public: time.time() + 600}, now=time.time())
    pushed = await push_accounts(system, stage.trust)
    await until_closed(alice)

    assert pushed == [stage.trust.edge_account]
    assert bob.client.is_connected
    with pytest.raises(Exception, match=REFUSED):
        await stage.connect(alice.credential, ALICE)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_revocation_holds_when_the_server_starts_with_the_accounts_of_before(stage: Stage):
    """A supervised restart uses the configuration of the first start, which knows no revocation."""
    revoked = mint(stage.trust, ALICE)
    stage.trust.revoke({revoked.public: time.time() + 600}, now=time.time())
    await push_accounts(await stage.system(), stage.trust)
    await stage.server.stop()

    stage.server = await type(stage.server).start(stage.server.config)
    try:
        with pytest.raises(Exception, match=REFUSED):
            await stage.connect(revoked, ALICE)
    finally:
        await stage.server.stop()


async def test_a_server_that_was_given_the_accounts_needs_no_push(stage: Stage):
    system = await stage.system()

    assert await push_accounts(system, stage.trust) == []


async def test_an_organisation_made_at_run_time_is_pushed_and_kept_apart(
    stage: Stage, core: Peer, tmp_path: Path
):
    other = Trust.load_or_create(tmp_path / "keys", "other")
    pushed = await push_accounts(await stage.system(), other)
    stranger = await stage.connect(mint(other, ALICE), ALICE)
    there = await stage.connect(other.core_credential(), "core")
    await make_streams(there)

    await stranger.client.jetstream().publish(subjects.inbox(BOB, ALICE), b"x", timeout=PATIENCE)

    assert set(pushed) == {other.core_account, other.edge_account}
    assert await stored(there) == {subjects.inbox(BOB, ALICE): 1}
    assert await stored(core) == {}


async def test_a_restarted_post_room_accepts_the_credentials_of_before(tmp_path: Path):
    async with staged(tmp_path) as before:
        credential = mint(before.trust, ALICE)

    async with staged(tmp_path) as after:
        peer = await after.connect(credential, ALICE)
        assert peer.client.is_connected
