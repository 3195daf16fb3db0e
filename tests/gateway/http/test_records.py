"""What the audit records say of requests that are refused."""

from __future__ import annotations

import pytest

from tests.gateway.http.rig import Way
from tests.gateway.http.test_control import App, entered

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("egress-key-outside")
@pytest.mark.parametrize(
    "target, shown",
    [
        ("/https/user:pw@host.example/x", "/https/host.example/x"),
        ("/https/user:pw/pw@host.example/x", "/https/host.example/x"),
        ("/https/user:pw@pw@host.example/x", "/https/host.example/x"),
        ("/https/user:pw/pw@host.example/x?key=pw", "/https/host.example/x"),
        ("/https/user:pw?pw@host.example/x", "/https/"),
        ("/https/user:pw/pw@x?pw@host.example/", "/https/"),
        ("http://user:pw/pw@host.example/x", "http://host.example/x"),
        ("http://user:pw?pw@host.example/x", "http://"),
        ("user:pw/pw@host.example/x", "host.example/x"),
    ],
)
async def test_what_may_be_a_password_before_a_host_is_not_recorded(
    way: Way, target: str, shown: str
):
    async with way.open() as enter:
        reply = await (await enter()).ask(target)

    [record] = way.sink.records
    assert (reply.status, record.verdict, record.url) == (422, "denied", shown)
    assert "pw" not in way.sink.text


async def test_a_tunnel_that_names_a_user_is_recorded_without(way: Way):
    async with way.open() as enter:
        reply = await (await enter()).ask("user:pw/pw@host.example:443", "CONNECT")

    [record] = way.sink.records
    assert (reply.status, record.url) == (422, "host.example:443")
    assert "pw" not in way.sink.text


async def test_of_a_target_that_can_be_read_a_path_with_an_at_sign_is_recorded_whole(way: Way):
    async with way.open() as enter:
        reply = await (await enter()).ask("/https/evil.example/@scope/package")

    [record] = way.sink.records
    assert (reply.status, record.url) == (403, "/https/evil.example/@scope/package")


async def test_a_request_for_another_host_than_the_control_plane_is_recorded_without_its_user(
    way: Way,
):
    async with entered(way, App()) as near:
        reply = await near.ask("http://user:pw/pw@host.example/")

    [record] = way.sink.records
    assert (reply.status, record.url) == (422, "http://host.example/")
