"""A way out with an upstream behind TLS whose certificate a local authority made."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme

from tests.gateway.http.rig import HOST, Outside, Site, Way


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def way(authority: trustme.CA) -> Iterator[Way]:
    with tempfile.TemporaryDirectory(prefix="way") as folder:  # short, for the socket in it
        yield Way(Path(folder), authority)


@pytest.fixture
async def site(way: Way, authority: trustme.CA) -> AsyncIterator[Site]:
    """`HOST` on this machine, which the worker may reach."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST).configure_cert(context)
    async with Outside(context).open() as outside:
        way.name(HOST, outside.port)
        rule = f"{HOST}:{outside.port}"
        way.allow(rule)
        yield Site(way, outside, f"/https/{rule}", rule)
