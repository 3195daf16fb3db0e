"""The registry of Agent Cards, over a real server."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3 import types as types03
from a2a.compat.v0_3.conversions import to_core_agent_card
from google.protobuf.json_format import ParseDict

from a2a import types
from library.nats.streams import jetstream
from postroom_a2a.errors import (
    Conflict,
    InvalidName,
    LostUpdate,
    MessageTooLarge,
    ProtocolViolation,
    Refused,
)
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket, BucketSettings
from postroom_a2a.registry import BUCKET, PLAIN, Registry
from postroom_a2a.sdk.card_registry import open_registry, read_card, write_card

pytestmark = pytest.mark.anyio

# As the TypeScript package creates it (`createBucket`).
TYPESCRIPT_BUCKET = {
    "name": f"KV_{BUCKET}",
    "retention": "limits",
    "max_msgs_per_subject": 1,
    "max_bytes": -1,
    "max_msg_size": -1,
    "storage": "file",
    "subjects": [f"$KV.{BUCKET}.>"],
    "discard": "new",
    "allow_direct": True,
    "num_replicas": 1,
    "allow_rollup_hdrs": True,
}

TYPESCRIPT_CARD = {
    "name": "Echo",
    "description": "Echoes.",
    "url": "nats://a2a.agent.echo.rpc",
    "preferredTransport": "NATS",
    "additionalInterfaces": [{"transport": "NATS+JS", "url": "nats+js://a2a/agent/echo/requests"}],
    "protocolVersion": "0.3.0",
    "version": "1.2.3",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"key": []}],
    "skills": [{"id": "echo", "name": "Echo words", "description": "", "tags": ["words"]}],
}


def card(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "skills": [{"id": name, "name": f"{name}s", "tags": ["any"]}], **more}


def sdk_card() -> types.AgentCard:
    return ParseDict(
        {
            "name": "Echo",
            "description": "Echoes.",
            "version": "1.2.3",
            "supportedInterfaces": [
                {
                    "url": "nats://a2a.agent.echo.rpc",
                    "protocolBinding": "NATS",
                    "protocolVersion": "1.0",
                },
                {
                    "url": "nats://a2a.agent.echo.rpc",
                    "protocolBinding": "NATS",
                    "protocolVersion": "0.3",
                },
                {
                    "url": "nats+js://a2a/agent/echo/requests",
                    "protocolBinding": "NATS+JS",
                    "protocolVersion": "0.3",
                },
            ],
            "capabilities": {"streaming": True, "extendedAgentCard": True},
            "securitySchemes": {
                "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}
            },
            "securityRequirements": [{"schemes": {"key": {"list": []}}}],
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "echo", "name": "Echo", "description": "Says it.", "tags": ["x"]}],
        },
        types.AgentCard(),
    )


@pytest.mark.requirement("a2a-http-versions")
async def test_a_card_is_read_by_1_0_and_by_0_3():
    ours = sdk_card()
    written = json.loads(json.dumps(write_card(ours)))
    assert read_card(written) == ours
    legacy = types03.AgentCard.model_validate(written)
    assert legacy.url == "nats://a2a.agent.echo.rpc"
    assert legacy.preferred_transport == "NATS"
    assert legacy.protocol_version == "0.3"
    assert legacy.additional_interfaces is not None
    assert [each.transport for each in legacy.additional_interfaces] == ["NATS+JS"]
    assert legacy.supports_authenticated_extended_card
    seen = to_core_agent_card(legacy)
    assert seen.skills == ours.skills
    assert seen.security_schemes["key"] == ours.security_schemes["key"]


@pytest.mark.requirement("a2a-http-versions")
async def test_a_card_of_the_typescript_package_is_read_as_one_of_1_0(tmp_path: Path):
    async with jetstream(tmp_path) as (js, connection):
        await js.api(f"STREAM.CREATE.KV_{BUCKET}", TYPESCRIPT_BUCKET)
        key = f"$KV.{BUCKET}.wyrd_a2a.agents.echo"
        await js.publish(key, json.dumps(TYPESCRIPT_CARD).encode())
        registry = await open_registry(connection, namespace="wyrd.a2a", compatible=True)
        found = await registry.resolve("echo")
        assert found is not None
        assert found.liveness == "unknown"
        bindings = [each.protocol_binding for each in found.card.supported_interfaces]
        assert bindings == ["NATS", "NATS+JS"]
        assert found.card.security_schemes["key"].api_key_security_scheme.name == "X-Key"
        # Its own list compares with the namespace as it was given, and so finds nothing.
        assert [each.agent_id for each in await registry.list()] == ["echo"]
        assert [each.agent_id for each in await registry.find("WORDS")] == ["echo"]


async def test_a_published_card_is_resolved_listed_found_and_removed(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        registry = await Registry.open(js, PLAIN)
        other = await Registry.open(js, PLAIN, namespace="other")
        async with registry:
            revision = await registry.publish(card("sum"), "agent-1")
            await other.publish(card("sum"), "agent-2")
            found = await registry.resolve("agent-1")
            assert found is not None
            assert (found.card, found.revision) == (card("sum"), revision)
            assert found.liveness == "live"
            assert [each.agent_id for each in await registry.list()] == ["agent-1"]
            for skill in ("sum", "Sums", "ANY"):
                assert len(await registry.find(skill)) == 1
            assert await registry.find("other") == []
            await registry.remove("agent-1")
            assert await registry.resolve("agent-1") is None
        await other.close()


async def test_a_card_is_replaced_only_at_the_expected_revision(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _), await Registry.open(js, PLAIN) as registry:
        first = await registry.publish(card("a"), "x", expected_revision=0)
        with pytest.raises(LostUpdate):
            await registry.publish(card("b"), "x", expected_revision=0)
        await registry.publish(card("b"), "x", expected_revision=first)
        with pytest.raises(LostUpdate):
            await registry.remove("x", expected_revision=first)


async def test_a_removal_that_is_refused_leaves_the_card_alive(tmp_path: Path):
    async with (
        jetstream(tmp_path) as (js, _),
        await Registry.open(js, PLAIN, ttl=1) as registry,
    ):
        revision = await registry.publish(card("a"), "x")
        with pytest.raises(LostUpdate):
            await registry.remove("x", expected_revision=revision + 100)
        async with asyncio.timeout(20):
            there = await registry.resolve("x")
            while there is not None and there.revision <= revision:
                there = await registry.resolve("x")
        assert there is not None
        assert there.liveness == "live"


@pytest.mark.requirement("a2a-http-versions")
async def test_a_card_goes_when_its_publisher_closes(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        reader = await Registry.open(js, PLAIN)
        async with aclosing(reader.watch()) as watch:
            assert await anext(watch) is None
            async with await Registry.open(js, PLAIN) as registry:
                await registry.publish(card("a"), "x")
                change = await anext(watch)
                assert change is not None
                assert change.registered is not None
            change = await anext(watch)
            assert change is not None
            assert (change.agent_id, change.registered) == ("x", None)


@pytest.mark.requirement("a2a-http-versions")
async def test_a_card_lives_while_it_is_refreshed_and_goes_when_that_ends(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        registry = await Registry.open(
            js, PLAIN, ttl=1, settings=BucketSettings(key_ttl=True, marker_ttl=1)
        )
        bucket = await Bucket.open(js, BUCKET)
        async with aclosing(bucket.watch()) as watch:
            first = await registry.publish(card("a"), "x")
            writes = []
            async for entry in watch:
                if entry is not None:
                    assert not entry.deleted
                    writes.append(entry.revision)
                if len(writes) == 5:  # longer than it lives without
                    break
            assert writes[0] == first
            assert registry._refresher is not None
            registry._refresher.cancel()
            async for entry in watch:
                if entry is not None and entry.deleted:
                    break
        assert await registry.resolve("x") is None
        await registry.close()


async def test_a_watch_does_not_report_a_refresh(tmp_path: Path):
    async with (
        jetstream(tmp_path) as (js, _),
        await Registry.open(js, PLAIN) as registry,
        aclosing(registry.watch()) as watch,
    ):
        await registry.publish(card("a"), "x")
        seen = [await anext(watch), await anext(watch)]
        assert None in seen
        await registry._renew("a2a.agents.x", registry._published["a2a.agents.x"])
        await registry.publish(card("b"), "x")
        change = await anext(watch)
        assert change is not None
        assert change.registered is not None
        assert change.registered.card == card("b")


async def test_an_expired_card_is_put_back_and_another_card_is_left_alone(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        registry = await Registry.open(js, PLAIN)
        other = await Registry.open(js, PLAIN)
        await registry.publish(card("a"), "x")
        mine = registry._published["a2a.agents.x"]
        await other.remove("x")
        await registry._renew("a2a.agents.x", mine)
        assert await other.resolve("x") is not None
        await other.publish(card("a"), "x")  # a replica
        await registry._renew("a2a.agents.x", mine)
        await other.publish(card("b"), "x")
        with pytest.raises(Conflict):
            await registry._renew("a2a.agents.x", mine)
        await registry.close()
        found = await other.resolve("x")
        assert found is not None
        assert found.card == card("b")
        await other.close()


async def test_the_death_of_the_refresher_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reported: asyncio.Queue[Exception] = asyncio.Queue()

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with jetstream(tmp_path) as (js, _):
        registry = await Registry.open(js, PLAIN, ttl=0.3, on_error=reported.put_nowait)
        monkeypatch.setattr(registry, "_renew", broken)
        await registry.publish(card("a"), "x")
        async with asyncio.timeout(10):
            assert isinstance(await reported.get(), ZeroDivisionError)
        await registry.close()


async def test_what_is_no_card_is_left_out_and_reported(tmp_path: Path):
    reported: list[Exception] = []
    async with (
        jetstream(tmp_path) as (js, connection),
        await open_registry(connection, on_error=reported.append) as registry,
    ):
        await registry.publish(sdk_card(), "good")
        bucket = await Bucket.open(js, BUCKET)
        bad = [b"", b"{", b"[]", b'{"supportedInterfaces": 5}', b'{"url": 1}', b" " * 70_000]
        for number, value in enumerate(bad):
            await bucket.put(f"a2a.agents.bad-{number}", value)
        assert [each.agent_id for each in await registry.list()] == ["good"]
        assert len(reported) == len(bad)
        assert all(isinstance(each, ProtocolViolation) for each in reported)
        with pytest.raises(ProtocolViolation):
            await registry.resolve("bad-0")


class Unchangeable(JetStream):
    """JetStream for a user who may not change streams."""

    async def api(self, verb: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        if verb.startswith("STREAM.UPDATE"):
            raise Refused("not yours")
        return await super().api(verb, *arguments, **options)


async def test_a_bucket_that_cannot_expire_keys_is_used_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with jetstream(tmp_path) as (js, _):
        await js.api(f"STREAM.CREATE.KV_{BUCKET}", TYPESCRIPT_BUCKET)
        with caplog.at_level(logging.WARNING):
            async with await Registry.open(Unchangeable(js.mailbox), PLAIN) as registry:
                await registry.publish(card("a"), "x")
                await registry.publish(card("a"), "y")
                found = await registry.resolve("x")
                assert found is not None
                assert found.liveness == "unknown"
                assert registry._refresher is None
        assert len(caplog.records) == 1
        # One that may change it does so.
        async with await Registry.open(js, PLAIN) as registry:
            await registry.publish(card("a"), "x")
            found = await registry.resolve("x")
            assert found is not None
            assert found.liveness == "live"


async def test_an_id_that_the_token_rule_changes_is_refused_unless_compatible(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        async with await Registry.open(js, PLAIN) as registry:
            for name in ("a.b", "", " a", "é"):
                with pytest.raises(InvalidName):
                    await registry.publish(card("a"), name)
            with pytest.raises(InvalidName):
                Registry(registry._bucket, PLAIN, namespace="wyrd.a2a")
        async with await Registry.open(js, PLAIN, namespace="x.y", compatible=True) as registry:
            await registry.publish(card("a"), "a.b")
            assert await registry.resolve("a b") is not None
            assert [each.agent_id for each in await registry.list()] == ["a_b"]


async def test_a_card_over_the_limit_is_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _), await Registry.open(js, PLAIN) as registry:
        with pytest.raises(MessageTooLarge):
            await registry.publish(card("a", description="x" * 70_000), "x")
