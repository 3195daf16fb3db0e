"""The first layer of the HTTP API: there from the first moment, and for nobody's web page."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from postroom.control.http_listener import WorkerDialer
from postroom.control.org_router import WORKER
from tests.control.serving import Answer, Echo, Site, exchange, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def starting() -> AsyncGenerator[Site]:
    async with serving() as site:
        yield site


@pytest.fixture
async def ready() -> AsyncGenerator[Site]:
    async with serving() as site:
        site.router.open(site.api)
        yield site


@pytest.mark.requirement("http-readyz-truthful")
async def test_livez_answers_before_the_api_is_open(starting: Site):
    answer = await starting.get("/livez")

    assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.requirement("http-readyz-truthful")
async def test_readyz_says_no_until_the_api_is_open_and_after_it_is_shut(starting: Site):
    before = await starting.get("/readyz")
    starting.router.open(starting.api)
    opened = await starting.get("/readyz")
    starting.router.shut()
    after = await starting.get("/readyz")

    assert [a.status for a in (before, opened, after)] == [503, 200, 503]
    assert [json.loads(a.body) for a in (before, opened)] == [{"ready": False}, {"ready": True}]


@pytest.mark.requirement("http-readyz-truthful")
async def test_a_request_before_the_api_is_open_is_told_to_come_again(starting: Site):
    answer = await starting.get("/v1/status")

    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.body)["status"] == 503


async def test_a_request_reaches_the_api_when_it_is_open(ready: Site):
    answer = await ready.get("/v1/status?full=1")

    assert (answer.status, answer.body) == (200, b"api")
    assert ready.api.scopes[0]["path"] == "/v1/status"


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v1/status"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""]
)
async def test_a_request_for_another_host_is_forbidden(ready: Site, path: str, host: str):
    answer = await ready.get(path, f"Host: {host.format(port=ready.port)}")

    assert answer.status == 403
    assert json.loads(answer.body)["code"] == "forbidden"
    assert ready.api.scopes == []


@pytest.mark.requirement("api-key-required")
async def test_a_request_with_two_hosts_does_not_reach_the_api(ready: Site):
    answer = await ready.get("/v1/status", "Host: evil.example", f"Host: {ready.host}")

    assert answer.status in (400, 403)
    assert ready.api.scopes == []


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}"])
async def test_each_name_of_the_loopback_address_is_served(ready: Site, host: str):
    answer = await ready.get("/v1/status", f"Host: {host.format(port=ready.port)}")

    assert answer.status == 200


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1.evil.example"],
)
async def test_a_web_page_of_another_origin_is_forbidden(ready: Site, origin: str):
    answer = await ready.get("/v1/status", f"Origin: {origin}")

    assert answer.status == 403
    assert ready.api.scopes == []


@pytest.mark.requirement("api-key-required")
async def test_a_web_page_of_our_own_origin_may_call(ready: Site):
    assert (await ready.get("/v1/status", f"Origin: http://{ready.host}")).status == 200


@pytest.mark.requirement("api-key-required")
async def test_an_origin_that_is_no_address_is_forbidden(ready: Site):
    assert (await ready.get("/v1/status", "Origin: http://[")).status == 403


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize("name", [WORKER, "X-Postroom-Worker", "Postroom-Worker"])
async def test_no_header_makes_a_request_on_the_port_one_of_a_worker(ready: Site, name: str):
    await ready.get("/v1/status", f"{name}: {'a' * 32}")

    assert WORKER not in ready.api.scopes[0]


# ── organisations ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def two() -> AsyncGenerator[tuple[Site, Echo]]:
    """A site with the default organisation and one more, `acme`, whose API is the second of the pair."""
    async with serving() as site:
        site.router.open(site.api)
        acme = Echo()
        site.router.open(acme, "acme")
        yield site, acme


@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.parametrize("path", ["/orgs/acme/v1/status", "/%6Frgs/acme/v1/status"])
async def test_a_path_that_names_an_organisation_reaches_its_api_alone(
    two: tuple[Site, Echo], path: str
):
    site, acme = two

    assert (await site.get(path)).status == 200
    (scope,) = acme.scopes
    assert (scope["root_path"], scope["path"]) == ("/orgs/acme", "/orgs/acme/v1/status")
    assert site.api.scopes == []


@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.parametrize(
    "path", ["/v1/status", "/orgs/other/v1/status", "/orgs/", "/orgs/../v1/status"]
)
async def test_every_other_path_reaches_the_default_organisation_alone(
    two: tuple[Site, Echo], path: str
):
    site, acme = two

    await site.get(path)

    assert acme.scopes == []
    assert [scope["path"] for scope in site.api.scopes] == [path]


async def test_an_organisation_that_has_closed_is_not_reached(two: tuple[Site, Echo]):
    site, acme = two
    site.router.close("acme")

    await site.get("/orgs/acme/v1/status")

    assert acme.scopes == []


async def _through_a_door(site: Site, worker: str, path: str) -> Answer:
    pair = await WorkerDialer(site.router).dial(worker)
    return await exchange(*pair, path, "Host: postroom")


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_workers_door_leads_to_the_api_of_its_own_organisation(two: tuple[Site, Echo]):
    site, acme = two
    site.router.admit("a" * 32, "default")
    site.router.admit("b" * 32, "acme")

    for worker in ("a" * 32, "b" * 32):
        assert (await _through_a_door(site, worker, "/v1/blobs/x")).status == 200

    assert [scope[WORKER] for scope in site.api.scopes] == ["a" * 32]
    assert [scope[WORKER] for scope in acme.scopes] == ["b" * 32]


@pytest.mark.requirement("org-no-subject-crosses")
@pytest.mark.parametrize(
    "path",
    ["/orgs/acme/v1/blobs/x", "/orgs/default/v1/status", "/orgs/none/v1/status", "/%6frgs/acme/v1"],
)
async def test_a_worker_that_names_an_organisation_is_refused_whether_there_is_one_or_not(
    two: tuple[Site, Echo], path: str
):
    site, acme = two
    site.router.admit("b" * 32, "acme")

    answer = await _through_a_door(site, "b" * 32, path)

    assert (answer.status, json.loads(answer.body)["detail"]) == (403, "workers may not call this")
    assert site.api.scopes == acme.scopes == []


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_worker_whose_door_is_closed_reaches_no_api(two: tuple[Site, Echo]):
    site, acme = two
    site.router.admit("b" * 32, "acme")
    site.router.dismiss("b" * 32)

    assert (await _through_a_door(site, "b" * 32, "/.well-known/jwks.json")).status == 403
    assert site.api.scopes == acme.scopes == []


async def test_a_worker_of_an_organisation_that_is_not_open_is_told_to_come_again(
    two: tuple[Site, Echo],
):
    site, acme = two
    site.router.admit("b" * 32, "acme")
    site.router.close("acme")

    assert (await _through_a_door(site, "b" * 32, "/.well-known/jwks.json")).status == 503
    assert site.api.scopes == acme.scopes == []
