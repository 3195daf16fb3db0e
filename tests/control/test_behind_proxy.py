"""The HTTP API behind a reverse proxy that ends TLS: real sockets, one proxy, and those who would pass for it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.control.endpoints import plan
from postroom.control.http_listener import HttpListener
from postroom.control.org_router import OrgRouter
from postroom.identity.certfolder import CertificateFolder
from postroom.protocol.proxies import Proxies
from postroom.settings import Settings
from postroom.tls import client_context, server_context
from tests.control.serving import Answer, Site, exchange

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("api-key-required")]

NAME = "localhost"


class ReverseProxy:
    """Ends TLS, appends the client's address to `X-Forwarded-For`, and passes everything else on."""

    def __init__(self, upstream: int, tls: ssl.SSLContext) -> None:
        self._upstream = upstream
        self._tls = tls
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        peer = writer.get_extra_info("peername")[0]
        # As if the client were on another machine: this one has loopback addresses only.
        client = peer.replace("127.0.0.9", "198.51.100.7")
        added = f"X-Forwarded-For: {client}\r\nX-Forwarded-Proto: https\r\n\r\n"
        near, far = await asyncio.open_connection("127.0.0.1", self._upstream)
        far.write(head[:-2] + added.encode())
        writer.write(await near.read())
        far.close()
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


class Place:
    """A listener behind a reverse proxy, and how clients on another address call it."""

    def __init__(self, site: Site, proxy: ReverseProxy, trust: ssl.SSLContext) -> None:
        self.site = site
        self.proxy = proxy
        self._trust = trust

    async def get(self, *headers: str, host: str = "") -> Answer:
        """By the proxy, from an address that is no proxy's."""
        pair = await asyncio.open_connection(
            "127.0.0.1",
            self.proxy.port,
            ssl=self._trust,
            server_hostname=NAME,
            local_addr=("127.0.0.9", 0),
        )
        named = host or f"{NAME}:{self.proxy.port}"
        return await exchange(*pair, "/v1/status", f"Host: {named}", *headers)

    @property
    def client(self) -> str:
        """The client's address as the API was told it last."""
        return self.site.api.scopes[-1]["client"][0]


@contextlib.asynccontextmanager
async def behind_proxy(folder: Path, *trusted: str) -> AsyncGenerator[Place]:
    certificate = CertificateFolder(folder / "tls")
    certificate.init((), days=90, now=time.time())
    site = Site()
    proxy = ReverseProxy(site.port, server_context(certificate.server))
    async with proxy.running(), asyncio.TaskGroup() as tasks:
        settings = Settings(state=folder, public_urls=(f"https://{NAME}:{proxy.port}",))
        ends = plan(settings)
        ports = (site.port, 0, ())
        router = OrgRouter(ends.hosts(*ports), ends.pages(*ports), Proxies.of(trusted))
        router.open(site.api)
        listener = HttpListener(router, site.socket)
        tasks.create_task(listener.serve())
        try:
            yield Place(site, proxy, client_context(certificate.ca))
        finally:
            listener.stop()


async def test_the_api_answers_under_its_public_name_and_knows_its_client(tmp_path: Path):
    async with behind_proxy(tmp_path, "127.0.0.1") as place:
        assert (await place.get()).status == 200

        assert place.client == "198.51.100.7"
        assert place.site.api.scopes[-1]["scheme"] == "https"


async def test_a_proxy_that_nobody_has_named_is_a_client_like_others(tmp_path: Path):
    async with behind_proxy(tmp_path) as place:
        assert (await place.get()).status == 200

        assert place.client == "127.0.0.1"
        assert place.site.api.scopes[-1]["scheme"] == "http"


async def test_a_client_cannot_put_an_address_before_its_own(tmp_path: Path):
    async with behind_proxy(tmp_path, "127.0.0.1") as place:
        await place.get("X-Forwarded-For: 192.0.2.1")
        assert place.client == "198.51.100.7"

        assert (await place.get("Forwarded: for=192.0.2.1")).status == 403


async def test_who_comes_past_the_proxy_from_another_address_is_not_believed(tmp_path: Path):
    async with behind_proxy(tmp_path, "127.0.0.1") as place:
        port = place.site.port
        pair = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.8", 0))
        host = f"Host: {NAME}:{place.proxy.port}"
        answer = await exchange(*pair, "/v1/status", host, "X-Forwarded-For: 192.0.2.1")

        assert answer.status == 200
        assert place.client == "127.0.0.8"


@pytest.mark.requirement("api-key-required")
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost", "localhost:1", "evil@localhost"]
)
async def test_a_name_that_was_rebound_to_the_proxy_is_refused(tmp_path: Path, host: str):
    async with behind_proxy(tmp_path, "127.0.0.1") as place:
        given = (f"X-Forwarded-Host: {NAME}:{place.proxy.port}",)

        assert (await place.get(*given, host=host)).status == 403
        assert place.site.api.scopes == []


@pytest.mark.requirement("api-key-required")
async def test_only_pages_of_the_public_origin_may_ask(tmp_path: Path):
    async with behind_proxy(tmp_path, "127.0.0.1") as place:
        own = f"{NAME}:{place.proxy.port}"

        assert (await place.get(f"Origin: https://{own}")).status == 200
        for other in (f"http://{own}", "https://evil.example", f"https://{NAME}", "null", ""):
            assert (await place.get(f"Origin: {other}")).status == 403
